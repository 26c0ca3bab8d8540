-- Keep a copy of an event, unless the event was changed since the caller looked for one and then read the database.
--
-- KEYS  1 copy of the event
-- ARGV  1 what was found in its place, or empty  2 the copy  3 how long to keep it, in ms
-- Returns 1 if the copy is kept, 0 if something else was there
if (redis.call('GET', KEYS[1]) or '') ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
return 1
