-- Shared by the scripts of one subsection: two bits a seat in a string, first seat in the two top bits of the first byte.
--
-- A `map` is a Lua string. Nothing is unpacked: runs of full bytes are skipped by string.find in C, so that the cost follows
-- the number of gaps looked at, not the number of seats. Lua's bit library is 32 bits wide; bytes suffice.
local byte, char, find, sub, rep = string.byte, string.char, string.find, string.sub, string.rep
local band, bor, bnot, lshift, rshift = bit.band, bit.bor, bit.bnot, bit.lshift, bit.rshift
local floor, min = math.floor, math.min

local SEAT_SHIFT = {[0] = 6, 4, 2, 0}
-- Marks the first k seats of a byte as taken, whatever they are.
local BEFORE = {[0] = 0, 0x40, 0x50, 0x54}

local function state_of(map, seat)
  return band(rshift(byte(map, floor(seat / 4) + 1), SEAT_SHIFT[seat % 4]), 3)
end

-- Position 0..3 of the first available seat in a byte, or 4.
local function first_free(b)
  if b < 64 then return 0 end
  if band(b, 0x30) == 0 then return 1 end
  if band(b, 0x0C) == 0 then return 2 end
  if band(b, 0x03) == 0 then return 3 end
  return 4
end

-- How many available seats a byte begins with.
local function free_prefix(b)
  if b >= 64 then return 0 end
  if b >= 16 then return 1 end
  if b >= 4 then return 2 end
  if b >= 1 then return 3 end
  return 4
end

-- The first gap at or after seat `from`: its first seat and its length inside the row; nil when there is none.
local function next_gap(map, from, width, seats)
  if from >= seats then return nil end
  local i = floor(from / 4) + 1
  local b = bor(byte(map, i), BEFORE[from % 4])
  local k = first_free(b)
  while k == 4 do
    i = find(map, '[^\85\170\255]', i + 1)
    if not i then return nil end
    k = first_free(byte(map, i))
    if k == 4 and i * 4 >= seats then return nil end
  end
  local first = (i - 1) * 4 + k
  if first >= seats then return nil end
  local row_end = min((floor(first / width) + 1) * width, seats)
  local stop = first + 1
  -- The rest of this byte seat by seat, then byte by byte until one is not empty.
  while stop < i * 4 and band(rshift(byte(map, i), SEAT_SHIFT[stop % 4]), 3) == 0 do stop = stop + 1 end
  while stop == i * 4 and stop < row_end do
    i = i + 1
    stop = stop + free_prefix(byte(map, i))
  end
  return first, min(stop, row_end) - first
end

-- The map with `length` seats from `first` on set to a state; every one of them must have had the state `was`.
local function set_run(map, first, length, was, state)
  local low, high = floor(first / 4), floor((first + length - 1) / 4)
  local changed = {}
  for i = low, high do
    local b = byte(map, i + 1)
    for seat = math.max(first, i * 4), min(first + length - 1, i * 4 + 3) do
      local shift = SEAT_SHIFT[seat % 4]
      if band(rshift(b, shift), 3) ~= was then
        error({err = 'DRIFT seat ' .. seat .. ' is not in state ' .. was})
      end
      b = bor(band(b, bnot(lshift(3, shift))), lshift(state, shift))
    end
    changed[#changed + 1] = char(b)
  end
  return sub(map, 1, low) .. table.concat(changed) .. sub(map, high + 2), low, high
end

-- The map as somebody sees it for whom the accessible seats are walls. `walls` has 11 at each of them, or is empty.
local function behind_walls(map, walls)
  local i = find(walls, '[^%z]')
  while i do
    map = sub(map, 1, i - 1) .. char(bor(byte(map, i), byte(walls, i))) .. sub(map, i + 1)
    i = find(walls, '[^%z]', i + 1)
  end
  return map
end
