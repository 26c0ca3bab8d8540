-- Put one subsection on sale, or take it off. Seats that are taken stay taken.
--
-- KEYS  1 section_config
-- ARGV  1 epoch  2 open | closed  3 price, or empty to keep it: live claims keep the price they were made at
-- Returns  1 done   -1 no such subsection   -2 the caller's epoch is not the subsection's
local epoch = redis.call('HGET', KEYS[1], 'epoch')
if not epoch then return -1 end
if epoch ~= ARGV[1] then return -2 end
redis.call('HSET', KEYS[1], 'state', ARGV[2])
if ARGV[3] ~= '' then redis.call('HSET', KEYS[1], 'price', ARGV[3]) end
return 1
