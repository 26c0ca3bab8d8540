-- Shared by the scripts of one subsection: the store's clock, and the counters of `section_stats`.

local function now_ms()
  local t = redis.call('TIME')
  return t[1] * 1000 + math.floor(t[2] / 1000)
end

-- Numbers of section_stats, or an error before anything is written: a counter that is no number is drift, not zero.
local function read_stats(key)
  local raw = redis.call('HMGET', key, 'available', 'reserved', 'sold', 'version')
  local stats = {available = tonumber(raw[1]), reserved = tonumber(raw[2]), sold = tonumber(raw[3]), version = tonumber(raw[4])}
  if not (stats.available and stats.reserved and stats.sold and stats.version) then
    error({err = 'DRIFT section_stats is incomplete'})
  end
  return stats
end

-- Called before the first write: an error after it would leave half of a script's work behind.
local function check_stats(stats)
  if stats.available < 0 or stats.reserved < 0 or stats.sold < 0 then
    error({err = 'DRIFT a counter would become negative'})
  end
end

local function write_stats(key, stats, now)
  redis.call('HSET', key, 'available', stats.available, 'reserved', stats.reserved, 'sold', stats.sold,
    'version', stats.version + 1, 'updated_at', string.format('%d', now))
end
