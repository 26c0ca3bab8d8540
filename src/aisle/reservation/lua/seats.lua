-- Shared by the scripts of one subsection: two bits a seat in a string, first seat in the two top bits of the first byte.
--
-- A `map` is a Lua string. Nothing is unpacked; Lua's bit library is 32 bits wide, and bytes suffice.
--
-- The server runs a script from its first line in every call. Each function is then made anew, each local that a function
-- shares is an object of its own, and both are garbage afterwards. So few functions stand at the top, they share few
-- locals, and what only rare cases need is put inside the function that meets the case.

-- Every fifty scripts the server makes the collector pay for fifty kilobytes at once, which the script that meets it
-- waits for. A lazier step makes that payment smaller; an early start keeps the heap small, and so in the core's caches.
local collect = rawget(_G, 'collectgarbage')
if collect then
  collect('setstepmul', 40)
  collect('setpause', 110)
end

local function state_of(map, seat)
  local place = seat % 4
  return bit.band(bit.rshift(string.byte(map, (seat - place) / 4 + 1), 6 - 2 * place), 3)
end

-- The map with `length` seats from `first` on set to a state; every one of them must have had the state `was`.
-- Returns also the first and the last byte that differ. The seats are of one row, so these are few bytes.
local function set_run(map, first, length, was, state)
  local last = first + length - 1
  local low, high = (first - first % 4) / 4, (last - last % 4) / 4
  local changed = ''
  for i = low, high do
    local b = string.byte(map, i + 1)
    for seat = math.max(first, i * 4), math.min(last, i * 4 + 3) do
      local unit = 4 ^ (3 - seat % 4)
      if math.floor(b / unit) % 4 ~= was then error({err = 'DRIFT seat ' .. seat .. ' is not in state ' .. was}) end
      b = b + (state - was) * unit
    end
    changed = changed .. string.char(b)
  end
  return string.sub(map, 1, low) .. changed .. string.sub(map, high + 2), low, high
end
