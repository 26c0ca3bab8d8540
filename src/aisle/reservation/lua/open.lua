-- Create one subsection, closed. Selling begins when switch.lua opens it.
--
-- KEYS  1 seats_bf  2 section_config  3 section_stats  4 row_avail  5 seat_meta  6 holds  7 locks:exp
-- ARGV  1 epoch  2 rows  3 seats per row  4 price  5 limit  6 map: 3 where a seat is blocked, else 0
--       7 walls: 3 where a seat is accessible, or empty
-- Returns  1 created now   0 it exists with exactly this configuration, or was rebuilt since: repeating is safe
--         -1 it exists with another one
local wanted = {ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[7]}
local found = redis.call('HMGET', KEYS[2], 'epoch', 'rows', 'seats_per_row', 'price', 'limit', 'accessible', 'priced')
if found[1] then
  -- Whoever rebuilt it knew better than a message that opened it before.
  if tonumber(found[1]) > tonumber(ARGV[1]) then return 0 end
  -- A price that was changed since is newer than the one it was opened with.
  if found[7] then wanted[4] = found[4] end
  for i, value in ipairs(wanted) do
    if (found[i] or '') ~= value then return -1 end
  end
  return 0
end
-- Leftovers of something else under these names would be sold as ours.
if redis.call('EXISTS', KEYS[1], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7]) > 0 then
  error({err = 'DRIFT keys of this subsection exist without its configuration'})
end

local rows, width, map = tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[6]
local blocked, counts = 0, {}
for row = 1, rows do
  local free = width
  for seat = (row - 1) * width, row * width - 1 do
    local cell = string.byte(map, math.floor(seat / 4) + 1)
    if bit.band(bit.rshift(cell, 6 - 2 * (seat % 4)), 3) ~= 0 then free = free - 1 end
  end
  blocked = blocked + width - free
  counts[2 * row - 1], counts[2 * row] = row, free
end
local t = redis.call('TIME')
redis.call('SET', KEYS[1], map)
redis.call('HSET', KEYS[3], 'available', rows * width - blocked, 'reserved', 0, 'sold', 0, 'unavailable', blocked,
  'total', rows * width, 'version', 1, 'updated_at', string.format('%d', t[1] * 1000))
for i = 1, #counts, 2000 do redis.call('HSET', KEYS[4], unpack(counts, i, math.min(i + 1999, #counts))) end
redis.call('HSET', KEYS[2], 'epoch', ARGV[1], 'state', 'closed', 'rows', ARGV[2], 'seats_per_row', ARGV[3], 'price', ARGV[4],
  'limit', ARGV[5], 'accessible', ARGV[7])
return 1
