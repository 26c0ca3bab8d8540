-- with: record, stats, pool_ledger
-- Take places in one pool for a batch of bookings or holds, decided in the order given.
--
-- KEYS  1 pool  2 pool_holds  3 locks:exp
-- ARGV  1 epoch the caller believes in
--       2 msgpack: list of {id, owner, kind b|h, quantity, partial 0|1, hold ms, until ms: a hold's deadline, or 0 for
--         hold ms from now}
-- Returns msgpack: list of {code, quantity, deadline ms, price, taken ms}, in the order asked
--   ok         taken now, or by an earlier call with the same id: repeating is safe
--   closed     no such pool, or not on sale           fenced    the caller's epoch is not the pool's
--   full       no place is left                       no_block  some are, fewer than asked, and partial was not allowed
--   limit      more places than one claim may take    expired   the id was used before and has ended or is overdue, or
--                                                              the deadline has passed already
--   not_owner  the id belongs to somebody else        already_holding  this buyer has a live hold under another id
-- A refusal is not remembered: it changed nothing, and the same call may succeed later.
local requests = cmsgpack.unpack(ARGV[2])
local answers = {}
local l, refusal = open_ledger(KEYS, ARGV[1])
if not l then
  for i = 1, #requests do answers[i] = {refusal, 0, 0, 0, 0} end
  return cmsgpack.pack(answers)
end

local ids, buyers = {}, {}
for i, q in ipairs(requests) do
  ids[i] = q[1]
  if q[3] == 'h' then buyers[#buyers + 1] = q[2] end
end
load_records(l, ids)
load_pointers(l, buyers)

local function again(q, r)
  if r.owner ~= q[2] then return {'not_owner', 0, 0, 0, 0} end
  if r.state == 'E' or overdue(l, r) then return {'expired', 0, 0, 0, 0} end
  return {'ok', r.places, r.deadline, tonumber(r.price), tonumber(r.taken)}
end

-- An overdue hold that no sweeper has met yet does not count: it cannot come back to life, and the sweep gives its places
-- back under its own id, whatever this buyer holds by then.
local function already_holding(q)
  if not l.one_per_buyer or q[3] ~= 'h' then return false end
  local r = l.records[l.pointers['@' .. q[2]]]
  return r and r.state == 'L' and not overdue(l, r)
end

local function take(q, places)
  local deadline = 0
  if q[3] == 'h' then
    deadline = q[7] > 0 and q[7] or l.now + q[6]
    l.index[q[1]] = deadline
    if l.one_per_buyer then point(l, q[2], q[1]) end
  end
  l.held = l.held + places
  keep_record(l, q[1], {state = 'L', kind = q[3], owner = q[2], price = l.price, taken = string.format('%d', l.now),
    deadline = deadline, how = places < q[4] and 4 or 0, note = '', places = places})
  return {'ok', places, deadline, tonumber(l.price), l.now}
end

local function answer(q)
  local known = l.records[q[1]]
  if known then return again(q, known) end
  if not l.on_sale then return {'closed', 0, 0, 0, 0} end
  if q[7] > 0 and l.now >= q[7] then return {'expired', 0, 0, 0, 0} end
  if q[4] > l.limit then return {'limit', 0, 0, 0, 0} end
  if already_holding(q) then return {'already_holding', 0, 0, 0, 0} end
  local left = l.capacity - l.held - l.sold
  if left <= 0 then return {'full', 0, 0, 0, 0} end
  if left < q[4] and q[5] ~= 1 then return {'no_block', 0, 0, 0, 0} end
  return take(q, math.min(left, q[4]))
end

for i, q in ipairs(requests) do answers[i] = answer(q) end
write_ledger(l)
return cmsgpack.pack(answers)
