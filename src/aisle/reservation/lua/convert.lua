-- with: record, stats, seats, settlement
-- Turn live holds of one subsection into one booking, without letting go of a seat: the store's deadline ends here.
--
-- KEYS  1 seats_bf  2 section_config  3 section_stats  4 row_avail  5 seat_meta  6 holds  7 locks:exp
-- ARGV  1 epoch  2 booking id  3 owner  4 msgpack: list of hold ids
-- Returns msgpack: {code, runs, price}
--   ok         converted now, or by an earlier call with this booking id
--   closed  fenced  unknown  not_owner  expired  as in settle.lua, if it holds for any of them: all or none
local config = redis.call('HMGET', KEYS[2], 'epoch', 'seats_per_row')
if not config[1] then return cmsgpack.pack({'closed', {}, 0}) end
if config[1] ~= ARGV[1] then return cmsgpack.pack({'fenced', {}, 0}) end
local booking, owner, ids = ARGV[2], ARGV[3], cmsgpack.unpack(ARGV[4])

local done = redis.call('HGET', KEYS[6], booking)
if done then
  local r = parse_record(done)
  -- A hold under the booking's id would answer ok and still run out.
  if r.owner ~= owner or r.kind ~= 'b' then return cmsgpack.pack({'not_owner', {}, 0}) end
  if r.state == 'E' then return cmsgpack.pack({'expired', {}, 0}) end
  return cmsgpack.pack({'ok', runs_of_record(r), tonumber(r.price)})
end

local s = begin_settlement(KEYS, tonumber(config[2]))
local held, list = {}, {}
for i, text in ipairs(redis.call('HMGET', KEYS[6], unpack(ids))) do
  if not text then return cmsgpack.pack({'unknown', {}, 0}) end
  local r = parse_record(text)
  if r.kind ~= 'h' then return cmsgpack.pack({'unknown', {}, 0}) end
  if r.owner ~= owner then return cmsgpack.pack({'not_owner', {}, 0}) end
  if r.state ~= 'L' or (r.deadline > 0 and s.now >= r.deadline) then return cmsgpack.pack({'expired', {}, 0}) end
  held[i] = r
end
local price, first, names = nil, nil, {}
for i, r in ipairs(held) do
  local runs = runs_of_record(r)
  each_seat(s, ids[i], runs, names)
  for n = 1, #runs, 2 do list[#list + 1] = {runs[n], runs[n + 1]} end
  -- Holds of one cart may have been taken at two prices; the record keeps that of the first seat, the tickets keep each.
  if not first or runs[1] < first then price, first = r.price, runs[1] end
  end_record(s, ids[i], r, 'converted ' .. booking)
end
table.sort(list, function(a, b) return a[1] < b[1] end)
local runs = {}
for n, run in ipairs(list) do runs[2 * n - 1], runs[2 * n] = run[1], run[2] end
for _, name in ipairs(names) do
  s.renamed[#s.renamed + 1] = name
  s.renamed[#s.renamed + 1] = booking
end
keep_record(s, booking, {state = 'L', kind = 'b', owner = owner, price = price, taken = string.format('%d', s.now),
  deadline = 0, how = 0, note = '', runs = runs_text(runs)})
write_settlement(s)
return cmsgpack.pack({'ok', runs, tonumber(price)})
