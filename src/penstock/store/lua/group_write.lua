-- Keep a group's state, if we are still its coordinator.
--
-- KEYS  1 lease   2 groups   3 group
-- ARGV  1 epoch of our lease   2 group name   3 generation   4.. field, value pairs
-- Returns 1 written (repeating is safe)   0 another coordinator has the slot   -1 a later generation is stored
if redis.call('HGET', KEYS[1], 'epoch') ~= ARGV[1] then
  return 0
end
local known = redis.call('HGET', KEYS[3], 'generation')
if known and tonumber(known) > tonumber(ARGV[3]) then
  return -1
end
redis.call('HSET', KEYS[3], 'generation', ARGV[3], unpack(ARGV, 4))
redis.call('SADD', KEYS[2], ARGV[2])
return 1
