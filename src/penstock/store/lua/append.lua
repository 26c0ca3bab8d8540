-- Append one record batch to a partition: decide, number and write in one step.
--
-- KEYS  1 log   2 m   3 pid   4 open   5 txn   6 tidx     (one partition)
-- ARGV  1 topic id   2 batch   3 record count   4 greatest timestamp
--       5 producer id or -1   6 producer epoch   7 first sequence   8 transactional: 1 | 0
--       9 now ms   10 channel or ''   11 what to say on it
-- Returns {code, base offset, log end, last stable offset, log start, duplicate: 1 | 0}, or {code} if refused
--   0 appended, or was appended before by the same producer with the same sequence: repeating is safe
--   3 no such partition of this topic          45 a sequence is missing        47 an older producer epoch
--   48 no open transaction for this batch      56 the offset space is used up
--
-- Entry id = <last offset>-<bytes so far>: a range from `<offset>-0` starts with the batch that holds the offset.
--! include producer_state
local m = redis.call('HMGET', KEYS[2], 'id', 'leo', 'bytes', 'log_start', 'tidx_bytes', 'max_ts')
if m[1] ~= ARGV[1] then
  return {3}
end
local leo, bytes, count, pid = tonumber(m[2]), tonumber(m[3]), tonumber(ARGV[3]), ARGV[5]

local function last_stable(log_end)
  local first = redis.call('ZRANGE', KEYS[4], 0, 0, 'WITHSCORES')
  return first[2] and tonumber(first[2]) or log_end
end

local kept
if pid ~= '-1' then
  local code, duplicate
  code, duplicate, kept = producer_verdict(KEYS[3], pid, tonumber(ARGV[6]), tonumber(ARGV[7]), count)
  if code ~= 0 then
    return {code}
  end
  if duplicate then
    return {0, duplicate, leo, last_stable(leo), tonumber(m[4]), 1}
  end
  if ARGV[8] == '1' then
    if redis.call('HGET', KEYS[5], pid) ~= ARGV[6] then
      return {48}
    end
  elseif redis.call('ZSCORE', KEYS[4], pid) then
    return {48}
  end
end

local log_end = leo + count
if log_end > 9007199254740991 then
  return {56}
end
bytes = bytes + #ARGV[2]
redis.call('XADD', KEYS[1], string.format('%.0f-%.0f', log_end - 1, bytes), 'b', ARGV[2])
local changed = {'leo', string.format('%.0f', log_end), 'bytes', string.format('%.0f', bytes)}
if not m[6] or tonumber(ARGV[4]) > tonumber(m[6]) then
  changed[5], changed[6], changed[7], changed[8] = 'max_ts', ARGV[4], 'max_ts_at', m[2]
end
if not m[5] or bytes - tonumber(m[5]) >= 65536 then
  redis.call('ZADD', KEYS[6], changed[6] or m[6], m[2])
  changed[#changed + 1] = 'tidx_bytes'
  changed[#changed + 1] = changed[4]
end
redis.call('HSET', KEYS[2], unpack(changed))
if kept then
  remember_producer(KEYS[3], pid, ARGV[6], ARGV[9], kept, tonumber(ARGV[7]), count, leo)
  if ARGV[8] == '1' then
    redis.call('ZADD', KEYS[4], 'NX', m[2], pid)
  end
end
if ARGV[10] ~= '' then
  redis.call('PUBLISH', ARGV[10], ARGV[11])
end
return {0, leo, log_end, last_stable(log_end), tonumber(m[4]), 0}
