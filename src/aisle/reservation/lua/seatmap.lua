-- The seats of one subsection with the version they have, read together.
--
-- KEYS  1 seats_bf  2 section_stats
-- Returns {map, version}, or {} if there is no such subsection
local map, version = redis.call('GET', KEYS[1]), redis.call('HGET', KEYS[2], 'version')
if not map or not version then return {} end
return {map, version}
