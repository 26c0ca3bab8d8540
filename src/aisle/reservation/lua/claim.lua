-- with: seats, choice
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
local call, format = redis.call, string.format
local config = call('HMGET', KEYS[2], 'epoch', 'state', 'rows', 'seats_per_row', 'price', 'limit', 'accessible')
local requests = cmsgpack.unpack(ARGV[2])
local answers = {}
local refused = not config[1] and 'closed' or config[1] ~= ARGV[1] and 'fenced'
if refused then
  for i = 1, #requests do answers[i] = {refused, 0, 0, 0, 0, {}} end
  return cmsgpack.pack(answers)
end

local ids = {}
for i = 1, #requests do ids[i] = requests[i][1] end
local known = call('HMGET', KEYS[6], unpack(ids))
local stats = call('HMGET', KEYS[3], 'available', 'reserved', 'version')
local map = call('GET', KEYS[1])
local clock = call('TIME')

local on_sale, price, limit, walls = config[2] == 'open', config[5], tonumber(config[6]), config[7] or ''
local width = tonumber(config[4])
local seats = config[3] * width
local available, reserved, version = tonumber(stats[1]), tonumber(stats[2]), tonumber(stats[3])
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local taken_ms = format('%d', now)
if not (available and reserved and version) then error({err = 'DRIFT section_stats is incomplete'}) end
if not map or #map ~= math.ceil(seats / 4) then error({err = 'DRIFT seats_bf does not fit section_config'}) end

-- What an earlier call with this id was answered. Nothing if it took a share of a party that could not be seated as a
-- whole: that was never anybody's, and the same claim may come back.
local function again(q, text)
  -- with: record
  local r = parse_record(text)
  if r.owner ~= q[2] then return {'not_owner', 0, 0, 0, 0, {}} end
  if r.state == 'E' then return r.note ~= 'undone' and {'expired', 0, 0, 0, 0, {}} or nil end
  local starts, lengths, count = parse_runs(r.runs)
  local runs = {}
  for n = 1, count do runs[2 * n - 1], runs[2 * n] = starts[n], lengths[n] end
  return {'ok', tonumber(r.how), r.deadline, tonumber(r.price), tonumber(r.taken), runs}
end

