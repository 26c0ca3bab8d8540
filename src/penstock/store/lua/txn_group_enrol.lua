-- Let a producer's transaction commit offsets of a group.
--
-- KEYS  1 gtxn     (one group)
-- ARGV  1 producer id   2 producer epoch   3 transaction number   4 now ms
-- Returns 1 enrolled (repeating is safe)   0 that transaction has ended here, or a later one has begun
local seen, state = string.match(redis.call('HGET', KEYS[1], ARGV[1]) or '', '^(%d+) %d+ (%w+)$')
if seen and tonumber(seen) > tonumber(ARGV[3]) then
  return 0
end
if seen and tonumber(seen) == tonumber(ARGV[3]) and state == 'ended' then
  return 0
end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3] .. ' ' .. ARGV[4] .. ' ' .. ARGV[2])
redis.call('PEXPIRE', KEYS[1], 172800000)
return 1
