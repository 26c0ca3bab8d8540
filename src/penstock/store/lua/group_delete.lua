-- Forget a group and its offsets, if we are still its coordinator.
--
-- KEYS  1 lease   2 groups   3 group   4 offsets   5 pend: offsets that wait for a transaction to end
-- ARGV  1 epoch of our lease   2 group name   3 generation the caller saw
--       4 how many offsets may be left: -1 any, 0 only if there are none
-- Returns 1 gone (repeating is safe)   0 another coordinator has the slot   -1 it has gone on since
if redis.call('HGET', KEYS[1], 'epoch') ~= ARGV[1] then
  return 0
end
local known = redis.call('HGET', KEYS[3], 'generation')
if (known and tonumber(known) > tonumber(ARGV[3])) or (ARGV[4] == '0' and redis.call('EXISTS', KEYS[4], KEYS[5]) > 0) then
  return -1
end
redis.call('DEL', KEYS[3], KEYS[4], KEYS[5])
redis.call('SREM', KEYS[2], ARGV[2])
return 1
