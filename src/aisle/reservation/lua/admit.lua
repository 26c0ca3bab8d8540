-- Write down that these runs of the store's servers were verified, so that seats may be claimed from them.
--
-- KEYS  1 generation
-- ARGV  1 installation  2 fresh: 1 if an unmarked store may be marked as ours  3 how many runs to remember
--       then the run ids
-- Returns  1 done   -1 the store belongs to another installation   -2 the store is unmarked: new, or flushed
local owner = redis.call('HGET', KEYS[1], 'installation')
if owner and owner ~= ARGV[1] then return -1 end
if not owner and ARGV[2] ~= '1' then return -2 end
local t = redis.call('TIME')
local now = string.format('%d', t[1] * 1000 + math.floor(t[2] / 1000))
redis.call('HSET', KEYS[1], 'installation', ARGV[1])
for i = 4, #ARGV do redis.call('HSET', KEYS[1], 'run:' .. ARGV[i], now) end

-- Every restart adds a run. The oldest are forgotten; forgetting one that lives only closes the gate until it is verified.
local flat, runs = redis.call('HGETALL', KEYS[1]), {}
for i = 1, #flat, 2 do
  if string.sub(flat[i], 1, 4) == 'run:' then runs[#runs + 1] = {flat[i], tonumber(flat[i + 1]) or 0} end
end
table.sort(runs, function(a, b) return a[2] > b[2] or (a[2] == b[2] and a[1] < b[1]) end)
for i = tonumber(ARGV[3]) + 1, #runs do redis.call('HDEL', KEYS[1], runs[i][1]) end
return 1
