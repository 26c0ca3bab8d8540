-- Replace everything the store has of one subsection, in one step: after a crash it is the old one or the new one.
--
-- KEYS  1 seats_bf  2 section_config  3 section_stats  4 row_avail  5 seat_meta  6 holds  7 locks:exp
-- ARGV  1 the epoch that fence.lua gave it, or empty if there was none: another rebuild in between is not overwritten
--       2 map  3 walls: 3 where a seat is accessible, or empty
--       4 msgpack: {config, stats, rows, owners, records: flat lists of field, value; index: flat list of score, member}
-- Returns  1 replaced   -1 the subsection is not in that epoch: nothing was written
local found = redis.pcall('HGET', KEYS[2], 'epoch')
if (type(found) == 'string' and found or '') ~= ARGV[1] then return -1 end
local version = redis.pcall('HGET', KEYS[3], 'version')
version = type(version) == 'string' and tonumber(version) or 0
local priced = redis.pcall('HGET', KEYS[2], 'priced')
local new = cmsgpack.unpack(ARGV[4])

local function write(command, key, list)
  for i = 1, #list, 2000 do redis.call(command, key, unpack(list, i, math.min(i + 1999, #list))) end
end

local t = redis.call('TIME')
redis.call('DEL', unpack(KEYS))
redis.call('SET', KEYS[1], ARGV[2])
write('HSET', KEYS[2], new[1])
-- The facts have the newest price; an older one that is still on its way must not replace it.
if type(priced) == 'string' then redis.call('HSET', KEYS[2], 'priced', priced) end
redis.call('HSET', KEYS[2], 'accessible', ARGV[3])
write('HSET', KEYS[3], new[2])
-- Readers of the map compare versions, so it must not go back.
redis.call('HSET', KEYS[3], 'version', version + 1, 'updated_at', string.format('%d', t[1] * 1000 + math.floor(t[2] / 1000)))
write('HSET', KEYS[4], new[3])
write('HSET', KEYS[5], new[4])
write('HSET', KEYS[6], new[5])
write('ZADD', KEYS[7], new[6])
return 1
