-- Start-up probe: does this server keep a seat map as a plain string that scripts can edit?
--
-- KEYS  1 a fresh key of the probe's own
-- Returns {bytes, type}: four bytes of which the first seat of the second is reserved, and "string"
redis.call('SET', KEYS[1], '\0\0\0\0')
local cell = string.byte(redis.call('GETRANGE', KEYS[1], 1, 1))
redis.call('SETRANGE', KEYS[1], 1, string.char(bit.bor(cell, 64)))
local bytes, kind = redis.call('GETRANGE', KEYS[1], 0, -1), redis.call('TYPE', KEYS[1])
redis.call('DEL', KEYS[1])
return {bytes, kind.ok or kind}
