// What a seller typed as the API wants it. Values that are no numbers go as they were typed: the API says what is wrong.

const BLOCKS_MAX = 1000;

export function decimals(currency) {
  try {
    return new Intl.NumberFormat("en", { style: "currency", currency }).resolvedOptions().maximumFractionDigits;
  } catch {
    return 2; // half typed
  }
}

export function toMinor(typed, currency) {
  const amount = Number(typed.trim().replace(",", "."));
  return typed.trim() === "" || Number.isNaN(amount) ? typed : Math.round(amount * 10 ** decimals(currency));
}

export function toMajor(minor, currency) {
  const digits = decimals(currency);
  return minor % 10 ** digits === 0 ? String(minor / 10 ** digits) : (minor / 10 ** digits).toFixed(digits);
}

export function whole(typed) {
  return typed.trim() !== "" && Number.isInteger(Number(typed)) ? Number(typed) : typed;
}

// "2027-05-01T20:00" on the clocks of the venue, as a moment. A zone nobody knows is left to the API to refuse.
export function momentAt(local, timeZone) {
  const asUtc = Date.parse(`${local}Z`);
  if (Number.isNaN(asUtc)) return local;
  try {
    // Twice: the first guess may lie on the other side of a change of clocks.
    const guess = asUtc - offset(asUtc, timeZone);
    return new Date(asUtc - offset(guess, timeZone)).toISOString();
  } catch {
    return new Date(asUtc).toISOString();
  }
}

function offset(at, timeZone) {
  const names = ["year", "month", "day", "hour", "minute", "second"];
  const options = Object.fromEntries(names.map((name) => [name, "numeric"]));
  const format = new Intl.DateTimeFormat("en-US", { ...options, timeZone, hourCycle: "h23" });
  const found = Object.fromEntries(format.formatToParts(at).map(({ type, value }) => [type, Number(value)]));
  return Date.UTC(found.year, found.month - 1, found.day, found.hour, found.minute, found.second) - at;
}

// Blocks of a section that are alike become one entry; a block with marks is one of its own.
export function subsections({ count, rows, seats_per_row, marks }) {
  const same = { rows, seats_per_row };
  if (!isCount(count) || marks.size === 0) return [{ ...same, count }];
  const plans = [];
  for (let number = 1; number <= count; number++) {
    const own = marks.get(number);
    const last = plans.at(-1);
    if (own?.size) plans.push({ ...same, first: number, count: 1, ...named(own, rows, seats_per_row) });
    else if (last && !last.blocked) last.count += 1;
    else plans.push({ ...same, first: number, count: 1 });
  }
  return plans;
}

// Marks on seats that the block no longer has are left out.
function named(own, rows, perRow) {
  const of = (kind) => [...own].filter(([name, mark]) => mark === kind && exists(name, rows, perRow)).map(([n]) => n);
  return { blocked: of("blocked"), accessible: of("accessible") };
}

export function exists(name, rows, perRow) {
  const [row, seat] = name.split("-").map(Number);
  return row <= rows && seat <= perRow;
}

function isCount(count) {
  return Number.isInteger(count) && count >= 1 && count <= BLOCKS_MAX;
}

// The same as a hall that can be drawn, as far as what is typed makes sense; null if nothing does.
export function drawable(description, seatsMax) {
  const subs = description.sections.flatMap(({ name, price, subsections: plans }) =>
    plans.flatMap(({ rows, seats_per_row, first = 1, count, accessible = [], blocked = [] }) =>
      [rows, seats_per_row, count].every((n) => Number.isInteger(n) && n >= 1) && count <= BLOCKS_MAX
        ? Array.from({ length: count }, (_, n) => ({
            section: name || "?",
            subsection: first + n,
            rows,
            seats_per_row,
            price: Number(price) || 0,
            accessible: accessible.map((seat) => indexOf(seat, seats_per_row)),
            blocked: blocked.map((seat) => indexOf(seat, seats_per_row)),
          }))
        : [],
    ),
  );
  const seats = subs.reduce((sum, sub) => sum + sub.rows * sub.seats_per_row, 0);
  return subs.length && seats <= seatsMax ? { currency: description.currency, subsections: subs, seats } : null;
}

function indexOf(name, perRow) {
  const [row, seat] = name.split("-").map(Number);
  return (row - 1) * perRow + seat - 1;
}
