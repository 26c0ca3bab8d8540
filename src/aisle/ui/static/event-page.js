// The page of an event: the hall live, seats picked by a tap or by keys, and what is held beside it.
import { get } from "./ask.js";
import { Cart, namesOf, placeOf, showCart } from "./cart.js";
import { busy, byId, make, say } from "./elements.js";
import { drawLegend, showSections, showTip, wireTools } from "./hall/controls.js";
import { Hall, seatIndex, seatText } from "./hall/hall.js";
import { SeatList } from "./hall/list.js";
import { HallMap } from "./hall/map.js";
import { follow } from "./live.js";
import { explain, money, seatName, text } from "./words.js";

const { event: eventId, role, state: saleState, here } = byId("event").dataset;
const canBuy = role === "buyer" && saleState === "on_sale";
const cart = canBuy ? new Cart() : null;

async function start() {
  drawLegend();
  const [plan, sections] = await Promise.all([get(`/events/${eventId}/hall`), get(`/events/${eventId}/sections`)]);
  const hall = new Hall(plan, sections);
  // An event that sells counted places only has nothing to draw.
  byId("hall").hidden = hall.places.length === 0;
  const list = hall.places.length ? showHall(hall) : null;
  watch(hall);
  if (cart) await startCart(hall, list);
}

function showHall(hall) {
  const onPick = (place, seat) => pick(hall, place, seat);
  const map = new HallMap(byId("canvas"), hall, { onPick, onPoint: showTip(hall) });
  const parts = { sections: byId("list-section"), subsections: byId("list-subsection"), grid: byId("grid") };
  const list = new SeatList(parts, hall, onPick);
  // Programs that look at the page (tests, pictures for the documentation) find a seat's pixels by its name.
  byId("canvas").positionOf = (name, seat) => {
    const place = hall.byName.get(name);
    return map.positionOf(place, seatIndex(place, seat));
  };
  wireTools(map);
  showSections(hall, map, list);
  return list;
}

function watch(hall) {
  const stream = follow(
    `/events/${eventId}/updates?seats=true`,
    {
      snapshot: (snapshot) => hall.load(snapshot.places, snapshot.map, 0),
      delta: (delta) => hall.apply(delta) || stream.restart(),
    },
    (state) => {
      const live = byId("live");
      live.dataset.state = state;
      live.textContent = text(state === "live" ? "event.live" : "event.reconnecting");
      // Without a stream the hall is at least shown as it is now.
      if (state === "lost" && !hall.loaded) loadOnce(hall).catch(() => (live.textContent = text("event.map_failed")));
    },
  );
}

async function loadOnce(hall) {
  const { places, map } = await get(`/events/${eventId}/seatmap`);
  if (!hall.loaded) hall.load(places, map, 2);
}

async function startCart(hall, list) {
  showCart(byId("cart"), cart);
  cart.addEventListener("change", () => {
    const own = cart.view.event_id === Number(eventId) ? cart.view.holds : [];
    hall.setOwn(
      "mine",
      own.flatMap((hold) => hold.seats.map((part) => [part.section, part.subsection, part.seats])),
    );
  });
  byId("best").hidden = list === null;
  byId("best-section").append(
    ...hall.sections.map((s) =>
      make("option", { value: s.section }, `${s.section} — ${money(s.price, hall.currency)}`),
    ),
  );
  byId("best").addEventListener("submit", (event) => {
    event.preventDefault();
    busy(event.submitter ?? event.target.querySelector("button"), () => findBest(event.target, hall, list));
  });
  showPools(hall);
  await Promise.all([cart.load(), markBooked(hall)]);
}

async function markBooked(hall) {
  const { items } = await get("/bookings?limit=100");
  const mine = items.filter(
    (b) => b.event_id === Number(eventId) && ["PENDING_PAYMENT", "PAYING", "PAID"].includes(b.state),
  );
  hall.setOwn(
    "booked",
    mine.flatMap((b) => b.seats.map((part) => [part.section, part.subsection, part.seats])),
  );
}

