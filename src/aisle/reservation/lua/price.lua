-- Another price for one subsection or pool, for claims made from now on. Live claims and sold ones keep theirs.
--
-- KEYS  1 section_config or pool
-- ARGV  1 price  2 revision: grows with every change, so that an older one that comes late changes nothing
-- Returns  1 set now, or by an earlier call   0 a newer price is set   -1 no such subsection or pool
--
-- No epoch: a price is not part of what a rebuild fences, and must not be lost by one.
local found = redis.call('HMGET', KEYS[1], 'epoch', 'priced')
if not found[1] then return -1 end
local set = tonumber(found[2] or 0)
if set > tonumber(ARGV[2]) then return 0 end
redis.call('HSET', KEYS[1], 'price', ARGV[1], 'priced', ARGV[2])
return 1
