-- Take one subsection or pool that was found to be right into a new epoch, as it is: what was sent in the old one is refused.
--
-- KEYS  1 section_config or pool
-- ARGV  1 the epoch in which it was compared  2 the new epoch
-- Returns  1 done   -1 it is not in that epoch: somebody else has changed it since
if redis.call('HGET', KEYS[1], 'epoch') ~= ARGV[1] then return -1 end
redis.call('HSET', KEYS[1], 'epoch', ARGV[2])
return 1
