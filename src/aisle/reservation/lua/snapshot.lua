-- Everything the store knows of one subsection, as one consistent picture. For verification and inspection.
--
-- KEYS  1 seats_bf  2 section_config  3 section_stats  4 row_avail  5 seat_meta  6 holds  7 locks:exp
-- Returns {map, config, stats, rows, owners, records, index}: flat field-value lists; the index as member-score
return {redis.call('GET', KEYS[1]), redis.call('HGETALL', KEYS[2]), redis.call('HGETALL', KEYS[3]),
  redis.call('HGETALL', KEYS[4]), redis.call('HGETALL', KEYS[5]), redis.call('HGETALL', KEYS[6]),
  redis.call('ZRANGEBYSCORE', KEYS[7], '-inf', '+inf', 'WITHSCORES')}
