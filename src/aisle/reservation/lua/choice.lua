-- Shared by claim.lua and offer.lua: which seats a party gets. Equal, seat for seat, to `seating.choose` in Python,
-- which explains and proves the rules; here is only the same walk over gaps.
--
-- choose(map, walls, width, seats, size, accessible, partial, worst) -> how, runs | nil, refusal
--   runs   {first, length, first, length, ...} ascending      how   1 adjacent  2 adjacent_orphan  3 split  4 partial
--   worst  the last rung this party accepts: 1, 2 or 3
--
-- A gap is an unbroken run of available seats in a row. Full bytes are skipped by string.find in C, so that the cost
-- follows the number of gaps looked at, not of seats.

-- Any byte with an available seat. The set names all others, whose four pairs are 01, 10 or 11: 27 ranges of three bytes.
-- A `]` (93) must stand first in a set; after it come the bytes of four like seats, which are the most common.
local HAS_FREE_SEAT = '[^\93-\95\85-\87\169-\171\253-\255\89-\91\101-\103\105-\107\109-\111\117-\119\121-\123\125-\127\149-\151\153-\155\157-\159\165-\167\173-\175\181-\183\185-\187\189-\191\213-\215\217-\219\221-\223\229-\231\233-\235\237-\239\245-\247\249-\251]'

-- How many seats a byte has from its first available one on; nil if none is available.
local function from_first_free(b)
  return b < 64 and 4 or band(b, 0x30) == 0 and 3 or band(b, 0x0C) == 0 and 2 or band(b, 0x03) == 0 and 1 or nil
end

-- The first gap at or after seat `from`: its first seat and its length inside the row; nil when there is none.
local function next_gap(map, from, width, seats)
  if from >= seats then return nil end
  local first = from
  while first % 4 > 0 and state_of(map, first) > 0 do first = first + 1 end
  local i = (first - first % 4) / 4 + 1
  if first % 4 == 0 then
    -- A long set is slow to match, so bytes of four like seats are skipped with a short one first.
    i = string.find(map, '[^\85\170\255]', i)
    if i and not from_first_free(byte(map, i)) then i = string.find(map, HAS_FREE_SEAT, i + 1) end
    if not i then return nil end
    first = i * 4 - from_first_free(byte(map, i))
  end
  if first >= seats then return nil end  -- the padding after the last seat reads as available
  local b, stop, row_end = byte(map, i), first + 1, first - first % width + width
  while stop < i * 4 and band(rshift(b, 6 - 2 * (stop % 4)), 3) == 0 do stop = stop + 1 end
  while stop == i * 4 and stop < row_end do
    i = i + 1
    b = byte(map, i)
    stop = stop + (b == 0 and 4 or b < 4 and 3 or b < 16 and 2 or b < 64 and 1 or 0)
  end
  return first, math.min(stop, row_end) - first
end

-- The map as somebody sees it for whom the accessible seats are walls. `walls` has 11 at each of them, or is empty.
local function behind_walls(map, walls)
  local i = string.find(walls, '[^%z]')
  while i do
    map = string.sub(map, 1, i - 1) .. string.char(bit.bor(byte(map, i), byte(walls, i))) .. string.sub(map, i + 1)
    i = string.find(walls, '[^%z]', i + 1)
  end
  return map
end

-- Left end of the best gap for the party: the first row that strands nobody, an exact fit before a longer gap.
local function side_by_side(map, width, seats, size, worst)
  local from, roomy, roomy_row, tight = 0, nil, nil, nil
  while true do
    local first, length = next_gap(map, from, width, seats)
    if roomy and (not first or math.floor(first / width) > roomy_row) then return 1, roomy end
    if not first then break end
    if length == size then return 1, first end
    if length >= size + 2 then
      if (first + length) % width == 0 then return 1, roomy or first end  -- no other gap in this row
      if not roomy then roomy, roomy_row = first, math.floor(first / width) end
    elseif length == size + 1 and not tight then
      tight = first
    end
    from = first + length
  end
  if tight and worst >= 2 then return 2, tight end
  return nil
end

