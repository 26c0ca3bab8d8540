-- Everything the store knows of one pool, as one consistent picture. For verification and inspection.
--
-- KEYS  1 pool  2 pool_holds  3 locks:exp
-- Returns {store's clock in ms, pool, records and pointers, index}: flat field-value lists; the index as member-score
local t = redis.call('TIME')
return {t[1] * 1000 + math.floor(t[2] / 1000), redis.call('HGETALL', KEYS[1]), redis.call('HGETALL', KEYS[2]),
  redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', '+inf', 'WITHSCORES')}
