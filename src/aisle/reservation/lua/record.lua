-- Shared by the scripts of one subsection: the record of a hold or booking.
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
