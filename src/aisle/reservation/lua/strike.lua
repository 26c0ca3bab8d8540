-- Strike places off the sweepers' list that had no hold left when they were visited.
--
-- KEYS  1 holding
-- ARGV  1 how long a place must have been quiet, in ms; then pairs: place, the score it had when it was visited
-- Returns how many were struck off
--
-- A hold announced after the visit has given the place a new score: it stays. The quiet time covers a claim that was
-- announced before the visit and has not reached the store yet.
local t = redis.call('TIME')
local quiet_since = t[1] * 1000 + math.floor(t[2] / 1000) - tonumber(ARGV[1])
local struck = 0
for i = 2, #ARGV, 2 do
  local score = redis.call('ZSCORE', KEYS[1], ARGV[i])
  if score and tonumber(score) == tonumber(ARGV[i + 1]) and tonumber(score) <= quiet_since then
    struck = struck + redis.call('ZREM', KEYS[1], ARGV[i])
  end
end
return struck
