-- Shared by the scripts of one subsection: the record of a hold or booking, and what every script checks first.
--
-- A record is one line of text, readable in any client:
--   state | kind | owner | price | taken ms | deadline ms | how | note | runs
--   L|h|buyer-7|3000|1760000000000|1760000600000|1||80+2,100+1
-- state  L live (seats reserved)   S sold   E ended (seats given back, or moved on; kept 24 h to answer repeats)
-- kind   b booking (PostgreSQL owns the deadline, here 0)   h hold (the store owns it)
-- how    0 named seats  1 adjacent  2 adjacent_orphan  3 split  4 partial
-- note   L: id of the last extension; E: why it ended
-- runs   first seat index + length, ascending
local RECORD = '^(%u)|(%l)|([^|]*)|(%d+)|(%d+)|(%d+)|(%d)|([^|]*)|(.*)$'
local KEEP_ENDED_MS = 86400000

local function parse_record(text)
  local state, kind, owner, price, taken, deadline, how, note, runs = string.match(text, RECORD)
  if not state then error({err = 'DRIFT a record cannot be read: ' .. text}) end
  return {state = state, kind = kind, owner = owner, price = price, taken = taken, deadline = tonumber(deadline),
          how = how, note = note, runs = runs}
end

local function record_text(r)
  return r.state .. '|' .. r.kind .. '|' .. r.owner .. '|' .. r.price .. '|' .. r.taken .. '|'
    .. string.format('%d', r.deadline) .. '|' .. r.how .. '|' .. r.note .. '|' .. r.runs
end

local function parse_runs(text)
  local starts, lengths, count = {}, {}, 0
  for first, length in string.gmatch(text, '(%d+)%+(%d+)') do
    count = count + 1
    starts[count], lengths[count] = tonumber(first), tonumber(length)
  end
  return starts, lengths, count
end

local function now_ms()
  local t = redis.call('TIME')
  return t[1] * 1000 + math.floor(t[2] / 1000)
end

-- Numbers of section_stats, or an error before anything is written: a counter that is no number is drift, not zero.
local function read_stats(key)
  local raw = redis.call('HMGET', key, 'available', 'reserved', 'sold', 'version')
  local stats = {available = tonumber(raw[1]), reserved = tonumber(raw[2]), sold = tonumber(raw[3]), version = tonumber(raw[4])}
  if not (stats.available and stats.reserved and stats.sold and stats.version) then
    error({err = 'DRIFT section_stats is incomplete'})
  end
  return stats
end

-- Called before the first write: an error after it would leave half of a script's work behind.
local function check_stats(stats)
  if stats.available < 0 or stats.reserved < 0 or stats.sold < 0 then
    error({err = 'DRIFT a counter would become negative'})
  end
end

local function write_stats(key, stats, now)
  redis.call('HSET', key, 'available', stats.available, 'reserved', stats.reserved, 'sold', stats.sold,
    'version', stats.version + 1, 'updated_at', string.format('%d', now))
end
