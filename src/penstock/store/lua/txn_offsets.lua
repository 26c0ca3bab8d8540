-- Keep offsets of a group until the transaction that wants to commit them ends.
--
-- KEYS  1 lease   2 gtxn   3 pend     (one group)
-- ARGV  1 epoch of our lease   2 producer id   3 producer epoch   4.. field, value pairs
-- Returns 1 kept (repeating is safe)   0 another coordinator has the slot
--         47 an older producer epoch   48 the group is not part of an open transaction of this producer
if redis.call('HGET', KEYS[1], 'epoch') ~= ARGV[1] then
  return 0
end
local state = string.match(redis.call('HGET', KEYS[2], ARGV[2]) or '', '^%d+ %d+ (%w+)$')
local epoch = tonumber(state or '')
if not epoch then
  return 48
end
if epoch ~= tonumber(ARGV[3]) then
  return epoch > tonumber(ARGV[3]) and 47 or 48
end
for i = 4, #ARGV, 2 do
  redis.call('HSET', KEYS[3], ARGV[2] .. ':' .. ARGV[i], ARGV[i + 1])
end
return 1
