-- Move the beginning of a log forward and drop the batches that lie wholly before it.
--
-- KEYS  1 log   2 m   3 abt   4 tidx     (one partition)
-- ARGV  1 topic id   2 new log start (-1: the end of the log)   3 greatest timestamp of the batch there, or ''
--       4 how many index points to drop at most
-- Returns {code, log start}
--   0 done, or was already there: repeating is safe       1 beyond the end of the log       3 no such partition
--
-- The start is moved before anything is dropped, so a reader never finds a hole where the log says it begins.
local m = redis.call('HMGET', KEYS[2], 'id', 'leo', 'log_start')
if m[1] ~= ARGV[1] then
  return {3, -1}
end
local leo, log_start, wanted = tonumber(m[2]), tonumber(m[3]), tonumber(ARGV[2])
if wanted == -1 then
  wanted = leo
end
if wanted > leo then
  return {1, log_start}
end
if wanted <= log_start then
  return {0, log_start}
end
local start = string.format('%.0f', wanted)
redis.call('HSET', KEYS[2], 'log_start', start)
local dropped = redis.call('XREVRANGE', KEYS[1], start .. '-0', '-', 'COUNT', 1)
if dropped[1] then
  redis.call('HSET', KEYS[2], 'trimmed', string.match(dropped[1][1], '%-(%d+)$'))
  redis.call('XTRIM', KEYS[1], 'MINID', '=', start .. '-0')
end
redis.call('ZREMRANGEBYSCORE', KEYS[3], '-inf', '(' .. start)
for _ = 1, tonumber(ARGV[4]) do
  local point = redis.call('ZRANGE', KEYS[4], 0, 0)
  if not point[1] or tonumber(point[1]) >= wanted then
    break
  end
  redis.call('ZREM', KEYS[4], point[1])
end
if wanted == leo then
  redis.call('HDEL', KEYS[2], 'tidx_bytes') -- the next batch is the first again and gets an index point
end
if ARGV[3] ~= '' then
  redis.call('ZADD', KEYS[4], ARGV[3], start)
end
return {0, wanted}