-- Seats by name: how and runs, or nil, the refusal and the seats in the way.
local function pick(map, walls, width, seats, list, accessible, partial)
  -- with: runs
  if list[#list] >= seats then return nil, 'unknown' end
  local free, taken, needing = {}, {}, 0
  for _, seat in ipairs(list) do
    if state_of(map, seat) == 0 then free[#free + 1] = seat else taken[#taken + 1] = seat end
    if #walls > 0 and state_of(walls, seat) == 3 then needing = needing + 1 end
  end
  if needing > accessible then return nil, 'kept' end
  if #free == 0 or (#taken > 0 and not partial) then return nil, 'taken', runs_of(taken, width) end
  return #taken > 0 and 4 or 0, runs_of(free, width)
end

-- The subsection as the batch has left it so far is in `map` and `left`; what is to be written is in the others.
local low, high, left, taken_in, rows = #map, -1, available, {}, {}
local names, owners, records, deadlines, undone, done = {}, {}, {}, {}, {}, {}

for i = 1, #requests do
  local q = requests[i]
  local id, named = q[1], q[9]
  local answer = known[i] and again(q, known[i])
  if answer then
    answers[i] = answer
  elseif done[id] then
    answers[i] = requests[done[id]][2] == q[2] and answers[done[id]] or {'not_owner', 0, 0, 0, 0, {}}
  else
    -- `runs` to take and `how` they were found, or no `how` and the refusal in place of the runs.
    local how, runs, in_the_way
    if not on_sale then
      runs = 'closed'
    elseif q[10] > 0 and now >= q[10] then
      runs = 'expired'
    elseif (named and #named or q[4]) > limit then
      runs = 'limit'
    elseif named then
      how, runs, in_the_way = pick(map, walls, width, seats, named, q[5], q[6] == 1)
    elseif left == 0 then
      runs = 'sold_out'
    else
      how, runs = choose(map, walls, width, seats, q[4], q[5], q[6] == 1, q[7])
    end
    if how then
      local texts = {}
      for r = 1, #runs, 2 do
        local first, length = runs[r], runs[r + 1]
        local from, to
        map, from, to = set_run(map, first, length, 0, 1)
        if from < low then low = from end
        if to > high then high = to end
        left = left - length
        local row, seat = math.floor(first / width) + 1, first % width
        if not taken_in[row] then rows[#rows + 1], taken_in[row] = row, 0 end
        taken_in[row] = taken_in[row] + length
        for n = 1, length do
          local name = format('%d-%d', row, seat + n)
          names[#names + 1] = name
          owners[#owners + 1] = name
          owners[#owners + 1] = id
        end
        texts[#texts + 1] = format('%d+%d', first, length)
      end
      local deadline, deadline_text = 0, '0'
      if q[3] == 'h' then
        deadline = q[10] > 0 and q[10] or now + q[8]
        deadline_text = format('%d', deadline)
        deadlines[#deadlines + 1] = deadline_text
        deadlines[#deadlines + 1] = id
      end
      -- A record as in record.lua, put together here because a table for each would cost more than the text.
      records[#records + 1] = id
      records[#records + 1] = format('L|%s|%s|%s|%s|%s|%d||%s', q[3], q[2], price, taken_ms, deadline_text, how,
        table.concat(texts, ','))
      if known[i] then undone[#undone + 1] = id end
      done[id] = i
      answers[i] = {'ok', how, deadline, tonumber(price), now, runs}
    else
      answers[i] = {runs, 0, 0, 0, 0, in_the_way or {}}
    end
  end
end
if high < 0 then return cmsgpack.pack(answers) end

-- Every key is read before the first is written, so that a key of the wrong type or a counter that disagrees stops the
-- script while nothing has changed: the store does not roll a script back.
local CHUNK = 2000  -- Lua's unpack gives up at 8,000 values, and a hall may have 10,000 rows
local counts = {}
for from = 1, #rows, CHUNK do
  local left_in = call('HMGET', KEYS[4], unpack(rows, from, math.min(from + CHUNK - 1, #rows)))
  for i = 1, #left_in do
    local row = rows[from + i - 1]
    local count = tonumber(left_in[i])
    if not count or count < taken_in[row] then error({err = 'DRIFT row_avail of row ' .. row}) end
    counts[#counts + 1] = row
    counts[#counts + 1] = count - taken_in[row]
  end
end
if left < 0 then error({err = 'DRIFT section_stats counts fewer seats than the map has'}) end
for from = 1, #names, CHUNK do
  local found = call('HMGET', KEYS[5], unpack(names, from, math.min(from + CHUNK - 1, #names)))
  for i = 1, #found do
    if found[i] then error({err = 'DRIFT seat ' .. names[from + i - 1] .. ' is available and has an owner'}) end
  end
end
if #deadlines > 0 or #undone > 0 then call('ZCARD', KEYS[7]) end

call('SETRANGE', KEYS[1], low, string.sub(map, low + 1, high + 1))
for i = 1, #counts, CHUNK do call('HSET', KEYS[4], unpack(counts, i, math.min(i + CHUNK - 1, #counts))) end
for i = 1, #owners, CHUNK do call('HSET', KEYS[5], unpack(owners, i, math.min(i + CHUNK - 1, #owners))) end
for i = 1, #records, CHUNK do call('HSET', KEYS[6], unpack(records, i, math.min(i + CHUNK - 1, #records))) end
if #undone > 0 then call('ZREM', KEYS[7], unpack(undone)) end
for i = 1, #deadlines, CHUNK do call('ZADD', KEYS[7], unpack(deadlines, i, math.min(i + CHUNK - 1, #deadlines))) end
call('HSET', KEYS[3], 'available', left, 'reserved', reserved + available - left, 'version', version + 1, 'updated_at', taken_ms)
return cmsgpack.pack(answers)
