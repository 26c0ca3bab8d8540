-- with: record, stats, pool_ledger
-- Turn live holds of one pool into one booking, without letting go of a place: the store's deadline ends here.
--
-- KEYS  1 pool  2 pool_holds  3 locks:exp
-- ARGV  1 epoch  2 booking id  3 owner  4 msgpack: list of different hold ids
-- Returns msgpack: {code, quantity, price}
--   ok         converted now, or by an earlier call with this booking id
--   closed  fenced  unknown  not_owner  expired  as in pool_settle.lua, if it holds for any of them: all or none
--   taken      the booking id belongs to another claim: to a hold, or to a booking while a named hold is still live
local function answer(code, places, price) return cmsgpack.pack({code, places or 0, tonumber(price or 0)}) end

local l, refusal = open_ledger(KEYS, ARGV[1])
if not l then return answer(refusal) end
local booking, owner, ids = ARGV[2], ARGV[3], cmsgpack.unpack(ARGV[4])
load_records(l, {booking})
load_records(l, ids)
load_pointers(l, {owner})

local done = l.records[booking]
if done then
  if done.owner ~= owner then return answer('not_owner') end
  if done.kind ~= 'b' then return answer('taken') end
  for _, id in ipairs(ids) do
    if l.records[id] and l.records[id].state == 'L' then return answer('taken') end
  end
  if done.state == 'E' then return answer('expired') end
  return answer('ok', done.places, done.price)
end

local places, price = 0, nil
for _, id in ipairs(ids) do
  local r = l.records[id]
  if not r or r.kind ~= 'h' then return answer('unknown') end
  if r.owner ~= owner then return answer('not_owner') end
  if r.state ~= 'L' or overdue(l, r) then return answer('expired') end
  -- Holds of one cart may have been taken at two prices; the record keeps the latest, the cart keeps each.
  places, price = places + r.places, r.price
end
for _, id in ipairs(ids) do end_record(l, id, l.records[id], 'converted ' .. booking) end
keep_record(l, booking, {state = 'L', kind = 'b', owner = owner, price = price, taken = string.format('%d', l.now),
  deadline = 0, how = 0, note = '', places = places})
write_ledger(l)
return answer('ok', places, price)
