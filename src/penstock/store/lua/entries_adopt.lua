-- Open layout: give offsets to entries that plain clients added, and say where the log begins and ends.
--
-- KEYS  1 log   2 m   3 moved     (one partition)
-- ARGV  1 topic id   2 sequence bits   3 entries to number at most
-- Returns {code, log end, log start, done: 1 | 0}
--   0 numbered; repeating is safe        3 no such partition of this topic
--! include entry_offsets
local log = read_log(KEYS[2])
if log.id ~= ARGV[1] then
  return {3, -1, -1, 1}
end
local done = adopt(log, KEYS[1], KEYS[3], 2 ^ tonumber(ARGV[2]), tonumber(ARGV[3]))
write_log(KEYS[2], log)
return {0, log.leo, log.log_start, done and 1 or 0}
