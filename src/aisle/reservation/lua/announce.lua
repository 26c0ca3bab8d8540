-- Put places on the sweepers' list, before a hold is taken there.
--
-- KEYS  1 holding
-- ARGV  places
-- The time is the store's own: a process with a slow clock must not look as if it had announced long ago.
local t = redis.call('TIME')
local now = string.format('%d', t[1] * 1000 + math.floor(t[2] / 1000))
for _, place in ipairs(ARGV) do redis.call('ZADD', KEYS[1], now, place) end
return #ARGV
