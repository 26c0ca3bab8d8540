-- Change the configs or raise the partition count of a topic, if it is still what the caller saw.
--
-- KEYS  1 topic:<name>   2 version
-- ARGV  1 topic id   2 partitions seen   3 configs seen   4 partitions wanted   5 configs wanted
-- Returns 1 changed   0 no such topic   -1 somebody changed it first: look again
local topic = redis.call('HMGET', KEYS[1], 'id', 'partitions', 'configs')
if topic[1] ~= ARGV[1] then
  return 0
end
if topic[2] ~= ARGV[2] or topic[3] ~= ARGV[3] then
  return -1
end
redis.call('HSET', KEYS[1], 'partitions', ARGV[4], 'configs', ARGV[5])
if ARGV[2] ~= ARGV[4] then
  redis.call('HSET', KEYS[1], 'state', 'creating')
end
redis.call('INCR', KEYS[2])
return 1
