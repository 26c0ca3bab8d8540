-- Included by the append scripts: what a partition remembers of a producer, and whether a batch follows it.
--
-- State of a producer: "<epoch> <ms> <first>:<last>:<base> ...", the last five batches, newest last.
-- producer_verdict(key, id, epoch, first sequence, count) returns code, duplicate base or nil, list of batches to keep
--   0 follows (or the producer is unknown: any sequence may start)   45 a sequence is missing   47 an older epoch
local SEQUENCES = 2147483648

local function producer_verdict(key, id, epoch, first, count)
  local last = (first + count - 1) % SEQUENCES
  local state = redis.call('HGET', key, id)
  local kept = {}
  if not state then
    return 0, nil, kept
  end
  local known_epoch = tonumber(string.match(state, '^(%-?%d+)'))
  if epoch < known_epoch then
    return 47, nil, kept
  end
  local known_last = -1
  if epoch == known_epoch then
    for f, l, b in string.gmatch(state, '(%d+):(%d+):(%d+)') do
      if tonumber(f) == first and tonumber(l) == last then
        return 0, tonumber(b), kept
      end
      known_last = tonumber(l)
      kept[#kept + 1] = f .. ':' .. l .. ':' .. b
    end
  end
  if first ~= (known_last + 1) % SEQUENCES then
    return 45, nil, kept
  end
  return 0, nil, kept
end

local function remember_producer(key, id, epoch, now_ms, kept, first, count, base)
  kept[#kept + 1] = string.format('%.0f:%.0f:%.0f', first, (first + count - 1) % SEQUENCES, base)
  if #kept > 5 then
    table.remove(kept, 1)
  end
  redis.call('HSET', key, id, epoch .. ' ' .. now_ms .. ' ' .. table.concat(kept, ' '))
end
