-- with: stats, seats, choice
-- What would a party get in this subsection? Reads only; the claim decides again.
--
-- KEYS  1 seats_bf  2 section_config  3 section_stats
-- ARGV  1 size  2 accessible  3 worst rung 1-3
-- Returns {how, first seat, available}: how 1-3 as in choice.lua, 0 if nothing fits or it is not on sale
local config = redis.call('HMGET', KEYS[2], 'state', 'rows', 'seats_per_row', 'accessible')
if config[1] ~= 'open' then return {0, 0, 0} end
local stats = read_stats(KEYS[3])
local size = tonumber(ARGV[1])
if stats.available < size then return {0, 0, stats.available} end
local width, map = tonumber(config[3]), redis.call('GET', KEYS[1])
local how, runs = choose(map, config[4] or '', width, config[2] * width, size, tonumber(ARGV[2]), false, tonumber(ARGV[3]))
if not how then return {0, 0, stats.available} end
return {how, runs[1], stats.available}
