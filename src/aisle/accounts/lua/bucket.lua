-- Take one token from a bucket that holds `capacity` and gets one back every `interval`.
--
-- KEYS  1 bucket: string, the moment (ms, store clock) at which the bucket will be full again; absent = full
-- ARGV  1 capacity in tokens   2 interval in ms per token, above 0
-- Returns 0 taken, or the ms until a token is there; a refusal takes nothing.
local time = redis.call('TIME')
local now = time[1] * 1000 + time[2] / 1000
local capacity, interval = tonumber(ARGV[1]), tonumber(ARGV[2])
local full_at = math.max(now, tonumber(redis.call('GET', KEYS[1]) or now)) + interval
local wait = full_at - now - capacity * interval
if wait > 0 then
  return math.ceil(wait)
end
redis.call('SET', KEYS[1], string.format('%.3f', full_at), 'PX', string.format('%.0f', math.ceil(full_at - now)))
return 0
