// The store through a window: what an operator asks for is looked up, never changed.
import { get } from "./ask.js";
import { busy, byId, make } from "./elements.js";
import { clock, explain, text } from "./words.js";

const count = (number) => number.toLocaleString("en");
// Where the next page begins.
let [nextPlaces, nextKeys] = [null, null];

function cells(...values) {
  return values.map((value) => make("td", {}, value));
}

function results(name, hasAny) {
  document.querySelector(`[data-results="${name}"]`).hidden = !hasAny;
}

async function showEvent(form, after = 0) {
  const found = await get(`/ops/store/events/${encodeURIComponent(form.event.value)}?after=${after}`);
  const sections = found.sections.map((one) => placeRow(one, one.reserved, one.blocked, one.total));
  byId("sections").replaceChildren(...(after ? byId("sections").children : []), ...sections);
  if (!after) byId("pools").replaceChildren(...found.pools.map((one) => placeRow(one, one.held, null, one.capacity)));
  results("sections", byId("sections").children.length > 0);
  results("pools", byId("pools").children.length > 0);
  nextPlaces = found.next;
  byId("more-sections").hidden = nextPlaces === null;
}

function placeRow(one, reserved, blocked, total) {
  const look = make("button", { type: "button", class: "quiet link" }, one.place);
  look.addEventListener("click", () => {
    byId("holds").place.value = one.place;
    byId("holds").requestSubmit();
    byId("holds").place.focus();
  });
  const numbers = [one.available, reserved, one.sold, blocked, total, one.version, one.epoch];
  return make("tr", {}, make("th", { scope: "row" }, look), ...cells(one.state, ...numbers.filter((n) => n !== null).map(count)));
}

async function showHolds(form) {
  const { items } = await get(`/ops/store/holds?place=${encodeURIComponent(form.place.value)}`);
  byId("held").replaceChildren(
    ...items.map((one) => make("tr", {}, ...cells(left(one), taken(one), one.owner, one.id, one.kind, one.state))),
  );
  results("holds", items.length > 0);
  byId("no-holds").hidden = items.length > 0;
}

function left({ left_ms }) {
  if (left_ms === null) return "–";
  return left_ms > 0 ? clock(left_ms) : text("store.overdue", { seconds: Math.ceil(-left_ms / 1000) });
}

function taken({ seats, places }) {
  return seats.length ? seats.join(", ") : text("store.places", { count: places });
}

async function showSeat(form) {
  const [place, seat] = [form.place, form.seat].map((input) => encodeURIComponent(input.value));
  const found = await get(`/ops/store/seats?place=${place}&seat=${seat}`);
  const { holder } = found;
  const facts = [["seat", `${found.place}-${found.seat}`], ["state", found.state]];
  if (holder) {
    facts.push(["owner", holder.owner], ["id", holder.id], ["kind", `${holder.kind}, ${holder.state}`]);
    facts.push(["left", left(holder)], ["seats", taken(holder)]);
  } else {
    facts.push(["owner", text("store.nobody")]);
  }
  byId("holder").replaceChildren(
    ...facts.flatMap(([name, value]) => [make("dt", {}, text(`store.${name}`)), make("dd", {}, value)]),
  );
  byId("holder").hidden = false;
}

async function showKeys(form, cursor = "") {
  const asked = new URLSearchParams({ name: form.name.value, cursor });
  if (form.event.value) asked.set("event", form.event.value);
  const { items, next } = await get(`/ops/store/keys?${asked}`);
  const rows = items.map((one) => make("tr", {}, make("th", { scope: "row" }, one.key), ...cells(one.type, one.bytes === null ? "?" : count(one.bytes))));
  byId("found").replaceChildren(...(cursor ? byId("found").children : []), ...rows);
  nextKeys = next;
  const hasAny = byId("found").children.length > 0;
  results("keys", hasAny);
  byId("no-keys").hidden = hasAny || next !== null;
  byId("more-keys").hidden = next === null;
}

// What is wrong is said beside its field, or beside the last one if the API has to say it.
async function look(form, work) {
  for (const wrong of form.querySelectorAll("[data-wrong]")) wrong.textContent = "";
  for (const input of form.elements) input.removeAttribute("aria-invalid");
  for (const input of form.querySelectorAll("input")) {
    input.value = input.value.trim();
    if (input.validity.valueMissing) return wrong(form, input.name, text("form.missing"));
    if (input.validity.patternMismatch) return wrong(form, input.name, text(`store.bad_${input.name}`));
  }
  try {
    return await work();
  } catch (problem) {
    return wrong(form, [...form.querySelectorAll("input")].at(-1).name, explain(problem));
  }
}

function wrong(form, name, words) {
  form.querySelector(`[data-wrong="${name}"]`).textContent = words;
  form.elements[name].setAttribute("aria-invalid", "true");
  form.elements[name].focus();
}

function wire(id, work, more) {
  const form = byId(id);
  const button = form.querySelector("button");
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    busy(button, () => look(form, () => work(form)));
  });
  if (more) byId(more.button).addEventListener("click", () => look(form, () => work(form, more.from())));
}

wire("event", showEvent, { button: "more-sections", from: () => nextPlaces });
wire("holds", showHolds);
wire("seat", showSeat);
wire("keys", showKeys, { button: "more-keys", from: () => nextKeys });
