-- Whose are these seats? Reads only.
--
-- KEYS  1 seat_meta  2 holds
-- ARGV  names of seats, `row-seat`
-- Returns for each seat {id, record}, or an empty list if nobody has it
local ids, answers = redis.call('HMGET', KEYS[1], unpack(ARGV)), {}
for i, id in ipairs(ids) do
  answers[i] = id and {id, redis.call('HGET', KEYS[2], id) or ''} or {}
end
return answers
