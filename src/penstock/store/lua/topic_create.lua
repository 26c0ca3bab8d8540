-- Claim a topic name. The partitions are made next; until then the topic is `creating`, and whoever finds it so
-- finishes the work.
--
-- KEYS  1 topic:<name>   2 topics   3 topic-ids   4 version
-- ARGV  1 name   2 topic id   3 partitions   4 configs JSON
-- Returns 1 claimed (or this id claimed it before: repeating is safe)   0 the name is taken
local id = redis.call('HGET', KEYS[1], 'id')
if id then
  return id == ARGV[2] and 1 or 0
end
redis.call('HSET', KEYS[1], 'id', ARGV[2], 'name', ARGV[1], 'partitions', ARGV[3], 'configs', ARGV[4], 'state', 'creating')
redis.call('SADD', KEYS[2], ARGV[1])
redis.call('HSET', KEYS[3], ARGV[2], ARGV[1])
redis.call('INCR', KEYS[4])
return 1
