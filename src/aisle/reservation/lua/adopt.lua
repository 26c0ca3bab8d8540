-- Write down where a party is about to be seated, unless somebody has written down something else meanwhile.
--
-- KEYS  1 hall_plan
-- ARGV  1 the plan the caller knows of, or empty  2 its new plan  3 how long to remember it, in ms
-- Returns the plan that now stands: the caller's own, or another one that the caller has to follow
local found = redis.call('GET', KEYS[1]) or ''
if found ~= ARGV[1] and found ~= ARGV[2] then return found end
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
return ARGV[2]
