-- Find where a log must begin to hold at least so many bytes and not a batch more.
--
-- KEYS  1 log   2 m     (one partition)
-- ARGV  1 topic id   2 bytes to keep
-- Returns the base of the search: the first offset to keep, or -1 if there is nothing to drop
--
-- Ids carry the bytes written so far, so this is a binary search over offsets, 53 steps at most.
local m = redis.call('HMGET', KEYS[2], 'id', 'leo', 'log_start', 'bytes')
if m[1] ~= ARGV[1] then
  return -1
end
local droppable = tonumber(m[4]) - tonumber(ARGV[2])
local low, high = tonumber(m[3]), tonumber(m[2])
local found = -1
for _ = 1, 54 do
  if low >= high then
    break
  end
  local middle = math.floor((low + high) / 2)
  local entry = redis.call('XRANGE', KEYS[1], string.format('%.0f-0', middle), '+', 'COUNT', 1)
  if not entry[1] then
    high = middle
  else
    local last, bytes = string.match(entry[1][1], '^(%d+)%-(%d+)$')
    if tonumber(bytes) <= droppable then
      found = tonumber(last) + 1
      low = found
    else
      high = middle
    end
  end
end
return found
