-- Open layout: move the beginning of a log forward and drop the entries before it.
--
-- KEYS  1 log   2 m   3 moved     (one partition)
-- ARGV  1 topic id   2 sequence bits   3 new log start (-1: the end of the log)   4 entries to keep at most (-1: any)
-- Returns {code, log start}
--   0 done, or was already there: repeating is safe       1 beyond the end of the log       3 no such partition
--! include entry_offsets
local log = read_log(KEYS[2])
if log.id ~= ARGV[1] then
  return {3, -1}
end
local size, wanted, keep = 2 ^ tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])

-- The first entry at or after an offset: its id and offset, or nil.
local function locate(offset)
  local id, at = string.format('%.0f-%.0f', math.floor(offset / size), offset % size), nil
  local anchor = redis.call('ZREVRANGEBYSCORE', KEYS[3], string.format('%.0f', offset), '-inf', 'WITHSCORES', 'LIMIT', 0, 1)
  if anchor[1] then
    local ms, seq = id_parts(anchor[1])
    if ms * size + seq ~= tonumber(anchor[2]) or seq >= size then
      id, at = anchor[1], tonumber(anchor[2])
    end
  end
  for _, entry in ipairs(redis.call('XRANGE', KEYS[1], id, '+', 'COUNT', 501)) do
    local ms, seq = id_parts(entry[1])
    local natural = ms * size + seq
    at = at and math.max(at, natural <= OFFSET_MAX and natural or 0) or natural
    if at >= offset then
      return entry[1], at
    end
    at = at + 1
  end
  return nil
end

if keep >= 0 then
  local excess = redis.call('XLEN', KEYS[1]) - keep
  if excess <= 0 then
    return {0, log.log_start}
  end
  redis.call('XTRIM', KEYS[1], 'MAXLEN', '=', keep)
  local first = redis.call('XRANGE', KEYS[1], '-', '+', 'COUNT', 1)
  local ms, seq = id_parts(first[1] and first[1][1] or log.seen)
  wanted = math.min(math.max(ms * size + seq, log.log_start), log.leo)
else
  if wanted == -1 then
    wanted = log.leo
  end
  if wanted > log.leo then
    return {1, log.log_start}
  end
  if wanted <= log.log_start then
    return {0, log.log_start}
  end
  local id, offset = locate(wanted)
  if id then
    redis.call('XTRIM', KEYS[1], 'MINID', '=', id)
    local ms, seq = id_parts(id)
    if math.floor(offset / size) ~= ms or offset % size ~= seq then
      redis.call('ZADD', KEYS[3], string.format('%.0f', offset), id)
    end
  elseif log.seen ~= '' then
    local ms, seq = id_parts(log.seen)
    redis.call('XTRIM', KEYS[1], 'MINID', '=', string.format('%.0f-%.0f', ms, seq + 1))
  end
  redis.call('ZREMRANGEBYSCORE', KEYS[3], '-inf', '(' .. string.format('%.0f', wanted))
end
log.log_start, log.changed = wanted, true
write_log(KEYS[2], log)
return {0, wanted}
