-- with: record, seats, choice
-- Take seats in one subsection for a batch of bookings or holds: choose and take in one step.
--
-- KEYS  1 seats_bf  2 section_config  3 section_stats  4 row_avail  5 seat_meta  6 holds  7 locks:exp
-- ARGV  1 epoch the caller believes in
--       2 msgpack: list of {id, owner, kind b|h, size, accessible, partial 0|1, worst rung 1-3, hold ms, named seats | nil}
-- Returns msgpack: list of {code, how, deadline ms, price, taken ms, runs}, in the order asked
--   ok         taken now, or by an earlier call with the same id: repeating is safe
--   closed     no such subsection, or not on sale          fenced    the caller's epoch is not the subsection's
--   sold_out   no usable seat at all                       no_block  some, but not for this party
--   taken      a named seat is not available (runs: which) kept      a named seat is for people who need an accessible one
--   limit      more seats than one claim may take          expired   the id was used before and has ended (unless undone)
--   not_owner  the id belongs to somebody else             unknown   a named seat does not exist
-- A refusal is not remembered: it changed nothing, and the same call may succeed later.
local config = redis.call('HMGET', KEYS[2], 'epoch', 'state', 'rows', 'seats_per_row', 'price', 'limit', 'accessible')
local requests = cmsgpack.unpack(ARGV[2])
local answers = {}

local function refuse_all(code)
  for i = 1, #requests do answers[i] = {code, 0, 0, 0, 0, {}} end
  return cmsgpack.pack(answers)
end

if not config[1] then return refuse_all('closed') end
if config[1] ~= ARGV[1] then return refuse_all('fenced') end
local on_sale = config[2] == 'open'
local width, price, limit, walls = tonumber(config[4]), config[5], tonumber(config[6]), config[7] or ''
local seats = tonumber(config[3]) * width

local ids = {}
for i, q in ipairs(requests) do ids[i] = q[1] end
local known = redis.call('HMGET', KEYS[6], unpack(ids))
local stats = read_stats(KEYS[3])
local map = redis.call('GET', KEYS[1])
if not map or #map ~= math.ceil(seats / 4) then error({err = 'DRIFT seats_bf does not fit section_config'}) end
local before = map
local now = now_ms()
local low, high = #map, -1
local by_row, meta, records, deadlines, undone, fresh, total = {}, {}, {}, {}, {}, {}, 0

