-- with: record, stats
-- Give a hold more time, up to the cap counted from when it was taken.
--
-- KEYS  1 section_config  2 holds  3 locks:exp
-- ARGV  1 epoch  2 hold id  3 owner  4 operation id  5 more ms, from now  6 cap ms, from when it was taken
-- Returns {code, deadline ms}
--   ok  extended now, or by an earlier call with this operation id     limit  the cap is reached: the deadline stays
--   closed  fenced  unknown  not_owner     expired  ended, sold, past its deadline, or a booking, whose deadline is elsewhere
local epoch = redis.call('HGET', KEYS[1], 'epoch')
if not epoch then return {'closed', 0} end
if epoch ~= ARGV[1] then return {'fenced', 0} end
local text = redis.call('HGET', KEYS[2], ARGV[2])
if not text then return {'unknown', 0} end
local r = parse_record(text)
if r.owner ~= ARGV[3] then return {'not_owner', 0} end
local now = now_ms()
if r.state ~= 'L' or r.deadline == 0 or now >= r.deadline then return {'expired', 0} end
if r.note == ARGV[4] then return {'ok', string.format('%d', r.deadline)} end
local wanted = math.min(now + tonumber(ARGV[5]), r.taken + tonumber(ARGV[6]))
if wanted <= r.deadline then return {'limit', string.format('%d', r.deadline)} end
r.deadline, r.note = wanted, ARGV[4]
redis.call('ZCARD', KEYS[3])
redis.call('HSET', KEYS[2], ARGV[2], record_text(r))
redis.call('ZADD', KEYS[3], string.format('%d', wanted), ARGV[2])
return {'ok', string.format('%d', wanted)}
