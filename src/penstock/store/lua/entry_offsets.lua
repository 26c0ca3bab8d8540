-- Included by the scripts of the open layout: give offsets to entries in the order of the stream.
--
-- An entry `<ms>-<seq>` has the offset (ms << bits) + seq, unless an earlier entry has it or a later one already, or it
-- is out of range: then it takes the next free one. So offsets always rise, none is given twice, and no entry is left out,
-- however many fall in one millisecond and whatever a clock does. Where id and offset do not say the same, `moved` has
-- an anchor (id by offset) for the first such entry, one in 500 that follow, and the first that is regular again.
--
-- m fields: leo, log_start, seen (last id with an offset), run (entries since the last anchor, or ''), bytes, entries
local OFFSET_MAX = 9007199254740991

local function id_parts(id)
  local ms, seq = string.match(id, '^(%d+)%-(%d+)$')
  return tonumber(ms), tonumber(seq)
end

local function read_log(m_key)
  local m = redis.call('HMGET', m_key, 'id', 'leo', 'log_start', 'seen', 'run', 'bytes', 'entries')
  return {
    id = m[1], leo = tonumber(m[2]), log_start = tonumber(m[3]), seen = m[4] or '', run = m[5] or '',
    bytes = tonumber(m[6]) or 0, entries = tonumber(m[7]) or 0, changed = false,
  }
end

local function write_log(m_key, log)
  if log.changed then
    redis.call('HSET', m_key, 'leo', string.format('%.0f', log.leo), 'log_start', string.format('%.0f', log.log_start),
      'seen', log.seen, 'run', log.run, 'bytes', string.format('%.0f', log.bytes),
      'entries', string.format('%.0f', log.entries))
  end
end

local function number_entry(log, moved_key, size, id, bytes)
  local ms, seq = id_parts(id)
  local offset = ms * size + seq
  if offset < log.leo or offset > OFFSET_MAX - 1099511627776 then
    offset = log.leo
  end
  if log.log_start == log.leo then
    log.log_start = offset
  end
  if math.floor(offset / size) == ms and offset % size == seq then
    if log.run ~= '' then
      redis.call('ZADD', moved_key, string.format('%.0f', offset), id)
      log.run = ''
    end
  else
    local run = tonumber(log.run)
    if not run or run >= 500 then
      redis.call('ZADD', moved_key, string.format('%.0f', offset), id)
      run = 0
    end
    log.run = tostring(run + 1)
  end
  log.leo, log.seen, log.changed = offset + 1, id, true
  log.bytes, log.entries = log.bytes + bytes, log.entries + 1
  return offset
end

-- Number what others have added since; returns true when nothing is left to number.
local function adopt(log, log_key, moved_key, size, limit)
  local start = log.seen == '' and '-' or '(' .. log.seen
  local entries = redis.call('XRANGE', log_key, start, '+', 'COUNT', limit)
  for _, entry in ipairs(entries) do
    local bytes = 0
    for _, text in ipairs(entry[2]) do
      bytes = bytes + #text
    end
    number_entry(log, moved_key, size, entry[1], bytes)
  end
  return #entries < limit
end
