-- End a transaction in one group: its waiting offsets become the group's, or are dropped.
--
-- KEYS  1 groups   2 offsets   3 gtxn   4 pend     (one group)
-- ARGV  1 group name   2 producer id   3 transaction number   4 commit: 1 | 0   5 now ms   6 how many may be forgotten
--       7 producers that ended before this time are forgotten, ms
-- Returns how many offsets were moved or dropped; 0 if it was done before: repeating is safe
local function sent_ms(offset)
  return tonumber(string.match(offset or '', '^%-?%d+ %-?%d+ (%d+)') or '0')
end

local seen = string.match(redis.call('HGET', KEYS[3], ARGV[2]) or '', '^(%d+)')
if seen and tonumber(seen) > tonumber(ARGV[3]) then
  return 0
end
redis.call('HSET', KEYS[3], ARGV[2], ARGV[3] .. ' ' .. ARGV[5] .. ' ended')
-- A deleted group leaves nothing behind; no transaction and no late request lives for days.
redis.call('PEXPIRE', KEYS[3], 172800000)
local waiting, mine, done = redis.call('HGETALL', KEYS[4]), ARGV[2] .. ':', 0
for i = 1, #waiting, 2 do
  if string.sub(waiting[i], 1, #mine) == mine then
    local field = string.sub(waiting[i], #mine + 1)
    -- An offset that was committed without a transaction since this one was sent is the newer word.
    if ARGV[4] == '1' and sent_ms(redis.call('HGET', KEYS[2], field)) <= sent_ms(waiting[i + 1]) then
      redis.call('HSET', KEYS[2], field, waiting[i + 1])
    end
    redis.call('HDEL', KEYS[4], waiting[i])
    done = done + 1
  end
end
if done > 0 and ARGV[4] == '1' then
  redis.call('SADD', KEYS[1], ARGV[1])
end
if redis.call('HLEN', KEYS[3]) > 100 then
  local all, left = redis.call('HGETALL', KEYS[3]), tonumber(ARGV[6])
  for i = 1, #all, 2 do
    local at, state = string.match(all[i + 1], '^%d+ (%d+) (%w+)$')
    if left > 0 and state == 'ended' and tonumber(at) < tonumber(ARGV[7]) then
      redis.call('HDEL', KEYS[3], all[i])
      left = left - 1
    end
  end
end
return done
