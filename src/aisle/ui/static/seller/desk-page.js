// The desk of an event: its figures and bookings as they move, the sale's switch, prices, and who stands at the door.
import { get, patch, post, put } from "../ask.js";
import { busy, byId, make, say } from "../elements.js";
import { follow } from "../live.js";
import { explain, money, text } from "../words.js";
import { drawChart } from "./chart.js";
import { Heat } from "./heat.js";
import { toMajor, toMinor } from "./plan.js";
import { Recent } from "./recent.js";

const { event, currency, zone, state: stateAtFirst } = byId("desk").dataset;
const READY_MS = 500;
const heat = new Heat(byId("heat"), event);
const recent = new Recent(byId("desk").dataset);
let isHeatShown = false;

const percent = (part, whole) => (whole ? `${((100 * part) / whole).toFixed(part && part < whole ? 1 : 0)} %` : "–");
const count = (number) => number.toLocaleString("en");

function showState(state) {
  byId("state").textContent = text(`sale.${state}`);
  byId("state").className = `badge ${state}`;
  byId("open").hidden = state !== "ready" && state !== "closed";
  byId("close").hidden = state !== "on_sale";
  const isPublic = state === "on_sale" || state === "closed";
  byId("public").hidden = !isPublic;
  if (isPublic && !isHeatShown) startHeat();
  if (state === "creating") setTimeout(waitUntilReady, READY_MS);
}

async function waitUntilReady() {
  const found = await get(`/seller/events/${event}`).catch(() => ({ state: "creating" }));
  showState(found.state);
}

async function startHeat() {
  isHeatShown = true;
  byId("heat-panel").hidden = false;
  const hasSeats = await heat.start().catch(() => false);
  byId("heat-panel").hidden = !hasSeats;
}

function showFigures(figures) {
  const forSale = figures.seats - figures.blocked;
  const numbers = {
    revenue: money(figures.revenue, currency),
    sold: count(figures.sold),
    share: percent(figures.sold, forSale),
    held: count(figures.held + figures.in_carts),
    available: count(figures.available - figures.in_carts),
    admitted: count(figures.admitted),
  };
  for (const [name, words] of Object.entries(numbers)) {
    document.querySelector(`[data-number="${name}"]`).textContent = words;
  }
  byId("numbers").removeAttribute("aria-busy");
  byId("by-section").replaceChildren(...figures.sections.map(sectionRow));
  drawChart(byId("chart"), figures, zone);
  recent.refresh(figures.recent);
  heat.refresh();
}

function sectionRow(section) {
  const forSale = section.seats - section.blocked;
  const label = `${section.section}: ${percent(section.sold, forSale)}`;
  return make(
    "tr",
    {},
    make("th", { scope: "row" }, section.section),
    make("td", {}, `${count(section.sold)} / ${count(forSale)}`),
    make("td", { class: "hidden-small" }, count(section.held + section.in_carts)),
    make(
      "td",
      {},
      make("meter", { min: 0, max: Math.max(1, forSale), value: section.sold, "aria-label": label }),
      percent(section.sold, forSale),
    ),
    make("td", {}, money(section.revenue, currency)),
  );
}

function wireSwitch(button, action) {
  button.addEventListener("click", () =>
    busy(button, async () => {
      try {
        showState((await post(`/events/${event}/${action}`)).state);
      } catch (problem) {
        say(explain(problem));
      }
    }),
  );
}

async function savePrices(form) {
  for (const place of form.querySelectorAll(".wrong")) place.textContent = "";
  const inputs = [...form.querySelectorAll("input")];
  const prices = Object.fromEntries(inputs.map((input) => [input.name, toMinor(input.value, currency)]));
  const bad = inputs.filter((input) => !Number.isInteger(prices[input.name]) || prices[input.name] < 0);
  for (const input of inputs) input.setAttribute("aria-invalid", String(bad.includes(input)));
  for (const input of bad) input.closest(".field").querySelector(".wrong").textContent = text("editor.bad_price");
  if (bad.length) return bad[0].focus();
  try {
    await patch(`/events/${event}`, { prices });
    return say(text("desk.prices_saved"));
  } catch (problem) {
    return void (byId("prices-wrong").textContent = explain(problem));
  }
}

async function grant(form) {
  byId("staff-wrong").textContent = "";
  try {
    showStaff(await put(`/events/${event}/door-staff`, { email: form.email.value.trim() }));
    form.reset();
    say(text("desk.granted"));
  } catch (problem) {
    byId("staff-wrong").textContent = explain(problem);
    form.email.focus();
  }
}

function showStaff({ items }) {
  byId("staff-count").textContent = items.length ? text("desk.staff", { count: items.length }) : "";
}

function onSubmit(form, work) {
  form.addEventListener("submit", (submitted) => {
    submitted.preventDefault();
    busy(form.querySelector("button"), () => work(form));
  });
}

for (const input of byId("prices").querySelectorAll("input")) input.value = toMajor(Number(input.dataset.minor), currency);
wireSwitch(byId("open"), "open");
wireSwitch(byId("close"), "close");
onSubmit(byId("prices"), savePrices);
onSubmit(byId("staff"), grant);
showState(stateAtFirst);
get(`/events/${event}/door-staff`).then(showStaff, () => undefined);
follow(`/events/${event}/sales/updates`, { sales: showFigures }, (state) => {
  byId("live").dataset.state = state;
  byId("live").textContent = text(state === "live" ? "event.live" : "event.reconnecting");
});
