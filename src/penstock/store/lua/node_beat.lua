-- Renew one broker's lease and list the live ones.
--
-- KEYS  1 nodes
-- ARGV  1 node id   2 host   3 port   4 lease ms (0: give the lease up)   5 run: a random word per process
-- Returns {code, id, "host port expires run", id, ...}
--   1 renewed   0 another live process uses this node id with another address
--
-- Leases are judged by the store's clock, so brokers need not agree about the time.
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local all = redis.call('HGETALL', KEYS[1])
for i = 1, #all, 2 do
  local host, port, expires, run = string.match(all[i + 1], '^(%S+) (%d+) (%d+) (%S+)$')
  if tonumber(expires) <= now then
    redis.call('HDEL', KEYS[1], all[i])
  elseif all[i] == ARGV[1] and run ~= ARGV[5] and (host ~= ARGV[2] or port ~= ARGV[3]) then
    return {0}
  end
end
if ARGV[4] == '0' then
  redis.call('HDEL', KEYS[1], ARGV[1])
else
  redis.call('HSET', KEYS[1], ARGV[1], string.format('%s %s %.0f %s', ARGV[2], ARGV[3], now + ARGV[4], ARGV[5]))
end
local live = redis.call('HGETALL', KEYS[1])
table.insert(live, 1, 1)
return live
