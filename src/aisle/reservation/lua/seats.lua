-- Shared by the scripts of one subsection: two bits a seat in a string, first seat in the two top bits of the first byte.
--
-- A `map` is a Lua string. Nothing is unpacked; Lua's bit library is 32 bits wide, and bytes suffice.
--
-- A shared file costs time in every call, used or not: the server runs it from its first line, so each function is made
-- anew, and each local that functions share is an object of its own. So files are loaded where they are needed, few
-- locals are shared, and functions for rare cases are made inside the function that meets the case.
local byte, band, rshift = string.byte, bit.band, bit.rshift

-- Every fifty scripts the server makes the collector pay for fifty kilobytes at once, which the script that meets it
-- waits for. A lazier collector pays in smaller coins, for a little more memory.
local collect = rawget(_G, 'collectgarbage')
if collect then collect('setstepmul', 40) end

local function state_of(map, seat)
  local place = seat % 4
  return band(rshift(byte(map, (seat - place) / 4 + 1), 6 - 2 * place), 3)
end

-- The map with `length` seats from `first` on set to a state; every one of them must have had the state `was`.
-- Returns also the first and the last byte that differ. The seats are of one row, so these are few bytes.
local function set_run(map, first, length, was, state)
  local last = first + length - 1
  local low, high = math.floor(first / 4), math.floor(last / 4)
  local changed = ''
  for i = low, high do
    local b = byte(map, i + 1)
    for seat = math.max(first, i * 4), math.min(last, i * 4 + 3) do
      local shift = 6 - 2 * (seat % 4)
      if band(rshift(b, shift), 3) ~= was then
        error({err = 'DRIFT seat ' .. seat .. ' is not in state ' .. was})
      end
      b = b + bit.lshift(state - was, shift)
    end
    changed = changed .. string.char(b)
  end
  return string.sub(map, 1, low) .. changed .. string.sub(map, high + 2), low, high
end
