// My bookings, newest first, each with the state it is in right now.
import { get } from "./ask.js";
import { namesOf, placeOf } from "./cart.js";
import { byId, make, say } from "./elements.js";
import { follow } from "./live.js";
import { explain, moment, money, text } from "./words.js";

const list = byId("bookings");
const older = byId("older");
const lines = new Map();
const shows = new Map();
let next = null;

async function load() {
  const page = await get(next ? `/bookings?before=${next}` : "/bookings");
  await Promise.all([...new Set(page.items.map((b) => b.event_id))].map(loadShow));
  for (const booking of page.items) list.append(line(booking));
  next = page.next;
  older.hidden = !next;
  list.removeAttribute("aria-busy");
  byId("none").hidden = lines.size > 0;
}

async function loadShow(event) {
  if (!shows.has(event)) shows.set(event, await get(`/events/${event}`).catch(() => null));
}

function line(booking) {
  const item = make("li");
  lines.set(booking.id, item);
  fill(item, booking);
  return item;
}

function fill(item, booking) {
  const show = shows.get(booking.event_id);
  const seats = booking.seats.map((part) => `${placeOf(part)}: ${namesOf(part).join("; ")}`).join(" · ");
  const hadFocus = item.contains(document.activeElement);
  item.replaceChildren(
    make(
      "a",
      { href: `/bookings/${booking.id}` },
      make(
        "span",
        { class: "first" },
        make("strong", {}, show?.name ?? text("booking.title")),
        make("span", { class: `state ${booking.state}` }, text(`booking.state.${booking.state}`)),
      ),
      show ? make("span", { class: "second" }, moment(show.starts_at, show.time_zone)) : null,
      make(
        "span",
        { class: "second" },
        [seats, booking.total ? money(booking.total, booking.currency) : ""].filter(Boolean).join(" · "),
      ),
    ),
  );
  if (hadFocus) item.firstElementChild.focus();
}

async function update(booking) {
  await loadShow(booking.event_id);
  const known = lines.get(booking.id);
  if (known) fill(known, booking);
  else list.prepend(line(booking));
  byId("none").hidden = true;
}

older.addEventListener("click", () => load().catch((problem) => say(explain(problem))));
load()
  .then(() =>
    follow(
      "/bookings/updates",
      { snapshot: ({ bookings }) => bookings.toReversed().forEach(update), booking: update },
      () => undefined,
    ),
  )
  .catch((problem) => say(explain(problem)));
