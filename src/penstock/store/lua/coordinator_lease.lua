-- Take, renew or give up the lease of one coordinator slot.
--
-- KEYS  1 lease
-- ARGV  1 node id   2 run: a random word per process   3 lease ms (0: give it up)
-- Returns {held: 1 | 0, epoch}
--
-- Judged by the store's clock. A process that restarts under the same node id takes its slots back at once: node ids
-- are unique by a lease of their own. The epoch moves when the process changes, so what an earlier one still sends
-- is refused; renewing, or taking back what nobody took meanwhile, keeps it.
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local lease = redis.call('HMGET', KEYS[1], 'node', 'run', 'epoch', 'expires')
local epoch = tonumber(lease[3] or '0')
if lease[1] and lease[1] ~= ARGV[1] and tonumber(lease[4]) > now then
  return {0, epoch}
end
if ARGV[3] == '0' then
  if lease[2] == ARGV[2] then
    redis.call('HSET', KEYS[1], 'expires', '0')
  end
  return {0, epoch}
end
if lease[2] ~= ARGV[2] then
  epoch = epoch + 1
end
redis.call('HSET', KEYS[1], 'node', ARGV[1], 'run', ARGV[2], 'epoch', string.format('%.0f', epoch),
  'expires', string.format('%.0f', now + ARGV[3]))
return {1, epoch}
