-- Create one pool, closed. Selling begins when pool_switch.lua opens it.
--
-- KEYS  1 pool  2 pool_holds  3 locks:exp
-- ARGV  1 epoch  2 capacity  3 price  4 limit: places one claim may take  5 one_per_buyer 0|1
-- Returns  1 created now   0 it exists with exactly this configuration, or was rebuilt since: repeating is safe
--         -1 it exists with another one
--
-- Looking and creating are one step, so that a late opener never overwrites what was sold meanwhile.
local found = redis.call('HMGET', KEYS[1], 'epoch', 'capacity', 'price', 'limit', 'one_per_buyer', 'priced')
if found[1] then
  -- Whoever rebuilt it knew better than a message that opened it before.
  if tonumber(found[1]) > tonumber(ARGV[1]) then return 0 end
  for i = 1, 5 do
    -- A price that was changed since is newer than the one it was opened with.
    if found[i] ~= ARGV[i] and not (i == 3 and found[6]) then return -1 end
  end
  return 0
end
-- Leftovers of something else under these names would be counted as ours.
if redis.call('EXISTS', KEYS[1], KEYS[2], KEYS[3]) > 0 then
  error({err = 'DRIFT keys of this pool exist without its configuration'})
end
local t = redis.call('TIME')
redis.call('HSET', KEYS[1], 'epoch', ARGV[1], 'state', 'closed', 'capacity', ARGV[2], 'held', 0, 'sold', 0, 'price', ARGV[3],
  'limit', ARGV[4], 'one_per_buyer', ARGV[5], 'version', 1,
  'updated_at', string.format('%d', t[1] * 1000 + math.floor(t[2] / 1000)))
return 1
