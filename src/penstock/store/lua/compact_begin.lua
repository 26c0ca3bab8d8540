-- Begin to rewrite a log: the newest beginning wins, an older rewrite can no longer be swapped in.
--
-- KEYS  1 m   2 new     (one partition)
-- ARGV  1 topic id   2 run: a random word
-- Returns 1 begun   0 no such partition of this topic
if redis.call('HGET', KEYS[1], 'id') ~= ARGV[1] then
  return 0
end
redis.call('DEL', KEYS[2])
redis.call('HSET', KEYS[1], 'compacting', ARGV[2])
return 1
