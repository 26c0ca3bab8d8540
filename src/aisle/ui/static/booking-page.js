// One booking from the first moment to the ticket: what it is now, live, and what can be done about it.
import { get, newKey, post, serverNow } from "./ask.js";
import { namesOf, placeOf } from "./cart.js";
import { askTwice, busy, byId, make, refill, say } from "./elements.js";
import { follow } from "./live.js";
import { clock, explain, knows, moment, money, text } from "./words.js";

const place = byId("booking");
const id = place.dataset.booking;
const WORKING = ["PROCESSING", "PAYING"];
const ASK_AFTER_MS = 3000;
const CARDS = ["card_ok", "card_declined", "card_3ds", "card_timeout", "card_late"];

let booking = null;
let show = null;
// A payment that waits for its buyer, and what came of the last try.
let payment = null;
let warning = "";
let payKey = newKey();
let asking = false;

async function start() {
  booking = await get(`/bookings/${id}`);
  show = await get(`/events/${booking.event_id}`).catch(() => null);
  if (booking.state === "PAYING") await loadPayment();
  render();
  follow(
    "/bookings/updates",
    { snapshot: ({ bookings }) => bookings.forEach(update), booking: update },
    () => undefined,
  );
  setInterval(tick, 500);
}

function update(changed) {
  if (changed.id !== id || (changed.state === booking.state && changed.seats.length === booking.seats.length)) return;
  booking = changed;
  if (booking.state !== "PENDING_PAYMENT") warning = "";
  if (booking.state === "PAYING")
    loadPayment()
      .then(render)
      .catch(() => undefined);
  else payment = null;
  render();
  say(text(`booking.heading.${booking.state}`));
}

async function loadPayment() {
  const payments = await get(`/bookings/${id}/payments`).catch(() => []);
  payment = payments.find((p) => p.action) ?? null;
}

function render() {
  place.removeAttribute("aria-busy");
  const { state } = booking;
  refill(
    place,
    make(
      "div",
      { class: "booking-head" },
      make("p", { class: "eyebrow" }, make("span", { class: `state ${state}` }, text(`booking.state.${state}`))),
      make("h1", { tabindex: -1 }, text(`booking.heading.${state}`)),
      make("p", { class: "lead" }, lead()),
    ),
    WORKING.includes(state)
      ? make("div", { class: "progress", role: "progressbar", "aria-label": text(`booking.heading.${state}`) })
      : null,
    warning ? make("p", { class: "warning", role: "alert" }, warning) : null,
    state === "PENDING_PAYMENT" ? payForm() : null,
    payment ? confirmForm() : null,
    state === "PAID" ? tickets() : null,
    facts(),
    make("div", { class: "actions" }, ...actions()),
  );
}

function lead() {
  const { state, reason } = booking;
  const why = `reason.${reason}`;
  return reason && knows(why) ? `${text(why)} ${text(`booking.lead.${state}`)}` : text(`booking.lead.${state}`);
}

function facts() {
  const seats = booking.seats.map((part) => `${placeOf(part)}: ${namesOf(part).join("; ")}`);
  const fact = (name, value) => [make("dt", {}, name), make("dd", {}, value)];
  return make(
    "section",
    { class: "panel" },
    make("h2", {}, show?.name ?? text("booking.title")),
    show ? make("p", {}, `${moment(show.starts_at, show.time_zone)}${show.venue ? ` · ${show.venue}` : ""}`) : null,
    make(
      "dl",
      { class: "facts" },
      ...seats.flatMap((line, n) => fact(n ? "" : text("booking.seats"), line)),
      ...(booking.total ? fact(text("cart.total"), money(booking.total, booking.currency)) : []),
      ...fact(text("booking.number"), id.slice(-12)),
    ),
  );
}

