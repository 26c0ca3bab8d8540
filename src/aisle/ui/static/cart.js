// What this buyer holds: asked from the API, shown with its clock, given back, extended, checked out.
import { get, newKey, post, remove, serverNow } from "./ask.js";
import { busy, make, refill, say } from "./elements.js";
import { clock, explain, money, seatNames, text } from "./words.js";

const SOON_MS = 60_000;

export class Cart extends EventTarget {
  constructor() {
    super();
    this.view = { event_id: null, holds: [], total: 0 };
    this.checkoutKey = newKey();
  }

  async load() {
    this.set(await get("/cart"));
  }

  set(view) {
    this.view = view;
    this.dispatchEvent(new Event("change"));
  }

  get isEmpty() {
    return this.view.holds.length === 0;
  }

  get left() {
    return this.view.expires_at ? Date.parse(this.view.expires_at) - serverNow() : 0;
  }

  async hold(event, order) {
    try {
      return await post(`/events/${event}/holds`, order);
    } finally {
      await this.load();
    }
  }

  async release(hold) {
    try {
      await remove(`/events/${hold.event_id}/holds/${hold.id}`);
    } finally {
      await this.load();
    }
  }

  async releaseAll() {
    try {
      await remove("/cart");
    } finally {
      await this.load();
    }
  }

  async extend() {
    const [hold] = this.view.holds;
    this.set(await post(`/events/${hold.event_id}/holds/${hold.id}/extend`));
  }

  // The same key until it has worked: a second click, or a retry after a lost answer, is the same checkout.
  async checkOut() {
    try {
      const booking = await post("/cart/checkout", {}, this.checkoutKey);
      location.assign(`/bookings/${booking.id}`);
    } catch (problem) {
      if (problem.status >= 400 && problem.status < 500) this.checkoutKey = newKey();
      if (problem.body?.booking) location.assign(`/bookings/${problem.body.booking}`);
      else await this.load();
      throw problem;
    }
  }
}

// Shows a cart inside an element and keeps its clock.
export function showCart(element, cart) {
  let announced = Infinity;

  function render() {
    refill(element, ...(cart.isEmpty ? emptyCart(element) : fullCart(cart)));
    tick();
  }

  function tick() {
    const time = element.querySelector(".clock strong");
    if (!time) return;
    const { left } = cart;
    time.textContent = clock(left);
    element.querySelector(".clock").classList.toggle("soon", left < SOON_MS);
    const minutes = Math.ceil(left / 60_000);
    if (minutes < announced && [5, 2, 1].includes(minutes)) {
      say(minutes === 1 ? text("cart.time_soon") : text("cart.time_announce", { minutes }));
    }
    announced = minutes;
    if (left <= 0) {
      say(text("cart.expired"));
      cart.set({ event_id: null, holds: [], total: 0 });
    }
  }

  cart.addEventListener("change", render);
  setInterval(tick, 500);
  // A tab that slept may be behind what other tabs did.
  document.addEventListener("visibilitychange", () => document.hidden || cart.load().catch(() => undefined));
}

function emptyCart(element) {
  const alone = element.dataset.alone === "true";
  return [
    make("h2", {}, text("cart.empty")),
    make("p", {}, text("cart.empty_hint")),
    alone ? make("p", {}, make("a", { class: "button primary", href: "/" }, text("cart.browse"))) : null,
  ];
}

function fullCart(cart) {
  const { view } = cart;
  const here = location.pathname === `/events/${view.event_id}`;
  return [
    make("h2", {}, text("cart.heading")),
    clockLine(cart),
    make("ul", { class: "held" }, ...view.holds.map((hold) => holdLine(cart, hold))),
    make(
      "p",
      { class: "total" },
      make("span", {}, text("cart.total")),
      make("strong", {}, money(view.total, view.currency)),
    ),
    make(
      "div",
      { class: "actions" },
      action("checkout", "primary wide", text("cart.checkout"), () => cart.checkOut()),
      here ? null : make("a", { class: "button wide", href: `/events/${view.event_id}` }, text("cart.back")),
      action("empty", "quiet", text("cart.empty_all"), () => cart.releaseAll()),
    ),
    make("p", { class: "note" }, text("cart.frozen")),
  ];
}

function clockLine(cart) {
  const { view } = cart;
  const canExtend = Date.parse(view.extendable_until) - Date.parse(view.expires_at) > 1000;
  const extend = async () => {
    await cart.extend();
    say(text("cart.extended"));
  };
  return make(
    "div",
    { class: "clock" },
    make("span", {}, text("cart.time_left")),
    make("strong", { role: "timer" }, clock(cart.left)),
    canExtend ? action("extend", "", text("cart.extend"), extend) : null,
  );
}

function holdLine(cart, hold) {
  const names = hold.seats.flatMap((part) => namesOf(part));
  const where = [...new Set(hold.seats.map(placeOf))].join(", ");
  return make(
    "li",
    {},
    make("span", { class: "seat" }, names.join("; "), make("small", {}, where)),
    make("span", { class: "amount" }, money(hold.total, hold.currency)),
    action(`release-${hold.id}`, "", "×", () => cart.release(hold), {
      "aria-label": text("cart.remove", { seat: names.join("; ") }),
    }),
  );
}

export function namesOf(part) {
  return part.subsection ? seatNames(part.seats) : [text("cart.places", { count: part.places, pool: part.section })];
}

export function placeOf(part) {
  return part.subsection ? text("seat.place", part) : part.section;
}

function action(key, style, words, work, more = {}) {
  const button = make("button", { type: "button", class: style, "data-key": key, ...more }, words);
  button.addEventListener("click", () => busy(button, () => work().catch((problem) => say(explain(problem)))));
  return button;
}
