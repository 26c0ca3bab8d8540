-- Say that every partition of a topic exists.
--
-- KEYS  1 topic:<name>   2 version
-- ARGV  1 topic id   2 partitions that were made
-- Returns 1 ready   0 another topic, or more partitions were asked for meanwhile
local topic = redis.call('HMGET', KEYS[1], 'id', 'partitions', 'state')
if topic[1] ~= ARGV[1] or topic[2] ~= ARGV[2] then
  return 0
end
if topic[3] ~= 'ready' then
  redis.call('HSET', KEYS[1], 'state', 'ready')
  redis.call('INCR', KEYS[2])
end
return 1
