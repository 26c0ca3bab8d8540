-- A buyer's cart, and the time by the clock that its deadline is kept in. Reads only.
--
-- KEYS  1 cart
-- Returns {cart or empty, now ms}
local t = redis.call('TIME')
return {redis.call('GET', KEYS[1]) or '', string.format('%d', t[1] * 1000 + math.floor(t[2] / 1000))}
