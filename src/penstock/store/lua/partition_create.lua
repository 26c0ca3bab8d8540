-- Make an empty partition, clearing what an older topic of the same name may have left.
--
-- KEYS  1 log   2 m   3 pid   4 open   5 txn   6 abt   7 tidx   8 moved   9 new     (one partition)
-- ARGV  1 topic id
-- Returns 1 made   0 was there: repeating is safe
if redis.call('HGET', KEYS[2], 'id') == ARGV[1] then
  return 0
end
redis.call('DEL', unpack(KEYS))
redis.call('HSET', KEYS[2], 'id', ARGV[1], 'leo', '0', 'bytes', '0', 'log_start', '0')
return 1
