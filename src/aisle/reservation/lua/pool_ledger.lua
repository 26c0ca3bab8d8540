-- Shared by the scripts of one pool: its counters, its records, and the one way to write them.
--
-- pool        hash  epoch state capacity held sold price limit one_per_buyer version updated_at
--                   free places are capacity - held - sold; they are not stored, so they cannot disagree
-- pool_holds  hash  id -> record as in record.lua, with the number of places as its `runs`
--                   @buyer -> id of the buyer's one live hold, where the pool grants only one
-- locks:exp   zset  id -> deadline of a live hold, or when an ended record may be forgotten
--
-- A record's note lists the part refunds it has seen, each as ` operation+places`, after the word why it ended:
--   S|b|buyer-7|3000|1760000000000|0|0| refund-1+2|3          E|b|buyer-7|3000|1760000000000|0|0|refunded refund-1+2|3
--
-- Changes are collected in memory. `write_ledger` checks the sums and the last key's type before its first write: the
-- store does not roll a script back, so an error must come while nothing has changed.
local CHUNK = 2000

local function whole(text, what)
  local number = text and string.match(text, '^%d+$') and tonumber(text)
  if not number then error({err = 'DRIFT ' .. what .. ' is not a whole number'}) end
  return number
end

local function read_pool(keys)
  local f = redis.call('HMGET', keys[1], 'epoch', 'state', 'capacity', 'held', 'sold', 'price', 'limit', 'one_per_buyer', 'version')
  if not f[1] then return nil end
  whole(f[6], 'price')
  return {keys = keys, epoch = f[1], on_sale = f[2] == 'open', capacity = whole(f[3], 'capacity'), held = whole(f[4], 'held'),
          sold = whole(f[5], 'sold'), price = f[6], limit = whole(f[7], 'limit'), one_per_buyer = f[8] == '1',
          version = whole(f[9], 'version'), now = now_ms(), records = {}, changed = {}, forgotten = {}, index = {},
          pointers = {}, moved = {}}
end

-- The pool for a caller of this epoch, or nil and the refusal.
local function open_ledger(keys, epoch)
  local l = read_pool(keys)
  if not l then return nil, 'closed' end
  if l.epoch ~= epoch then return nil, 'fenced' end
  return l
end

local function load_records(l, ids)
  if #ids == 0 then return end
  for i, text in ipairs(redis.call('HMGET', l.keys[2], unpack(ids))) do
    if text and not l.records[ids[i]] then
      local r = parse_record(text)
      r.places = whole(r.runs, 'the quantity of ' .. ids[i])
      l.records[ids[i]] = r
    end
  end
end

-- Which hold each of these buyers has, where the pool grants only one; with the records of those holds.
local function load_pointers(l, owners)
  if not l.one_per_buyer or #owners == 0 then return end
  local fields, ids = {}, {}
  for i, owner in ipairs(owners) do fields[i] = '@' .. owner end
  for i, id in ipairs(redis.call('HMGET', l.keys[2], unpack(fields))) do
    l.pointers[fields[i]] = id
    if id then ids[#ids + 1] = id end
  end
  load_records(l, ids)
  for _, id in ipairs(ids) do
    if not l.records[id] then error({err = 'DRIFT a buyer is said to have the hold ' .. id .. ', which does not exist'}) end
  end
end

local function overdue(l, r)
  return r.state == 'L' and r.deadline > 0 and l.now >= r.deadline
end

local function keep_record(l, id, r)
  l.records[id] = r
  l.changed[id] = true
end

local function point(l, owner, id)
  l.pointers['@' .. owner] = id
  l.moved['@' .. owner] = true
end

-- The hold ends here, or becomes something that has no deadline. A newer hold of the same buyer keeps its pointer.
local function drop_hold(l, id, r)
  l.index[id] = false
  if l.pointers['@' .. r.owner] == id then point(l, r.owner, false) end
end

local function end_record(l, id, r, note)
  drop_hold(l, id, r)
  r.state, r.note = 'E', note
  l.index[id] = l.now + KEEP_ENDED_MS
  keep_record(l, id, r)
end

local function in_chunks(command, key, list)
  for i = 1, #list, CHUNK do redis.call(command, key, unpack(list, i, math.min(i + CHUNK - 1, #list))) end
end

local function write_ledger(l)
  if not (next(l.changed) or next(l.index) or #l.forgotten > 0) then return end
  if l.held < 0 or l.sold < 0 or l.held + l.sold > l.capacity then
    error({err = 'DRIFT held and sold would be ' .. l.held .. ' and ' .. l.sold .. ' of ' .. l.capacity})
  end
  redis.call('ZCARD', l.keys[3])

  local fields, gone, scores, unindexed = {}, l.forgotten, {}, {}
  for id in pairs(l.changed) do
    fields[#fields + 1] = id
    l.records[id].runs = string.format('%d', l.records[id].places)
    fields[#fields + 1] = record_text(l.records[id])
  end
  for field in pairs(l.moved) do
    if l.pointers[field] then
      fields[#fields + 1] = field
      fields[#fields + 1] = l.pointers[field]
    else
      gone[#gone + 1] = field
    end
  end
  for id, at in pairs(l.index) do
    if at then
      scores[#scores + 1] = string.format('%d', at)
      scores[#scores + 1] = id
    else
      unindexed[#unindexed + 1] = id
    end
  end
  redis.call('HSET', l.keys[1], 'held', l.held, 'sold', l.sold, 'version', l.version + 1,
    'updated_at', string.format('%d', l.now))
  in_chunks('HSET', l.keys[2], fields)
  in_chunks('HDEL', l.keys[2], gone)
  in_chunks('ZREM', l.keys[3], unindexed)
  in_chunks('ZADD', l.keys[3], scores)
end