-- For a party that no gap holds: shared out over the nearest rows, or told why not. Few parties come here, so its functions
-- are made inside it and cost the others nothing.
local function seat_apart(view, width, seats, size, partial, worst)
  local function all_gaps()
    local starts, lengths, count, total, from = {}, {}, 0, 0, 0
    while true do
      local first, length = next_gap(view, from, width, seats)
      if not first then return starts, lengths, count, total end
      count = count + 1
      starts[count], lengths[count] = first, length
      total, from = total + length, first + length
    end
  end

  local function people_alone(paired, singles, wide)
    if paired >= size then
      if size % 2 == 1 and wide == 0 then return 1 end
      return 0
    end
    if paired + singles >= size then return size - paired end
    return size + 1
  end

  local function nearest_rows(starts, lengths, count, rows)
    local paired, singles, wide = {}, {}, {}
    for row = 1, rows do paired[row], singles[row], wide[row] = 0, 0, 0 end
    local all_paired, all_singles, all_wide = 0, 0, 0
    for g = 1, count do
      local row, length = math.floor(starts[g] / width) + 1, lengths[g]
      if length == 1 then
        singles[row] = singles[row] + 1
        all_singles = all_singles + 1
      else
        paired[row] = paired[row] + length
        all_paired = all_paired + length
      end
      if length >= 3 then
        wide[row] = wide[row] + 1
        all_wide = all_wide + 1
      end
    end
    local fewest = people_alone(all_paired, all_singles, all_wide)
    local best_first, best_last, first, p, s, w = 1, rows, 1, 0, 0, 0
    for last = 1, rows do
      p, s, w = p + paired[last], s + singles[last], w + wide[last]
      while first <= last and people_alone(p - paired[first], s - singles[first], w - wide[first]) == fewest do
        p, s, w = p - paired[first], s - singles[first], w - wide[first]
        first = first + 1
      end
      if first <= last and people_alone(p, s, w) == fewest and last - first < best_last - best_first then
        best_first, best_last = first, last
      end
    end
    return best_first, best_last
  end

  local function split(starts, lengths, count, rows)
    local first_row, last_row = nearest_rows(starts, lengths, count, rows)
    local near = {}
    for g = 1, count do
      local row = math.floor(starts[g] / width) + 1
      if row >= first_row and row <= last_row then near[#near + 1] = g end
    end
    table.sort(near, function(a, b)
      if lengths[a] ~= lengths[b] then return lengths[a] > lengths[b] end
      return starts[a] < starts[b]
    end)
    local used, held = {}, 0
    for _, g in ipairs(near) do
      if held >= size then break end
      used[#used + 1] = g
      held = held + lengths[g]
    end
    table.sort(used)
    local shares, dealt = {}, 0
    for i = 1, #used do shares[i] = 0 end
    while dealt < size do
      for i, g in ipairs(used) do
        if dealt < size and shares[i] < lengths[g] then
          shares[i] = shares[i] + 1
          dealt = dealt + 1
        end
      end
    end
    local runs = {}
    for i, g in ipairs(used) do
      if shares[i] > 0 then
        runs[#runs + 1] = starts[g]
        runs[#runs + 1] = shares[i]
      end
    end
    return runs
  end

  local starts, lengths, count, usable = all_gaps()
  if usable == 0 then return nil, 'sold_out' end
  if usable < size then
    if not partial or worst < 3 then return nil, 'no_block' end
    local runs = {}
    for g = 1, count do
      runs[#runs + 1] = starts[g]
      runs[#runs + 1] = lengths[g]
    end
    return 4, runs
  end
  if worst < 3 then return nil, 'no_block' end
  return 3, split(starts, lengths, count, math.floor(seats / width))
end

local function choose_ordinary(view, width, seats, size, partial, worst)
  local how, first = side_by_side(view, width, seats, size, worst)
  if how then return how, {first, size} end
  return seat_apart(view, width, seats, size, partial, worst)
end

-- Runs of an ascending list of seats. A run never crosses into the next row.
local function runs_of(list, width)
  local runs = {}
  for _, seat in ipairs(list) do
    local last = #runs
    if last > 0 and runs[last - 1] + runs[last] == seat and seat % width ~= 0 then
      runs[last] = runs[last] + 1
    else
      runs[last + 1], runs[last + 2] = seat, 1
    end
  end
  return runs
end

local function choose_accessible(map, walls, width, seats, size, accessible, partial, worst)
  local function best_block()
    local best, best_spare, best_strands, from = nil, nil, nil, 0
    while true do
      local first, length = next_gap(map, from, width, seats)
      if not first then return best, best_strands end
      local inside = 0
      for seat = first, first + math.min(size, length) - 1 do
        if state_of(walls, seat) == 3 then inside = inside + 1 end
      end
      for left = 0, length - size do
        if left > 0 then
          if state_of(walls, first + left - 1) == 3 then inside = inside - 1 end
          if state_of(walls, first + left + size - 1) == 3 then inside = inside + 1 end
        end
        local strands = left == 1 or length - size - left == 1
        if inside >= accessible and (not best or inside < best_spare or (inside == best_spare and best_strands and not strands)) then
          best, best_spare, best_strands = first + left, inside, strands
        end
      end
      from = first + length
    end
  end

  local free, kept, from = 0, {}, 0
  while true do
    local first, length = next_gap(map, from, width, seats)
    if not first then break end
    free = free + length
    for seat = first, first + length - 1 do
      if state_of(walls, seat) == 3 then kept[#kept + 1] = seat end
    end
    from = first + length
  end
  if free == 0 then return nil, 'sold_out' end
  if #kept < accessible then return nil, 'no_block' end
  local best, strands = best_block()
  if best and not (strands and worst < 2) then return strands and 2 or 1, {best, size} end
  if worst < 3 then return nil, 'no_block' end
  local list, others, how = {}, size - accessible, 3
  for i = 1, accessible do list[i] = kept[i] end
  if others > 0 then
    local ordinary_how, runs = choose_ordinary(behind_walls(map, walls), width, seats, others, partial, 3)
    if not ordinary_how then
      -- Nobody else fits. Those who need accessible seats are seated alone only if the party said so.
      if not partial then return nil, 'no_block' end
      runs = {}
    end
    if ordinary_how == 4 or not ordinary_how then how = 4 end
    for i = 1, #runs, 2 do
      for seat = runs[i], runs[i] + runs[i + 1] - 1 do list[#list + 1] = seat end
    end
  end
  table.sort(list)
  return how, runs_of(list, width)
end

local function choose(map, walls, width, seats, size, accessible, partial, worst)
  if accessible > 0 then
    if #walls == 0 then
      local how, why = choose_ordinary(map, width, seats, 1, false, 3)
      return nil, how and 'no_block' or why
    end
    return choose_accessible(map, walls, width, seats, size, accessible, partial, worst)
  end
  if #walls > 0 then map = behind_walls(map, walls) end
  return choose_ordinary(map, width, seats, size, partial, worst)
end
