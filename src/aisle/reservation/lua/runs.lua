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
