-- Remove a partition of a deleted topic. A new topic of the same name has another id and is left alone.
--
-- KEYS  1 log   2 m   3 pid   4 open   5 txn   6 abt   7 tidx   8 moved   9 new     (one partition)
-- ARGV  1 topic id
-- Returns 1 removed   0 not this topic's
if redis.call('HGET', KEYS[2], 'id') ~= ARGV[1] then
  return 0
end
redis.call('DEL', unpack(KEYS))
return 1
