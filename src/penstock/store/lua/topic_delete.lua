-- Take a topic out of the catalogue and note that its partitions must go.
--
-- KEYS  1 topic:<name>   2 topics   3 topic-ids   4 deleting   5 version
-- ARGV  1 name   2 topic id
-- Returns 1 taken out   0 no such topic (or the name belongs to another topic by now)
local topic = redis.call('HMGET', KEYS[1], 'id', 'partitions')
if topic[1] ~= ARGV[2] then
  return 0
end
redis.call('HSET', KEYS[4], ARGV[2], topic[2] .. ' ' .. ARGV[1])
redis.call('DEL', KEYS[1])
redis.call('SREM', KEYS[2], ARGV[1])
redis.call('HDEL', KEYS[3], ARGV[2])
redis.call('INCR', KEYS[5])
return 1
