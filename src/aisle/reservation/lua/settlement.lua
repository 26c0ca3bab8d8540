-- Shared by settle.lua, sweep.lua and convert.lua: move the seats of claims from state to state.
--
-- Moves are collected in memory first. `write_settlement` then reads every key it is about to write and compares what it
-- finds, and only then writes: the store does not roll a script back, so an error must come before the first write.
local SEAT_STATES = {[0] = 'available', 'reserved', 'sold'}
local CHUNK = 2000

local function begin_settlement(keys, width)
  local map = redis.call('GET', keys[1])
  if not map then error({err = 'DRIFT seats_bf is missing'}) end
  return {keys = keys, width = width, map = map, low = #map, high = -1, stats = read_stats(keys[3]), now = now_ms(),
          by_row = {}, owners = {}, freed = {}, renamed = {}, records = {}, dead = {}, index = {}, unindex = {}, changed = false}
end

local function runs_of_record(r)
  local starts, lengths, count = parse_runs(r.runs)
  local runs = {}
  for i = 1, count do runs[2 * i - 1], runs[2 * i] = starts[i], lengths[i] end
  return runs
end

local function runs_text(runs)
  local text = {}
  for i = 1, #runs, 2 do text[#text + 1] = runs[i] .. '+' .. runs[i + 1] end
  return table.concat(text, ',')
end

-- Notes the names of the seats and that each of them must belong to `id`.
local function each_seat(s, id, runs, visit)
  for i = 1, #runs, 2 do
    local row = math.floor(runs[i] / s.width) + 1
    for seat = runs[i], runs[i] + runs[i + 1] - 1 do
      local name = row .. '-' .. (seat % s.width + 1)
      s.owners[#s.owners + 1] = name
      s.owners[#s.owners + 1] = id
      if visit then visit[#visit + 1] = name end
    end
  end
end

local function move(s, id, runs, was, state)
  for i = 1, #runs, 2 do
    local from, to
    s.map, from, to = set_run(s.map, runs[i], runs[i + 1], was, state)
    s.low, s.high = math.min(s.low, from), math.max(s.high, to)
    local row = math.floor(runs[i] / s.width) + 1
    if state == 0 then s.by_row[row] = (s.by_row[row] or 0) + runs[i + 1] end
    s.stats[SEAT_STATES[was]] = s.stats[SEAT_STATES[was]] - runs[i + 1]
    s.stats[SEAT_STATES[state]] = s.stats[SEAT_STATES[state]] + runs[i + 1]
  end
  each_seat(s, id, runs, state == 0 and s.freed or nil)
end

local function keep_record(s, id, r)
  s.records[id] = r
  s.changed = true
end

local function end_record(s, id, r, why)
  r.state, r.note = 'E', why
  s.index[id] = s.now + KEEP_ENDED_MS
  keep_record(s, id, r)
end

local function in_chunks(command, key, list)
  for i = 1, #list, CHUNK do redis.call(command, key, unpack(list, i, math.min(i + CHUNK - 1, #list))) end
end

local function check_owners(s)
  for i = 1, #s.owners, CHUNK do
    local names = {}
    for f = i, math.min(i + CHUNK - 1, #s.owners), 2 do names[#names + 1] = s.owners[f] end
    for n, id in ipairs(redis.call('HMGET', s.keys[5], unpack(names))) do
      if id ~= s.owners[i + 2 * n - 1] then error({err = 'DRIFT seat ' .. names[n] .. ' belongs to another claim'}) end
    end
  end
end

local function new_row_counts(s)
  local rows, counts = {}, {}
  for row in pairs(s.by_row) do rows[#rows + 1] = row end
  for from = 1, #rows, CHUNK do
    local left_in = redis.call('HMGET', s.keys[4], unpack(rows, from, math.min(from + CHUNK - 1, #rows)))
    for i, left in ipairs(left_in) do
      local row = rows[from + i - 1]
      if not tonumber(left) then error({err = 'DRIFT row_avail of row ' .. row}) end
      counts[#counts + 1] = row
      counts[#counts + 1] = left + s.by_row[row]
    end
  end
  return counts
end

local function write_settlement(s)
  if not s.changed then return end
  check_owners(s)
  local counts = new_row_counts(s)
  check_stats(s.stats)
  redis.call('ZCARD', s.keys[7])

  if s.high >= 0 then
    redis.call('SETRANGE', s.keys[1], s.low, string.sub(s.map, s.low + 1, s.high + 1))
    in_chunks('HSET', s.keys[4], counts)
    in_chunks('HDEL', s.keys[5], s.freed)
    write_stats(s.keys[3], s.stats, s.now)
  end
  in_chunks('HSET', s.keys[5], s.renamed)
  local fields, scores = {}, {}
  for id, r in pairs(s.records) do
    fields[#fields + 1] = id
    fields[#fields + 1] = record_text(r)
  end
  for id, at in pairs(s.index) do
    scores[#scores + 1] = string.format('%d', at)
    scores[#scores + 1] = id
  end
  in_chunks('HSET', s.keys[6], fields)
  in_chunks('HDEL', s.keys[6], s.dead)
  in_chunks('ZREM', s.keys[7], s.unindex)
  in_chunks('ZADD', s.keys[7], scores)
end
