-- Forget producers that have been silent for long. One with an open transaction is kept.
--
-- KEYS  1 pid   2 open     (one partition)
-- ARGV  1 silent since ms   2 how many to forget at most
-- Returns how many were forgotten
local all = redis.call('HGETALL', KEYS[1])
local forgotten = 0
for i = 1, #all, 2 do
  if forgotten >= tonumber(ARGV[2]) then
    break
  end
  local last = string.match(all[i + 1], '^%-?%d+ (%d+)')
  if last and tonumber(last) < tonumber(ARGV[1]) and not redis.call('ZSCORE', KEYS[2], all[i]) then
    redis.call('HDEL', KEYS[1], all[i])
    forgotten = forgotten + 1
  end
end
return forgotten