local function named_runs(list, accessible, partial)
  local free, taken = {}, {}
  local needing = 0
  if list[#list] >= seats then return nil, 'unknown' end
  for _, seat in ipairs(list) do
    if state_of(map, seat) == 0 then free[#free + 1] = seat else taken[#taken + 1] = seat end
    if #walls > 0 and state_of(walls, seat) == 3 then needing = needing + 1 end
  end
  if needing > accessible then return nil, 'kept' end
  if #free == 0 or (#taken > 0 and not partial) then return nil, 'taken', runs_of(taken, width) end
  return #taken > 0 and 4 or 0, runs_of(free, width)
end

local function take(q, how, runs)
  local text = {}
  for r = 1, #runs, 2 do
    local first, length = runs[r], runs[r + 1]
    local from, to
    map, from, to = set_run(map, first, length, 0, 1)
    low, high = math.min(low, from), math.max(high, to)
    local row = math.floor(first / width) + 1
    by_row[row] = (by_row[row] or 0) + length
    total = total + length
    for seat = first, first + length - 1 do
      meta[#meta + 1] = row .. '-' .. (seat % width + 1)
      meta[#meta + 1] = q[1]
    end
    text[#text + 1] = first .. '+' .. length
  end
  local deadline = 0
  if q[3] == 'h' then
    deadline = now + q[8]
    deadlines[#deadlines + 1] = string.format('%d', deadline)
    deadlines[#deadlines + 1] = q[1]
  end
  records[#records + 1] = q[1]
  records[#records + 1] = record_text({state = 'L', kind = q[3], owner = q[2], price = price,
    taken = string.format('%d', now), deadline = deadline, how = how, note = '', runs = table.concat(text, ',')})
  if q.undone then undone[#undone + 1] = q[1] end
  local answer = {'ok', how, deadline, tonumber(price), now, runs}
  fresh[q[1]] = {owner = q[2], answer = answer}
  return answer
end

local function again(q, text)
  local r = parse_record(text)
  if r.owner ~= q[2] then return {'not_owner', 0, 0, 0, 0, {}} end
  -- A share of a party that could not be seated as a whole was never anybody's: the same claim may come back.
  if r.state == 'E' and r.note == 'undone' then
    q.undone = true
    return nil
  end
  if r.state == 'E' then return {'expired', 0, 0, 0, 0, {}} end
  local starts, lengths, count = parse_runs(r.runs)
  local runs = {}
  for i = 1, count do runs[2 * i - 1], runs[2 * i] = starts[i], lengths[i] end
  return {'ok', tonumber(r.how), r.deadline, tonumber(r.price), tonumber(r.taken), runs}
end

local function answer(q, text)
  local earlier = text and again(q, text)
  if earlier then return earlier end
  local twin = fresh[q[1]]
  if twin then return twin.owner == q[2] and twin.answer or {'not_owner', 0, 0, 0, 0, {}} end
  if not on_sale then return {'closed', 0, 0, 0, 0, {}} end
  local size = q[9] and #q[9] or q[4]
  if size > limit then return {'limit', 0, 0, 0, 0, {}} end
  if not q[9] and stats.available - total == 0 then return {'sold_out', 0, 0, 0, 0, {}} end
  local how, runs, which
  if q[9] then
    how, runs, which = named_runs(q[9], q[5], q[6] == 1)
  else
    how, runs = choose(map, walls, width, seats, size, q[5], q[6] == 1, q[7])
  end
  if not how then return {runs, 0, 0, 0, 0, which or {}} end
  return take(q, how, runs)
end

for i, q in ipairs(requests) do answers[i] = answer(q, known[i]) end
if total == 0 then return cmsgpack.pack(answers) end

-- Every key is read before the first is written, so that a key of the wrong type or a counter that disagrees stops the
-- script while nothing has changed: the store does not roll a script back.
local CHUNK = 2000  -- Lua's unpack gives up at 8,000 values, and a hall may have 10,000 rows
local rows, counts = {}, {}
for row in pairs(by_row) do rows[#rows + 1] = row end
for from = 1, #rows, CHUNK do
  local left_in = redis.call('HMGET', KEYS[4], unpack(rows, from, math.min(from + CHUNK - 1, #rows)))
  for i, left in ipairs(left_in) do
    local row = rows[from + i - 1]
    left = tonumber(left)
    if not left or left < by_row[row] then error({err = 'DRIFT row_avail of row ' .. row}) end
    counts[#counts + 1] = row
    counts[#counts + 1] = left - by_row[row]
  end
end
if stats.available < total then error({err = 'DRIFT section_stats counts fewer seats than the map has'}) end
for i = 1, #meta, CHUNK do
  local fields = {}
  for f = i, math.min(i + CHUNK - 1, #meta), 2 do fields[#fields + 1] = meta[f] end
  for n, owner in ipairs(redis.call('HMGET', KEYS[5], unpack(fields))) do
    if owner then error({err = 'DRIFT seat ' .. fields[n] .. ' is available and has an owner'}) end
  end
end
if #deadlines > 0 or #undone > 0 then redis.call('ZCARD', KEYS[7]) end

redis.call('SETRANGE', KEYS[1], low, string.sub(map, low + 1, high + 1))
for i = 1, #counts, CHUNK do redis.call('HSET', KEYS[4], unpack(counts, i, math.min(i + CHUNK - 1, #counts))) end
for i = 1, #meta, CHUNK do redis.call('HSET', KEYS[5], unpack(meta, i, math.min(i + CHUNK - 1, #meta))) end
for i = 1, #records, CHUNK do redis.call('HSET', KEYS[6], unpack(records, i, math.min(i + CHUNK - 1, #records))) end
if #undone > 0 then redis.call('ZREM', KEYS[7], unpack(undone)) end
for i = 1, #deadlines, CHUNK do redis.call('ZADD', KEYS[7], unpack(deadlines, i, math.min(i + CHUNK - 1, #deadlines))) end
stats.available, stats.reserved = stats.available - total, stats.reserved + total
write_stats(KEYS[3], stats, now)
return cmsgpack.pack(answers)
