-- with: record, stats, pool_ledger
-- Change how many places a pool has.
--
-- KEYS  1 pool
-- ARGV  1 epoch  2 capacity the caller believes in  3 new capacity
-- Returns {code, capacity that now holds}
--   ok      changed now, or by an earlier call       closed  no such pool
--   taken   more places than that are held or sold   fenced  wrong epoch, or the capacity is neither of the two: a late
--           repeat of an old change must not undo a newer one
local l, refusal = open_ledger(KEYS, ARGV[1])
if not l then return {refusal, 0} end
local was, wanted = whole(ARGV[2], 'the old capacity'), whole(ARGV[3], 'the new capacity')
if l.capacity == wanted then return {'ok', wanted} end
if l.capacity ~= was then return {'fenced', l.capacity} end
if l.held + l.sold > wanted then return {'taken', l.capacity} end
redis.call('HSET', KEYS[1], 'capacity', wanted, 'version', l.version + 1, 'updated_at', string.format('%d', l.now))
return {'ok', wanted}
