-- Let a producer's transaction write to a partition.
--
-- KEYS  1 m   2 txn     (one partition)
-- ARGV  1 topic id   2 producer id   3 producer epoch   4 transaction number   5 now ms
-- Returns 1 enrolled (repeating is safe)   0 that transaction has ended here, or a later one has begun
--         3 no such partition of this topic
if redis.call('HGET', KEYS[1], 'id') ~= ARGV[1] then
  return 3
end
local seen = string.match(redis.call('HGET', KEYS[2], ARGV[2] .. ':n') or '', '^(%d+)')
local enrolled = redis.call('HGET', KEYS[2], ARGV[2])
if seen and tonumber(seen) > tonumber(ARGV[4]) then
  return 0
end
if seen and tonumber(seen) == tonumber(ARGV[4]) and not enrolled then
  return 0
end
redis.call('HSET', KEYS[2], ARGV[2], ARGV[3], ARGV[2] .. ':n', ARGV[4] .. ' ' .. ARGV[5])
return 1
