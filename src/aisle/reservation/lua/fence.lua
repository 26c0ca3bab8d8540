-- Take one subsection off sale and into a new epoch, before it is rebuilt: whoever works on the old state is fenced.
--
-- KEYS  1 section_config
-- ARGV  1 the greatest epoch known outside the store
-- Returns {new epoch, state}: the state is `rebuilding` if it was on sale, which is how a rebuild that follows a killed
--   one still knows that it has to be put on sale again; else `closed`. {'', ''} if there is no such subsection.
local function field(name)
  local value = redis.pcall('HGET', KEYS[1], name)
  -- A key of another type under this name is damage that the rebuild replaces; it has no epoch.
  return type(value) == 'string' and value or nil
end

local epoch, state = field('epoch'), field('state')
if not epoch then return {'', ''} end
local new = string.format('%d', math.max(tonumber(epoch) or 0, tonumber(ARGV[1])) + 1)
local now = (state == 'open' or state == 'rebuilding') and 'rebuilding' or 'closed'
redis.call('HSET', KEYS[1], 'epoch', new, 'state', now)
return {new, now}
