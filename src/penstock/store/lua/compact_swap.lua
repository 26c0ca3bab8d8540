-- Put a rewritten log in the place of the old one, with all that was appended meanwhile.
--
-- KEYS  1 log   2 m   3 new     (one partition)
-- ARGV  1 topic id   2 run   3 id up to which `new` is complete   4 entries to copy at most
-- Returns {1} swapped   {0} somebody else began after us, or the topic is gone   {2, id} copied up to id: ask again
local m = redis.call('HMGET', KEYS[2], 'id', 'compacting', 'log_start', 'bytes')
if m[1] ~= ARGV[1] or m[2] ~= ARGV[2] then
  return {0}
end
local limit = tonumber(ARGV[4])
local rest = redis.call('XRANGE', KEYS[1], '(' .. ARGV[3], '+', 'COUNT', limit)
for _, entry in ipairs(rest) do
  redis.call('XADD', KEYS[3], entry[1], unpack(entry[2]))
end
if #rest == limit then
  return {2, rest[#rest][1]}
end
redis.call('XTRIM', KEYS[3], 'MINID', '=', m[3] .. '-0')
redis.call('RENAME', KEYS[3], KEYS[1])
redis.call('HDEL', KEYS[2], 'compacting')
redis.call('HSET', KEYS[2], 'compacted_bytes', m[4])
return {1}
