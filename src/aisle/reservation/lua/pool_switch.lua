-- Put one pool on sale, or take it off. Places that are held or sold stay so.
--
-- KEYS  1 pool
-- ARGV  1 epoch  2 open | closed  3 price, or empty to keep it: live claims keep the price they were made at
-- Returns  1 done   -1 no such pool   -2 the caller's epoch is not the pool's
--
-- The counters are not read: a pool that is damaged must still be closable.
local found = redis.call('HMGET', KEYS[1], 'epoch', 'state', 'price', 'version')
if not found[1] then return -1 end
if found[1] ~= ARGV[1] then return -2 end
local price = ARGV[3] ~= '' and ARGV[3] or found[3] or 0
if found[2] == ARGV[2] and found[3] == price then return 1 end
local t = redis.call('TIME')
redis.call('HSET', KEYS[1], 'state', ARGV[2], 'price', price, 'version', (tonumber(found[4]) or 0) + 1,
  'updated_at', string.format('%d', t[1] * 1000 + math.floor(t[2] / 1000)))
return 1
