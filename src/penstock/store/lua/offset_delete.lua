-- Delete offsets of one group, if we are still its coordinator and they are as the caller saw them.
--
-- KEYS  1 lease   2 offsets
-- ARGV  1 epoch of our lease   2.. field, value pairs; '' as a value deletes whatever is there
-- Returns how many are gone, or -1 if another coordinator has the slot
if redis.call('HGET', KEYS[1], 'epoch') ~= ARGV[1] then
  return -1
end
local gone = 0
for i = 2, #ARGV, 2 do
  if ARGV[i + 1] == '' or redis.call('HGET', KEYS[2], ARGV[i]) == ARGV[i + 1] then
    gone = gone + redis.call('HDEL', KEYS[2], ARGV[i])
  end
end
return gone
