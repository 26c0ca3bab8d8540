// Halls in pretix's open seating-plan format: https://github.com/pretix/pretix, seating-plan.schema.json.
//
// A category is a section, a zone a block. Seats that are not for sale are left out; a wheelchair place has a category
// of its own, named after its section. What the format has no word for (prices, pools) is not in it.

const STEP = 20;
const ACCESSIBLE = " accessible";
const SEATS_MAX = 100_000;
// A row with gaps wider than its seats is taken as one without gaps.
const GAPS_MAX = 2;

export function toPretix(name, subsections) {
  const zones = [];
  const categories = new Set();
  let [x, y, depth, width, section] = [0, 0, 0, 0, null];
  for (const sub of subsections) {
    if (section !== null && sub.section !== section) [x, y, depth] = [0, y + depth + 2 * STEP, 0];
    section = sub.section;
    const rows = rowsOf(sub);
    for (const seat of rows.flatMap((row) => row.seats)) categories.add(seat.category);
    zones.push({ name: `${section} ${sub.subsection}`, position: { x, y }, rows, areas: [] });
    x += (sub.seats_per_row + 2) * STEP;
    depth = Math.max(depth, sub.rows * STEP);
    width = Math.max(width, x);
  }
  const listed = [...categories].map((category) => ({ name: category }));
  return { name, categories: listed, zones, size: { width, height: y + depth } };
}

function rowsOf({ section, subsection, rows, seats_per_row, blocked, accessible }) {
  const [holes, wheels] = [new Set(blocked), new Set(accessible)];
  return Array.from({ length: rows }, (_, row) => ({
    row_number: String(row + 1),
    position: { x: 0, y: row * STEP },
    seats: Array.from({ length: seats_per_row }, (_, column) => row * seats_per_row + column)
      .filter((seat) => !holes.has(seat))
      .map((seat) => ({
        seat_guid: `${section}-${subsection}-${row + 1}-${(seat % seats_per_row) + 1}`,
        seat_number: String((seat % seats_per_row) + 1),
        position: { x: (seat % seats_per_row) * STEP, y: 0 },
        category: wheels.has(seat) ? `${section}${ACCESSIBLE}` : section,
      })),
  }));
}

// Sections of equal blocks: { name, count, rows, seats_per_row, marks }. Throws what is no plan.
export function fromPretix(plan) {
  const blocks = plan.zones.flatMap((zone) => blocksOf(zone));
  if (blocks.reduce((sum, block) => sum + block.rows * block.perRow, 0) > SEATS_MAX) throw new RangeError("too large");
  const names = new Map();
  return [...new Set(blocks.map((block) => block.category))].map((category) => {
    const own = blocks.filter((block) => block.category === category);
    const [rows, perRow] = [Math.max(...own.map((b) => b.rows)), Math.max(...own.map((b) => b.perRow))];
    const marks = new Map(own.map((block, n) => [n + 1, marksOf(block, rows, perRow)]).filter(([, m]) => m.size));
    return { name: plainName(category, names), count: own.length, rows, seats_per_row: perRow, marks };
  });
}

function blocksOf(zone) {
  const found = new Map();
  for (const row of zone.rows) {
    for (const seat of row.seats) {
      const isAccessible = seat.category.endsWith(ACCESSIBLE);
      const category = isAccessible ? seat.category.slice(0, -ACCESSIBLE.length) : seat.category;
      if (!found.has(category)) found.set(category, new Map());
      const lines = found.get(category);
      if (!lines.has(row)) lines.set(row, []);
      lines.get(row).push({ x: (row.position?.x ?? 0) + seat.position.x, isAccessible });
    }
  }
  return [...found].map(([category, lines]) => block(category, [...lines.values()]));
}

// The columns follow from where seats stand, if they stand in a grid; otherwise from their order.
function block(category, lines) {
  for (const line of lines) line.sort((a, b) => a.x - b.x);
  const most = Math.max(...lines.map((line) => line.length));
  const left = Math.min(...lines.map((line) => line[0].x));
  const steps = lines.flatMap((line) => line.slice(1).map((seat, n) => seat.x - line[n].x)).filter((step) => step > 0);
  const step = steps.length ? Math.min(...steps) : 1;
  const columns = lines.map((line) => line.map((seat) => Math.round((seat.x - left) / step)));
  const isGrid =
    columns.every((line) => new Set(line).size === line.length) && Math.max(...columns.flat()) < GAPS_MAX * most;
  const seats = new Map(
    lines.flatMap((line, row) =>
      line.map((seat, n) => [`${row + 1}-${(isGrid ? columns[row][n] : n) + 1}`, seat.isAccessible]),
    ),
  );
  return { category, seats, rows: lines.length, perRow: isGrid ? Math.max(...columns.flat()) + 1 : most };
}

function marksOf({ seats }, rows, perRow) {
  const marks = new Map();
  for (let row = 1; row <= rows; row++) {
    for (let seat = 1; seat <= perRow; seat++) {
      const isAccessible = seats.get(`${row}-${seat}`);
      if (isAccessible === undefined) marks.set(`${row}-${seat}`, "blocked");
      else if (isAccessible) marks.set(`${row}-${seat}`, "accessible");
    }
  }
  return marks;
}

function plainName(category, names) {
  const plain = category.normalize("NFKD").replaceAll(/[^A-Za-z0-9_ ]/g, "").trim().replaceAll(/ +/g, "_").slice(0, 28);
  const count = (names.get(plain) ?? 0) + 1;
  names.set(plain, count);
  return count === 1 && plain ? plain : `${plain || "Section"}_${count}`;
}
