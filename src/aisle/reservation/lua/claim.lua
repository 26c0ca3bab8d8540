-- with: record, seats, choice
-- Take seats in one subsection for a batch of bookings or holds: choose and take in one step.
--
-- KEYS  1 seats_bf  2 section_config  3 section_stats  4 row_avail  5 seat_meta  6 holds  7 locks:exp
-- ARGV  1 epoch the caller believes in
--       2 msgpack: list of {id, owner, kind b|h, size, accessible, partial 0|1, worst rung 1-3, hold ms, named seats | nil,
--         until ms: a hold's deadline, or 0 for hold ms from now}
-- Returns msgpack: list of {code, how, deadline ms, price, taken ms, runs}, in the order asked
--   ok         taken now, or by an earlier call with the same id: repeating is safe
--   closed     no such subsection, or not on sale          fenced    the caller's epoch is not the subsection's
--   sold_out   no usable seat at all                       no_block  some, but not for this party
--   taken      a named seat is not available (runs: which) kept      a named seat is for people who need an accessible one
--   limit      more seats than one claim may take          expired   the id was used before and has ended (unless undone),
--                                                                   or the deadline has passed already
--   not_owner  the id belongs to somebody else             unknown   a named seat does not exist
-- A refusal is not remembered: it changed nothing, and the same call may succeed later.
local config = redis.call('HMGET', KEYS[2], 'epoch', 'state', 'rows', 'seats_per_row', 'price', 'limit', 'accessible')
local requests = cmsgpack.unpack(ARGV[2])
local answers = {}
local refused = not config[1] and 'closed' or config[1] ~= ARGV[1] and 'fenced'
if refused then
  for i = 1, #requests do answers[i] = {refused, 0, 0, 0, 0, {}} end
  return cmsgpack.pack(answers)
end

local ids = {}
for i, q in ipairs(requests) do ids[i] = q[1] end
local known = redis.call('HMGET', KEYS[6], unpack(ids))
local stats = read_stats(KEYS[3])
local map = redis.call('GET', KEYS[1])
local width, now = tonumber(config[4]), now_ms()
local seats = tonumber(config[3]) * width
if not map or #map ~= math.ceil(seats / 4) then error({err = 'DRIFT seats_bf does not fit section_config'}) end

-- What the functions below share: the subsection as the batch has changed it so far, and what is to be written.
local s = {
  map = map, width = width, seats = seats, walls = config[7] or '', on_sale = config[2] == 'open',
  limit = tonumber(config[6]), price = config[5], available = stats.available, now = now, taken = string.format('%d', now),
  low = #map, high = -1, by_row = {}, meta = {}, records = {}, deadlines = {}, undone = {}, done = {},
}

local function take(i, how, runs)
  local q, text, meta = requests[i], {}, s.meta
  for r = 1, #runs, 2 do
    local first, length = runs[r], runs[r + 1]
    local low, high
    s.map, low, high = set_run(s.map, first, length, 0, 1)
    s.low, s.high = math.min(s.low, low), math.max(s.high, high)
    local row = math.floor(first / s.width) + 1
    s.by_row[row] = (s.by_row[row] or 0) + length
    s.available = s.available - length
    local name = row .. '-'
    for seat = first % s.width + 1, first % s.width + length do
      meta[#meta + 1] = name .. seat
      meta[#meta + 1] = q[1]
    end
    text[#text + 1] = first .. '+' .. length
  end
  local deadline, deadline_text = 0, '0'
  if q[3] == 'h' then
    deadline = q[10] > 0 and q[10] or s.now + q[8]
    deadline_text = string.format('%d', deadline)
    s.deadlines[#s.deadlines + 1] = deadline_text
    s.deadlines[#s.deadlines + 1] = q[1]
  end
  s.records[#s.records + 1] = q[1]
  -- A record as in record.lua, put together here because a table for each would cost more than the text.
  s.records[#s.records + 1] = 'L|' .. q[3] .. '|' .. q[2] .. '|' .. s.price .. '|' .. s.taken .. '|' .. deadline_text
    .. '|' .. how .. '||' .. table.concat(text, ',')
  if known[i] then s.undone[#s.undone + 1] = q[1] end
  s.done[q[1]] = i
  return {'ok', how, deadline, tonumber(s.price), s.now, runs}
end

local function take_named(i)
  local q, free, taken, needing = requests[i], {}, {}, 0
  local list = q[9]
  if list[#list] >= s.seats then return {'unknown', 0, 0, 0, 0, {}} end
  for _, seat in ipairs(list) do
    if state_of(s.map, seat) == 0 then free[#free + 1] = seat else taken[#taken + 1] = seat end
    if #s.walls > 0 and state_of(s.walls, seat) == 3 then needing = needing + 1 end
  end
  if needing > q[5] then return {'kept', 0, 0, 0, 0, {}} end
  if #free == 0 or (#taken > 0 and q[6] == 0) then return {'taken', 0, 0, 0, 0, runs_of(taken, s.width)} end
  return take(i, #taken > 0 and 4 or 0, runs_of(free, s.width))
end

-- What an earlier call with this id was answered. Nothing if it took a share of a party that could not be seated as a
-- whole: that was never anybody's, and the same claim may come back.
local function again(q, text)
  local r = parse_record(text)
  if r.owner ~= q[2] then return {'not_owner', 0, 0, 0, 0, {}} end
  if r.state == 'E' then return r.note ~= 'undone' and {'expired', 0, 0, 0, 0, {}} or nil end
  local starts, lengths, count = parse_runs(r.runs)
  local runs = {}
  for n = 1, count do runs[2 * n - 1], runs[2 * n] = starts[n], lengths[n] end
  return {'ok', tonumber(r.how), r.deadline, tonumber(r.price), tonumber(r.taken), runs}
end

local function answer(i)
  local q = requests[i]
  local earlier = known[i] and again(q, known[i])
  if earlier then return earlier end
  local twin = s.done[q[1]]
  if twin then return requests[twin][2] == q[2] and answers[twin] or {'not_owner', 0, 0, 0, 0, {}} end
  if not s.on_sale then return {'closed', 0, 0, 0, 0, {}} end
  if q[10] > 0 and s.now >= q[10] then return {'expired', 0, 0, 0, 0, {}} end
  if (q[9] and #q[9] or q[4]) > s.limit then return {'limit', 0, 0, 0, 0, {}} end
  if q[9] then return take_named(i) end
  if s.available == 0 then return {'sold_out', 0, 0, 0, 0, {}} end
  local how, runs = choose(s.map, s.walls, s.width, s.seats, q[4], q[5], q[6] == 1, q[7])
  if not how then return {runs, 0, 0, 0, 0, {}} end
  return take(i, how, runs)
end

for i = 1, #requests do answers[i] = answer(i) end
if s.high < 0 then return cmsgpack.pack(answers) end

-- Every key is read before the first is written, so that a key of the wrong type or a counter that disagrees stops the
-- script while nothing has changed: the store does not roll a script back.
local CHUNK = 2000  -- Lua's unpack gives up at 8,000 values, and a hall may have 10,000 rows
local rows, counts = {}, {}
for row in pairs(s.by_row) do rows[#rows + 1] = row end
for from = 1, #rows, CHUNK do
  local left_in = redis.call('HMGET', KEYS[4], unpack(rows, from, math.min(from + CHUNK - 1, #rows)))
  for i, left in ipairs(left_in) do
    local row = rows[from + i - 1]
    left = tonumber(left)
    if not left or left < s.by_row[row] then error({err = 'DRIFT row_avail of row ' .. row}) end
    counts[#counts + 1] = row
    counts[#counts + 1] = left - s.by_row[row]
  end
end
if s.available < 0 then error({err = 'DRIFT section_stats counts fewer seats than the map has'}) end
local meta, records, deadlines, undone = s.meta, s.records, s.deadlines, s.undone
for i = 1, #meta, CHUNK do
  local fields = {}
  for f = i, math.min(i + CHUNK - 1, #meta), 2 do fields[#fields + 1] = meta[f] end
  for n, owner in ipairs(redis.call('HMGET', KEYS[5], unpack(fields))) do
    if owner then error({err = 'DRIFT seat ' .. fields[n] .. ' is available and has an owner'}) end
  end
end
if #deadlines > 0 or #undone > 0 then redis.call('ZCARD', KEYS[7]) end

redis.call('SETRANGE', KEYS[1], s.low, string.sub(s.map, s.low + 1, s.high + 1))
for i = 1, #counts, CHUNK do redis.call('HSET', KEYS[4], unpack(counts, i, math.min(i + CHUNK - 1, #counts))) end
for i = 1, #meta, CHUNK do redis.call('HSET', KEYS[5], unpack(meta, i, math.min(i + CHUNK - 1, #meta))) end
for i = 1, #records, CHUNK do redis.call('HSET', KEYS[6], unpack(records, i, math.min(i + CHUNK - 1, #records))) end
if #undone > 0 then redis.call('ZREM', KEYS[7], unpack(undone)) end
for i = 1, #deadlines, CHUNK do redis.call('ZADD', KEYS[7], unpack(deadlines, i, math.min(i + CHUNK - 1, #deadlines))) end
stats.reserved = stats.reserved + stats.available - s.available
stats.available = s.available
write_stats(KEYS[3], stats, now)
return cmsgpack.pack(answers)
