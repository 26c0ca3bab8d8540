-- Write or forget the record of a transactional id, if it is still what the caller saw and we still coordinate it.
--
-- KEYS  1 lease   2 ids   3 due   4 record
-- ARGV  1 epoch of our lease   2 transactional id   3 the record the caller saw ('' if none)
--       4 the new record ('' forgets the id)   5 when somebody has to look at it, ms
-- Returns 1 written   0 another coordinator has the slot   -1 it changed: look again
if redis.call('HGET', KEYS[1], 'epoch') ~= ARGV[1] then
  return 0
end
if (redis.call('GET', KEYS[4]) or '') ~= ARGV[3] then
  return -1
end
if ARGV[4] == '' then
  redis.call('DEL', KEYS[4])
  redis.call('SREM', KEYS[2], ARGV[2])
  redis.call('ZREM', KEYS[3], ARGV[2])
else
  redis.call('SET', KEYS[4], ARGV[4])
  redis.call('SADD', KEYS[2], ARGV[2])
  redis.call('ZADD', KEYS[3], ARGV[5], ARGV[2])
end
return 1
