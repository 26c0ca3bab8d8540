-- Forget producers that have been silent for long. One with an open transaction is kept.
--
-- KEYS  1 pid   2 open   3 txn     (one partition)
-- ARGV  1 silent since ms   2 how many to forget at most
-- Returns how many were forgotten
local since, left = tonumber(ARGV[1]), tonumber(ARGV[2])
local forgotten = 0
local all = redis.call('HGETALL', KEYS[1])
for i = 1, #all, 2 do
  if forgotten >= left then
    break
  end
  local last = string.match(all[i + 1], '^%-?%d+ (%d+)')
  if last and tonumber(last) < since and not redis.call('ZSCORE', KEYS[2], all[i]) then
    redis.call('HDEL', KEYS[1], all[i])
    forgotten = forgotten + 1
  end
end
-- The numbers of transactions that ended here, which keep late enrolments and markers out.
local numbers = redis.call('HGETALL', KEYS[3])
for i = 1, #numbers, 2 do
  local pid, last = string.match(numbers[i], '^(%d+):n$'), string.match(numbers[i + 1], '^%d+ (%d+)$')
  if left > 0 and pid and tonumber(last) < since and redis.call('HEXISTS', KEYS[3], pid) == 0 then
    redis.call('HDEL', KEYS[3], numbers[i])
    left = left - 1
  end
end
return forgotten
