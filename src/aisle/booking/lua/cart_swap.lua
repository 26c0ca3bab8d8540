-- Replace a buyer's cart, unless somebody has changed it since the caller read it.
--
-- KEYS  1 cart
-- ARGV  1 the cart that was read, or empty  2 the next one, or empty: none is left  3 how long to keep it, in ms
-- Returns 1 if the cart is the next one now, by this call or an earlier one; 0 if it is another one
local found = redis.call('GET', KEYS[1]) or ''
if found == ARGV[2] then return 1 end
if found ~= ARGV[1] then return 0 end
if ARGV[2] == '' then
  redis.call('DEL', KEYS[1])
else
  redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
end
return 1