async function pick(hall, place, seat) {
  if (!cart) {
    if (role === "anonymous" && saleState === "on_sale") location.assign(`/login?next=${here}`);
    return;
  }
  const kind = hall.kindOf(place, seat);
  hall.suggest(null);
  try {
    if (kind === "free") await take(hall, place, seat);
    else if (kind === "mine") await giveBack(place, seat);
    else if (kind !== "busy") say(`${seatName(seatText(place, seat))}: ${text(`seat.${kind}`)}`);
  } catch (problem) {
    refused(problem, hall, place, seat);
  }
}

async function take(hall, place, seat) {
  hall.setBusy(place, seat, true);
  try {
    const order = { mode: "manual", section: place.section, subsection: place.number, seats: [seatText(place, seat)] };
    await cart.hold(eventId, place.accessible.has(seat) ? { ...order, accessible: 1 } : order);
    say(`${seatName(seatText(place, seat))}: ${text("seat.mine")}`);
  } finally {
    hall.setBusy(place, seat, false);
  }
}

async function giveBack(place, seat) {
  const name = seatText(place, seat);
  const isIn = (hold) =>
    hold.seats.some((p) => p.section === place.section && p.subsection === place.number && p.seats.includes(name));
  const hold = cart.view.holds.find(isIn);
  if (hold) await cart.release(hold);
}

function refused(problem, hall, place, seat) {
  const other = problem.code === "taken" ? hall.nearest(place, seat) : -1;
  if (other < 0) return say(explain(problem));
  hall.suggest(place, other);
  return say(`${text("problem.taken")} ${text("problem.nearest", { seat: seatName(seatText(place, other)) })}`);
}

async function findBest(form, hall, list) {
  const data = new FormData(form);
  const order = { mode: "best_available", quantity: Number(data.get("quantity")) };
  if (data.get("section")) order.section = data.get("section");
  if (data.get("accessible")) order.accessible = 1;
  const hold = await holdAndSay(order, byId("best-wrong"));
  const [part] = hold?.seats ?? [];
  const place = part && hall.byName.get(`${part.section}-${part.subsection}`);
  if (place) list.show(place);
}

// `wrong` is the place beside the form's fields where a refusal is said.
async function holdAndSay(order, wrong) {
  wrong.textContent = "";
  try {
    const hold = await cart.hold(eventId, order);
    say(
      text("pick.found", {
        seats: hold.seats.map((part) => `${placeOf(part)}: ${namesOf(part).join("; ")}`).join("; "),
      }),
    );
    return hold;
  } catch (problem) {
    wrong.textContent = order.pool && problem.code === "no_block" ? text("pick.few_places") : explain(problem);
    return null;
  }
}

function showPools(hall) {
  const panel = byId("pools");
  panel.hidden = hall.pools.length === 0;
  for (const pool of hall.pools) {
    const count = make("input", { type: "number", min: 1, max: pool.places_per_buyer, value: 1, inputmode: "numeric", required: true });
    const wrong = make("p", { class: "wrong", role: "alert" });
    const button = make("button", {}, text("pick.pool_button"));
    const left = make("p", { class: "note" });
    const form = make(
      "form",
      { class: "fields", novalidate: true },
      make("label", {}, text("pick.pool_how_many", { pool: pool.section }), count),
      button,
    );
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      const isCount = count.checkValidity();
      count.setAttribute("aria-invalid", String(!isCount));
      if (!isCount) {
        wrong.textContent = text("pick.bad_count", { most: pool.places_per_buyer });
        return count.focus();
      }
      return busy(button, () =>
        holdAndSay({ mode: "best_available", pool: pool.section, quantity: Number(count.value) }, wrong),
      );
    });
    const update = () =>
      (left.textContent = `${money(pool.price, hall.currency)} · ${text("event.left", { count: pool.available })}`);
    hall.addEventListener("change", update);
    update();
    panel.append(form, wrong, left);
  }
}

start().catch((problem) => {
  byId("live").textContent = text("event.map_failed");
  say(explain(problem));
});
