-- Shared by claim.lua and offer.lua: which seats a party gets. Equal, seat for seat, to `seating.choose` in Python,
-- which explains and proves the rules; here is only the same walk over gaps.
--
-- choose(map, walls, width, seats, size, accessible, partial, worst) -> how, runs | nil, refusal
--   runs   {first, length, first, length, ...} ascending      how   1 adjacent  2 adjacent_orphan  3 split  4 partial
--   worst  the last rung this party accepts: 1, 2 or 3
--
-- A gap is an unbroken run of available seats in a row. Full bytes are skipped by string.find in C, so that the cost
-- follows the number of gaps looked at, not of seats.

-- The first gap at or after seat `from`: its first seat and its length inside the row; nil when there is none.
local function next_gap(map, from, width, seats)
  if from >= seats then return nil end
  local byte, place = string.byte, from % 4
  local i = (from - place) / 4 + 1
  local b = byte(map, i)
  local free = place == 0 and b < 64 and 0 or place < 2 and b % 64 < 16 and 1
    or place < 3 and b % 16 < 4 and 2 or b % 4 == 0 and 3
  while not free do
    -- The set has the bytes of four reserved or sold seats, the commonest first, and that of four blocked ones.
    i = string.find(map, '[^\85\170\86\89\90\101\102\105\106\149\150\153\154\165\166\169\255]', i + 1)
    if not i then return nil end
    b = byte(map, i)
    free = b < 64 and 0 or b % 64 < 16 and 1 or b % 16 < 4 and 2 or b % 4 == 0 and 3
  end
  local first = i * 4 - 4 + free
  if first >= seats then return nil end  -- the padding after the last seat reads as available
  -- Without the seats before the gap, which then look free, the byte tells where the gap stops.
  b = b % 4 ^ (4 - free)
  local row_end, stop = first - first % width + width, i * 4 - 4 + (b == 0 and 4 or b < 4 and 3 or b < 16 and 2 or 1)
  while stop == i * 4 and stop < row_end do
    i = i + 1
    b = byte(map, i)
    stop = stop + (b == 0 and 4 or b < 4 and 3 or b < 16 and 2 or b < 64 and 1 or 0)
  end
  return first, (stop < row_end and stop or row_end) - first
end

-- Left end of the best gap for the party: the first row that strands nobody, an exact fit before a longer gap.
local function side_by_side(map, width, seats, size, worst)
  local from, roomy, roomy_end, tight = 0, nil, nil, nil
  while true do
    local first, length = next_gap(map, from, width, seats)
    if roomy and (not first or first >= roomy_end) then return 1, roomy end
    if not first then break end
    if length == size then return 1, first end
    if length >= size + 2 then
      if (first + length) % width == 0 then return 1, roomy or first end  -- no other gap in this row
      if not roomy then roomy, roomy_end = first, first - first % width + width end
    elseif length == size + 1 and not tight then
      tight = first
    end
    from = first + length
  end
  if tight and worst >= 2 then return 2, tight end
  return nil
end

local function choose(map, walls, width, seats, size, accessible, partial, worst)
  if accessible == 0 and walls == '' then
    local how, first = side_by_side(map, width, seats, size, worst)
    if how then return how, {first, size} end
  end

  -- with: hard_choice

  return choose_hard(map, walls, width, seats, size, accessible, partial, worst)
end
