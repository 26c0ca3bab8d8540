-- Put inside `choose` (choice.lua), for the parties that come no further there: no gap holds them, they need accessible
-- seats, or the subsection has such seats, which are walls to everybody else.

-- The map as somebody sees it for whom the accessible seats are walls. `walls` has 11 at each of them, or is empty.
local function behind_walls(map, walls)
  local i = string.find(walls, '[^%z]')
  while i do
    map = string.sub(map, 1, i - 1) .. string.char(bit.bor(string.byte(map, i), string.byte(walls, i))) .. string.sub(map, i + 1)
    i = string.find(walls, '[^%z]', i + 1)
  end
  return map
end

-- For a party that no gap holds: shared out over the nearest rows, or told why not.
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

-- with: runs

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

-- Side by side has been tried for parties that see the map as it is.
local function choose_hard(map, walls, width, seats, size, accessible, partial, worst)
  if accessible > 0 then
    if walls == '' then
      local how, why = choose_ordinary(map, width, seats, 1, false, 3)
      return nil, how and 'no_block' or why
    end
    return choose_accessible(map, walls, width, seats, size, accessible, partial, worst)
  end
  if walls == '' then return seat_apart(map, width, seats, size, partial, worst) end
  return choose_ordinary(behind_walls(map, walls), width, seats, size, partial, worst)
end