function payForm() {
  const button = make(
    "button",
    { class: "primary wide", "data-key": "pay" },
    text("pay.button", { total: money(booking.total, booking.currency) }),
  );
  const card = make(
    "select",
    { name: "card", "data-key": "card" },
    ...CARDS.map((name) => make("option", { value: name }, text(`pay.${name}`))),
  );
  const form = make(
    "form",
    { class: "panel", id: "pay", novalidate: true },
    make("h2", {}, text("pay.heading")),
    make(
      "div",
      { class: "clock" },
      make("span", {}, text("booking.pay_within")),
      make("strong", { role: "timer" }, clock(left())),
    ),
    make("p", { class: "note" }, text("pay.sandbox")),
    make("label", {}, text("pay.card"), card),
    button,
  );
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    busy(button, () => pay(card.value));
  });
  return form;
}

// The same key until there was an answer: a second click is the same payment.
async function pay(method) {
  warning = "";
  try {
    await post(`/bookings/${id}/payments`, { method }, payKey);
    payKey = newKey();
  } catch (problem) {
    if (problem.status >= 400 && problem.status < 500) payKey = newKey();
    warning = explain(problem);
  }
  await reload();
}

function confirmForm() {
  const button = make(
    "button",
    { type: "button", class: "primary wide", "data-key": "confirm" },
    text("pay.confirm_button"),
  );
  button.addEventListener("click", () => busy(button, confirm));
  return make(
    "section",
    { class: "panel" },
    make("h2", {}, text("pay.heading")),
    make("p", {}, text("pay.confirm")),
    button,
  );
}

async function confirm() {
  try {
    // The sandbox's right answer; a real provider's page brings its own.
    await post(`/bookings/${id}/payments/${payment.id}/confirm`, { code: "000000" });
  } catch (problem) {
    warning = explain(problem);
  }
  await reload();
}

function tickets() {
  return make(
    "section",
    { class: "panel" },
    make("p", { class: "ok" }, text("booking.ready")),
    make(
      "a",
      {
        class: "button primary wide",
        href: `/api/v1/bookings/${id}/tickets.pdf`,
        download: `tickets-${id.slice(-12)}.pdf`,
      },
      text("booking.tickets"),
    ),
  );
}

function actions() {
  const back = make("a", { class: "button wide", href: `/events/${booking.event_id}` }, text("booking.again"));
  if (booking.state === "PENDING_PAYMENT")
    return [question(text("booking.cancel"), text("booking.cancel_confirm"), "cancel")];
  if (booking.state === "PAID") return [question(text("booking.refund"), text("booking.refund_confirm"), "refund")];
  return WORKING.includes(booking.state) ? [] : [back];
}

function question(words, really, verb) {
  return askTwice({ key: verb, words, really, yes: text("booking.yes"), no: text("booking.no") }, async () => {
    try {
      await post(`/bookings/${id}/${verb}`);
      warning = "";
    } catch (problem) {
      warning = explain(problem);
    }
    await reload();
  });
}

async function reload() {
  try {
    booking = await get(`/bookings/${id}`);
    if (booking.state === "PAYING") await loadPayment();
    else payment = null;
  } catch (problem) {
    warning = explain(problem);
  }
  render();
}

function left() {
  return booking.pay_before ? Date.parse(booking.pay_before) - serverNow() : 0;
}

function tick() {
  const time = place.querySelector("#pay .clock strong");
  if (!time) return;
  time.textContent = clock(left());
  place.querySelector("#pay .clock").classList.toggle("soon", left() < 60_000);
  // The server decides; what it decided comes by the stream, or by asking when the time has been over for a while.
  if (left() < -ASK_AFTER_MS && !asking) {
    asking = true;
    setTimeout(() => (asking = false), ASK_AFTER_MS);
    reload();
  }
}

start().catch((problem) => {
  refill(
    place,
    make(
      "div",
      { class: "empty" },
      make("h1", {}, problem.status === 404 ? text("booking.not_found") : explain(problem)),
    ),
  );
});
