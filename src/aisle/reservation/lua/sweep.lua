-- with: record, stats, seats, settlement
-- Release the holds of one subsection whose deadline has passed, and forget claims that ended a day ago.
--
-- KEYS  1 seats_bf  2 section_config  3 section_stats  4 row_avail  5 seat_meta  6 holds  7 locks:exp  8 lapsed
-- ARGV  1 how many at most
-- Returns msgpack: {list of {id, owner, runs} released now, forgotten, 1 if more may be due, entries left}
--
-- Any number of sweepers may run: each decides and acts in this one step, by the store's own clock, so nothing is released
-- early or twice. A hold that was extended, converted or released meanwhile is seen as it is now, not as it was indexed.
local width = redis.call('HGET', KEYS[2], 'seats_per_row')
if not width then return cmsgpack.pack({{}, 0, 0, 0}) end
local now = string.format('%d', now_ms())
local due = redis.call('ZRANGEBYSCORE', KEYS[7], '-inf', now, 'LIMIT', 0, ARGV[1])
if #due == 0 then return cmsgpack.pack({{}, 0, 0, redis.call('ZCARD', KEYS[7])}) end

local s = begin_settlement(KEYS, tonumber(width))
local released, lapsed, forgotten = {}, {}, 0
redis.call('ZCARD', KEYS[8])
for i, text in ipairs(redis.call('HMGET', KEYS[6], unpack(due))) do
  local id = due[i]
  if not text then
    -- An entry without a record holds nothing. It is put off, not dropped: `aisle verify` shows it to an operator.
    s.index[id], s.changed = s.now + KEEP_ENDED_MS, true
  else
    local r = parse_record(text)
    if r.state == 'E' then
      s.dead[#s.dead + 1], s.unindex[#s.unindex + 1], s.changed = id, id, true
      forgotten = forgotten + 1
    elseif r.state == 'L' and r.deadline > 0 and r.deadline <= s.now then
      local runs = runs_of_record(r)
      move(s, id, runs, 1, 0)
      end_record(s, id, r, 'expired')
      lapsed[#lapsed + 1] = string.format('%d', r.deadline)
      lapsed[#lapsed + 1] = id .. '|' .. r.owner
      released[#released + 1] = {id, r.owner, runs}
    elseif r.deadline > 0 then
      s.index[id], s.changed = r.deadline, true
    else
      s.unindex[#s.unindex + 1], s.changed = id, true
    end
  end
end
write_settlement(s)
in_chunks('ZADD', KEYS[8], lapsed)
return cmsgpack.pack({released, forgotten, #due == tonumber(ARGV[1]) and 1 or 0, redis.call('ZCARD', KEYS[7])})
