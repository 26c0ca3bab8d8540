-- with: record, stats, seats, settlement
-- Settle claims of one subsection, a batch at a time: give seats back, or make them sold, or take sold ones back.
--
-- KEYS  1 seats_bf  2 section_config  3 section_stats  4 row_avail  5 seat_meta  6 holds  7 locks:exp
-- ARGV  1 epoch
--       2 msgpack: list of {verb, id, owner, why, seats | nil}
--         verb  release: reserved -> available     confirm: reserved -> sold
--               reopen:  sold -> available (a refund); `seats` may name a part of them
-- Returns msgpack: list of {code, runs, price}
--   ok         done now, or by an earlier call: repeating is safe
--   closed     no such subsection     fenced  wrong epoch     unknown  no such claim     not_owner  of somebody else
--   expired    the claim has ended, or its deadline has passed; its seats are not the caller's any more
--   sold       release of a claim that is sold: reopen is the verb for that
--   not_sold   reopen of a claim that is not sold
local config = redis.call('HMGET', KEYS[2], 'epoch', 'seats_per_row')
local requests = cmsgpack.unpack(ARGV[2])
local answers = {}
if config[1] ~= ARGV[1] then
  for i = 1, #requests do answers[i] = {config[1] and 'fenced' or 'closed', {}, 0} end
  return cmsgpack.pack(answers)
end

local ids, records = {}, {}
for i, q in ipairs(requests) do ids[i] = q[2] end
for i, text in ipairs(redis.call('HMGET', KEYS[6], unpack(ids))) do
  if text and not records[ids[i]] then records[ids[i]] = parse_record(text) end
end
local s = begin_settlement(KEYS, tonumber(config[2]))

local function release(q, r)
  if r.state == 'E' then return 'ok' end
  if r.state == 'S' then return 'sold' end
  move(s, q[2], runs_of_record(r), 1, 0)
  end_record(s, q[2], r, q[4])
  return 'ok'
end

local function confirm(q, r)
  if r.state == 'S' then return 'ok' end
  if r.state == 'E' or (r.deadline > 0 and s.now >= r.deadline) then return 'expired' end
  move(s, q[2], runs_of_record(r), 1, 2)
  if r.deadline > 0 then s.unindex[#s.unindex + 1] = q[2] end
  r.state, r.deadline = 'S', 0
  keep_record(s, q[2], r)
  return 'ok'
end

-- The record's runs that are asked for, and those that stay. Seats given back earlier are simply not there any more.
local function parted(r, asked)
  local wanted, going, staying = {}, {}, {}
  for _, seat in ipairs(asked) do wanted[seat] = true end
  local runs = runs_of_record(r)
  for i = 1, #runs, 2 do
    for seat = runs[i], runs[i] + runs[i + 1] - 1 do
      local list = wanted[seat] and going or staying
      local last = #list
      if last > 0 and list[last - 1] + list[last] == seat and seat % s.width ~= 0 then
        list[last] = list[last] + 1
      else
        list[last + 1], list[last + 2] = seat, 1
      end
    end
  end
  return going, staying
end

local function reopen(q, r)
  if r.state == 'E' then return r.note == q[4] and 'ok' or 'expired' end
  if r.state ~= 'S' then return 'not_sold' end
  local going, staying = runs_of_record(r), {}
  if q[5] then going, staying = parted(r, q[5]) end
  move(s, q[2], going, 2, 0)
  if #staying == 0 then
    end_record(s, q[2], r, q[4])
  else
    r.runs = runs_text(staying)
    keep_record(s, q[2], r)
  end
  return 'ok', going
end

local verbs = {release = release, confirm = confirm, reopen = reopen}
for i, q in ipairs(requests) do
  local r = records[q[2]]
  if not r then
    answers[i] = {'unknown', {}, 0}
  elseif r.owner ~= q[3] then
    answers[i] = {'not_owner', {}, 0}
  else
    local runs = runs_of_record(r)
    local code, moved = verbs[q[1]](q, r)
    answers[i] = {code, code == 'ok' and (moved or runs) or {}, tonumber(r.price)}
  end
end
write_settlement(s)
return cmsgpack.pack(answers)
