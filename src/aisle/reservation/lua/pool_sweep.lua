-- with: record, stats, pool_ledger
-- Release the holds of one pool whose deadline has passed, and forget claims that ended a day ago.
--
-- KEYS  1 pool  2 pool_holds  3 locks:exp  4 lapsed
-- ARGV  1 how many at most
-- Returns msgpack: {list of {id, owner, {0, quantity}} released now, forgotten, 1 if more may be due, entries left}
--   as sweep.lua answers for seats, a first seat and a length, so that one sweeper drives both
--
-- Any number of sweepers may run: each decides and acts in this one step, by the store's own clock, so nothing is released
-- early or twice. A hold that was extended, converted or released meanwhile is seen as it is now, not as it was indexed.
local l = read_pool(KEYS)
if not l then return cmsgpack.pack({{}, 0, 0, 0}) end
local due = redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', string.format('%d', l.now), 'LIMIT', 0, ARGV[1])
if #due == 0 then return cmsgpack.pack({{}, 0, 0, redis.call('ZCARD', KEYS[3])}) end

load_records(l, due)
local buyers = {}
for _, id in ipairs(due) do
  if l.records[id] then buyers[#buyers + 1] = l.records[id].owner end
end
load_pointers(l, buyers)

local released, lapsed, forgotten = {}, {}, 0
redis.call('ZCARD', KEYS[4])
for _, id in ipairs(due) do
  local r = l.records[id]
  if not r then
    -- An entry without a record holds nothing. It is put off, not dropped: `aisle verify` shows it to an operator.
    l.index[id] = l.now + KEEP_ENDED_MS
  elseif r.state == 'E' then
    l.forgotten[#l.forgotten + 1], l.index[id] = id, false
    forgotten = forgotten + 1
  elseif overdue(l, r) then
    l.held = l.held - r.places
    end_record(l, id, r, 'expired')
    lapsed[#lapsed + 1] = string.format('%d', r.deadline)
    lapsed[#lapsed + 1] = id .. '|' .. r.owner
    released[#released + 1] = {id, r.owner, {0, r.places}}
  elseif r.state == 'L' and r.deadline > 0 then
    l.index[id] = r.deadline
  else
    l.index[id] = false
  end
end
write_ledger(l)
in_chunks('ZADD', KEYS[4], lapsed)
return cmsgpack.pack({released, forgotten, #due == tonumber(ARGV[1]) and 1 or 0, redis.call('ZCARD', KEYS[3])})
