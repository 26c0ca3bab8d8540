-- Open layout: append the records of one batch, an entry each, with ids that say their offsets.
--
-- KEYS  1 log   2 m   3 pid   4 moved     (one partition)
-- ARGV  1 topic id   2 sequence bits   3 entries of others to number at most   4 record count
--       5 producer id or -1   6 producer epoch   7 first sequence   8 now ms   9 channel or ''   10 what to say on it
--       11.. per record: number of strings, then field, value, field, value ...
-- Returns {code, base offset, log end, last stable offset (= log end), log start, duplicate: 1 | 0}, or {code}
--   0 appended, or was before: repeating is safe    3 no such partition    45, 47 see producer_state
--   56 the offset space is used up                  -1 others added too much: number it first, then ask again
--
-- The first offset is max(log end, store clock << bits): it rises when the clock steps back, and runs into the next
-- millisecond when one is full.
--! include producer_state
--! include entry_offsets
local log = read_log(KEYS[2])
if log.id ~= ARGV[1] then
  return {3}
end
local size, count, pid = 2 ^ tonumber(ARGV[2]), tonumber(ARGV[4]), ARGV[5]
if not adopt(log, KEYS[1], KEYS[4], size, tonumber(ARGV[3])) then
  write_log(KEYS[2], log)
  return {-1}
end
local kept
if pid ~= '-1' then
  local code, duplicate
  code, duplicate, kept = producer_verdict(KEYS[3], pid, tonumber(ARGV[6]), tonumber(ARGV[7]), count)
  if code ~= 0 or duplicate then
    write_log(KEYS[2], log)
    return code ~= 0 and {code} or {0, duplicate, log.leo, log.leo, log.log_start, 1}
  end
end
local clock = redis.call('TIME')
local base = math.max(log.leo, (clock[1] * 1000 + math.floor(clock[2] / 1000)) * size)
if base + count > OFFSET_MAX - 1099511627776 then
  write_log(KEYS[2], log)
  return {56}
end
-- An odd id of somebody else's can be above all that offsets can say. Then ours follow it, one by one, and take the next
-- offsets without regard to the clock, which is what a reader computes from such ids.
local top_ms, top_seq = -1, -1
if log.seen ~= '' then
  top_ms, top_seq = id_parts(log.seen)
  if math.floor(base / size) < top_ms then
    base = log.leo
  end
end
if log.log_start == log.leo then
  log.log_start = base
end
log.leo = base
local at = 11
for i = 0, count - 1 do
  local strings = tonumber(ARGV[at])
  local ms, seq = math.floor((base + i) / size), (base + i) % size
  if ms < top_ms or (ms == top_ms and seq <= top_seq) then
    ms, seq = top_ms, top_seq + 1
  end
  top_ms, top_seq = ms, seq
  local id = string.format('%.0f-%.0f', ms, seq)
  redis.call('XADD', KEYS[1], id, unpack(ARGV, at + 1, at + strings))
  local bytes = 0
  for j = at + 1, at + strings do
    bytes = bytes + #ARGV[j]
  end
  number_entry(log, KEYS[4], size, id, bytes)
  at = at + strings + 1
end
write_log(KEYS[2], log)
if kept then
  remember_producer(KEYS[3], pid, ARGV[6], ARGV[8], kept, tonumber(ARGV[7]), count, base)
end
if ARGV[9] ~= '' then
  redis.call('PUBLISH', ARGV[9], ARGV[10])
end
return {0, base, log.leo, log.leo, log.log_start, 0}
