// The seats of an event as this browser knows them: snapshots replace, deltas move, a gap is noticed.
//
// A place is a subsection; its seats are counted row by row from 0. Place number 0 is a pool: counted, not numbered.

// The two bits of a seat: 0 free, 1 held, 2 sold, 3 not for sale.
const FREE = 0;
const KINDS = ["free", "held", "sold", "unavailable"];
const TIERS = 5;

export class Hall extends EventTarget {
  constructor(plan, sections) {
    super();
    this.currency = plan.currency;
    this.sections = sections.filter((s) => s.places_per_buyer == null);
    this.pools = sections.filter((s) => s.places_per_buyer != null);
    const tiers = tiersOf(this.sections.map((s) => s.price));
    this.places = plan.subsections.map((s, index) => ({
      index,
      name: `${s.section}-${s.subsection}`,
      section: s.section,
      number: s.subsection,
      rows: s.rows,
      perRow: s.seats_per_row,
      seats: s.rows * s.seats_per_row,
      price: s.price,
      tier: tiers.get(s.price),
      accessible: new Set(s.accessible),
      states: new Uint8Array(s.rows * s.seats_per_row),
      version: 0,
      free: 0,
      // Seat -> "mine" (in the cart), "busy" (being asked for) or "booked" (before).
      own: new Map(),
    }));
    this.byName = new Map(this.places.map((place) => [place.name, place]));
    this.loaded = false;
    // { place, seat } that is shown instead of one that was taken.
    this.suggested = null;
  }

  // `places` of a snapshot or of a seat map, and `map`: two bits a seat, each place beginning on a byte of its own.
  load(places, map, versionAt) {
    const bytes = Uint8Array.from(atob(map), (c) => c.charCodeAt(0));
    let offset = 0;
    for (const [section, number, ...rest] of places) {
      const place = this.byName.get(`${section}-${number}`);
      if (place === undefined) {
        const pool = this.pools.find((p) => p.section === section);
        // A pool's places come as a row of seats too; only its counts matter here.
        const seats = pool ? pool.total : 0;
        if (pool && versionAt === 0) pool.available = rest[1];
        offset += Math.ceil(seats / 4);
        continue;
      }
      for (let seat = 0; seat < place.seats; seat++) {
        place.states[seat] = (bytes[offset + (seat >> 2)] >> (6 - 2 * (seat & 3))) & 3;
      }
      offset += Math.ceil(place.seats / 4);
      place.version = rest[versionAt];
      this.count(place);
    }
    this.loaded = true;
    this.tell(null, null);
  }

  // False if something in between was missed.
  apply(delta) {
    const place = this.byName.get(delta.place);
    if (place === undefined) {
      const pool = this.pools.find((p) => p.section === delta.section);
      if (pool) pool.available = delta.counts.available;
      this.tell(null, []);
      return true;
    }
    if (delta.version <= place.version) return true;
    if (delta.from > place.version) return false;
    for (const [seat, state] of delta.changes) place.states[seat] = state;
    place.version = delta.version;
    this.count(place);
    this.tell(
      place,
      delta.changes.map(([seat]) => seat),
    );
    return true;
  }

  count(place) {
    place.free = place.states.reduce((sum, state) => sum + (state === FREE ? 1 : 0), 0);
  }

  // null: everything may have changed.
  tell(place, seats) {
    this.dispatchEvent(new CustomEvent("change", { detail: { place, seats } }));
  }

  // What is this buyer's own of one kind: [section, subsection, seat names] each.
  setOwn(kind, parts) {
    for (const place of this.places) {
      const before = [...place.own].filter(([, of]) => of === kind).map(([seat]) => seat);
      const named = parts.filter(([section, number]) => section === place.section && number === place.number);
      const now = named.flatMap(([, , names]) => names.map((name) => seatIndex(place, name)));
      for (const seat of before) place.own.delete(seat);
      for (const seat of now) place.own.set(seat, kind);
      if (before.length || now.length) this.tell(place, [...before, ...now]);
    }
  }

  setBusy(place, seat, isBusy) {
    if (isBusy) place.own.set(seat, "busy");
    else if (place.own.get(seat) === "busy") place.own.delete(seat);
    this.tell(place, [seat]);
  }

  suggest(place, seat) {
    this.suggested = place ? { place, seat } : null;
    this.tell(null, []);
  }

  kindOf(place, seat) {
    return place.own.get(seat) ?? KINDS[place.states[seat]];
  }

  freeIn(section) {
    return this.places.reduce((sum, place) => sum + (place.section === section ? place.free : 0), 0);
  }

  // The free seat of the place that is closest to this one: same row first.
  nearest(place, seat) {
    const distance = (other) =>
      Math.abs((other % place.perRow) - (seat % place.perRow)) +
      3 * Math.abs(Math.floor(other / place.perRow) - Math.floor(seat / place.perRow));
    let best = -1;
    for (let other = 0; other < place.seats; other++) {
      if (this.kindOf(place, other) !== "free" || place.accessible.has(other)) continue;
      if (best < 0 || distance(other) < distance(best)) best = other;
    }
    return best;
  }
}

export function seatText(place, seat) {
  return `${Math.floor(seat / place.perRow) + 1}-${(seat % place.perRow) + 1}`;
}

export function seatIndex(place, name) {
  const [row, seat] = name.split("-").map(Number);
  return (row - 1) * place.perRow + seat - 1;
}

// Price -> 1 (dearest) to 5.
function tiersOf(prices) {
  const sorted = [...new Set(prices)].sort((a, b) => b - a);
  return new Map(
    sorted.map((price, n) => [price, Math.min(TIERS, Math.floor((n * TIERS) / Math.max(sorted.length, TIERS)) + 1)]),
  );
}
