-- with: record, stats, pool_ledger
-- Settle claims of one pool, a batch at a time: give places back, or make them sold, or take sold ones back.
--
-- KEYS  1 pool  2 pool_holds  3 locks:exp
-- ARGV  1 epoch
--       2 msgpack: list of {verb, id, owner, why, operation, quantity | nil}
--         verb  release: held -> free     confirm: held -> sold
--               reopen:  sold -> free (a refund); `quantity` may name a part of them, and then `operation` makes it
--               repeatable: places have no names by which a second call could see that they are gone
-- Returns msgpack: list of {code, quantity, price}
--   ok         done now, or by an earlier call: repeating is safe; quantity is what that call moved
--   closed     no such pool     fenced  wrong epoch     unknown  no such claim     not_owner  of somebody else
--   expired    the claim has ended, or its deadline has passed; its places are not the caller's any more
--   sold       release of a claim that is sold: reopen is the verb for that
--   not_sold   reopen of a claim that is not sold, or of more places than are left of it
local requests = cmsgpack.unpack(ARGV[2])
local answers = {}
local l, refusal = open_ledger(KEYS, ARGV[1])
if not l then
  for i = 1, #requests do answers[i] = {refusal, 0, 0} end
  return cmsgpack.pack(answers)
end

local ids, buyers = {}, {}
for i, q in ipairs(requests) do ids[i], buyers[i] = q[2], q[3] end
load_records(l, ids)
load_pointers(l, buyers)

local function release(q, r)
  if r.state == 'S' then return 'sold', 0 end
  -- A hold that became a booking gave nothing back; the booking has its places.
  if r.state == 'E' then return 'ok', string.find(r.note, '^converted ') and 0 or r.places end
  l.held = l.held - r.places
  end_record(l, q[2], r, q[4])
  return 'ok', r.places
end

local function confirm(q, r)
  if r.state == 'S' then return 'ok', r.places end
  if r.state == 'E' or overdue(l, r) then return 'expired', 0 end
  l.held, l.sold = l.held - r.places, l.sold + r.places
  if r.deadline > 0 then drop_hold(l, q[2], r) end
  r.state, r.deadline, r.note = 'S', 0, ''
  keep_record(l, q[2], r)
  return 'ok', r.places
end

-- How many places an earlier call of this part refund took back, or nil.
local function refunded(r, operation)
  local _, last = string.find(r.note, ' ' .. operation .. '+', 1, true)
  return last and tonumber(string.match(r.note, '^%d+', last + 1))
end

local function reopen_part(q, r)
  local earlier = refunded(r, q[5])
  if earlier then return 'ok', earlier end
  if r.state == 'E' then return 'expired', 0 end
  if r.state ~= 'S' or r.places < q[6] then return 'not_sold', 0 end
  l.sold = l.sold - q[6]
  local note = r.note .. ' ' .. q[5] .. '+' .. q[6]
  if r.places == q[6] then
    end_record(l, q[2], r, q[4] .. note)
  else
    r.places, r.note = r.places - q[6], note
    keep_record(l, q[2], r)
  end
  return 'ok', q[6]
end

local function reopen(q, r)
  if q[6] then return reopen_part(q, r) end
  if r.state == 'E' then
    if string.match(r.note, '^[^ ]*') == q[4] then return 'ok', r.places end
    return 'expired', 0
  end
  if r.state ~= 'S' then return 'not_sold', 0 end
  l.sold = l.sold - r.places
  end_record(l, q[2], r, q[4] .. r.note)
  return 'ok', r.places
end

local verbs = {release = release, confirm = confirm, reopen = reopen}
for i, q in ipairs(requests) do
  local r = l.records[q[2]]
  if not r then
    answers[i] = {'unknown', 0, 0}
  elseif r.owner ~= q[3] then
    answers[i] = {'not_owner', 0, 0}
  else
    local code, places = verbs[q[1]](q, r)
    answers[i] = {code, places, tonumber(r.price)}
  end
end
write_ledger(l)
return cmsgpack.pack(answers)
