-- End a transaction in one partition: write its marker if it wrote anything, and let nothing more of it in.
--
-- KEYS  1 log   2 m   3 pid   4 open   5 txn   6 abt     (one partition)
-- ARGV  1 topic id   2 producer id   3 producer epoch   4 transaction number   5 commit: 1 | 0
--       6 control batch   7 now ms   8 channel or ''   9 what to say on it
-- Returns 1 marked   0 nothing to mark, or marked before: repeating is safe   3 no such partition of this topic
--
-- The number tells a marker that comes late from one for the transaction that is open now. A greater epoch than the
-- partition knows shuts the older instance of the producer out.
local m = redis.call('HMGET', KEYS[2], 'id', 'leo', 'bytes', 'max_ts')
if m[1] ~= ARGV[1] then
  return 3
end
local pid, number = ARGV[2], ARGV[2] .. ':n'
local seen = string.match(redis.call('HGET', KEYS[5], number) or '', '^(%d+)')
if seen and tonumber(seen) > tonumber(ARGV[4]) then
  return 0
end
redis.call('HDEL', KEYS[5], pid)
redis.call('HSET', KEYS[5], number, ARGV[4] .. ' ' .. ARGV[7])
local known = string.match(redis.call('HGET', KEYS[3], pid) or '', '^(%-?%d+)')
if known and tonumber(known) < tonumber(ARGV[3]) then
  redis.call('HSET', KEYS[3], pid, ARGV[3] .. ' ' .. ARGV[7])
end
local first = redis.call('ZSCORE', KEYS[4], pid)
if not first then
  return 0
end
local bytes = string.format('%.0f', tonumber(m[3]) + #ARGV[6])
redis.call('XADD', KEYS[1], m[2] .. '-' .. bytes, 'b', ARGV[6])
redis.call('HSET', KEYS[2], 'leo', string.format('%.0f', tonumber(m[2]) + 1), 'bytes', bytes)
if not m[4] or tonumber(ARGV[7]) > tonumber(m[4]) then
  redis.call('HSET', KEYS[2], 'max_ts', ARGV[7], 'max_ts_at', m[2])
end
redis.call('ZREM', KEYS[4], pid)
if ARGV[5] == '0' then
  redis.call('ZADD', KEYS[6], m[2], string.format('%s %.0f %s', pid, tonumber(first), m[2]))
end
if ARGV[8] ~= '' then
  redis.call('PUBLISH', ARGV[8], ARGV[9])
end
return 1
