-- Replace everything the store has of one pool, in one step: after a crash it is the old one or the new one.
--
-- KEYS  1 pool  2 pool_holds  3 locks:exp
-- ARGV  1 the epoch that fence.lua gave it, or empty if there was none: another rebuild in between is not overwritten
--       2 msgpack: {pool, records and pointers: flat lists of field, value; index: flat list of score, member}
-- Returns  1 replaced   -1 the pool is not in that epoch: nothing was written
local found = redis.pcall('HGET', KEYS[1], 'epoch')
if (type(found) == 'string' and found or '') ~= ARGV[1] then return -1 end
local version = redis.pcall('HGET', KEYS[1], 'version')
version = type(version) == 'string' and tonumber(version) or 0
local priced = redis.pcall('HGET', KEYS[1], 'priced')
local new = cmsgpack.unpack(ARGV[2])

local function write(command, key, list)
  for i = 1, #list, 2000 do redis.call(command, key, unpack(list, i, math.min(i + 1999, #list))) end
end

local t = redis.call('TIME')
redis.call('DEL', unpack(KEYS))
write('HSET', KEYS[1], new[1])
-- The facts have the newest price; an older one that is still on its way must not replace it.
if type(priced) == 'string' then redis.call('HSET', KEYS[1], 'priced', priced) end
-- Readers compare versions, so it must not go back.
redis.call('HSET', KEYS[1], 'version', version + 1, 'updated_at', string.format('%d', t[1] * 1000 + math.floor(t[2] / 1000)))
write('HSET', KEYS[2], new[2])
write('ZADD', KEYS[3], new[3])
return 1
