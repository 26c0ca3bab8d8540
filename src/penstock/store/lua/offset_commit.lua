-- Commit offsets of one group, all or none, if we are still its coordinator.
--
-- KEYS  1 lease   2 groups   3 offsets
-- ARGV  1 epoch of our lease   2 group name   3.. field, value pairs
-- Returns 1 committed (repeating is safe)   0 another coordinator has the slot
if redis.call('HGET', KEYS[1], 'epoch') ~= ARGV[1] then
  return 0
end
for i = 3, #ARGV, 2 do
  redis.call('HSET', KEYS[3], ARGV[i], ARGV[i + 1])
end
redis.call('SADD', KEYS[2], ARGV[2])
return 1
