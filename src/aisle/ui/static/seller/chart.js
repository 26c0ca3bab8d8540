// Tickets sold a minute, as bars. Drawn with the page's own colours, so it follows light and dark; the same numbers
// stand in a table for whoever hears the page.
import { make } from "../elements.js";
import { money, text } from "../words.js";

const [HEIGHT, BOTTOM, TOP, LEFT] = [180, 24, 16, 34];
const MINUTES = 60;
const MINUTE_MS = 60_000;
// A single ticket beside a rush is still seen.
const BAR_MIN = 2;

export function drawChart(place, { at, minutes, currency }, timeZone) {
  const sold = new Map(minutes.map((m) => [Math.floor(Date.parse(m.minute) / MINUTE_MS), m]));
  const last = Math.floor(Date.parse(at) / MINUTE_MS);
  const most = roundUp(Math.max(4, ...minutes.map((m) => m.tickets)));
  const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", timeZone });
  const total = minutes.reduce((sum, m) => sum + m.tickets, 0);
  const peak = Math.max(0, ...minutes.map((m) => m.tickets));
  const label = text("desk.chart_label", { total, minutes: MINUTES, peak });
  const width = place.clientWidth || 900;
  const svg = node("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, role: "img", "aria-label": label });
  for (const share of [0, 0.5, 1]) {
    const y = heightAt(share * most, most);
    svg.append(node("line", { x1: LEFT, x2: width, y1: y, y2: y }));
    svg.append(node("text", { x: LEFT - 6, y: y + 4, "text-anchor": "end" }, String(Math.round(share * most))));
  }
  const step = (width - LEFT) / MINUTES;
  for (let n = 0; n < MINUTES; n++) {
    const minute = last - MINUTES + 1 + n;
    const x = LEFT + n * step;
    const time = clock.format(minute * MINUTE_MS);
    if (n % 15 === 0) svg.append(node("text", { x, y: HEIGHT - 6 }, time));
    const found = sold.get(minute);
    if (!found) continue;
    const y = Math.min(heightAt(found.tickets, most), HEIGHT - BOTTOM - BAR_MIN);
    const words = text("desk.bar", { time, count: found.tickets, revenue: money(found.revenue, currency) });
    svg.append(node("rect", { x: x + 1, y, width: step - 2, height: HEIGHT - BOTTOM - y, rx: 2 }, node("title", {}, words)));
  }
  place.replaceChildren(svg, total ? table(minutes, currency, clock) : make("p", { class: "note" }, text("desk.no_sales")));
}

function table(minutes, currency, clock) {
  const head = ["desk.minute", "number.sold", "number.revenue"].map((key) => make("th", { scope: "col" }, text(key)));
  const rows = minutes.map((m) =>
    make(
      "tr",
      {},
      make("th", { scope: "row" }, clock.format(Date.parse(m.minute))),
      make("td", {}, String(m.tickets)),
      make("td", {}, money(m.revenue, currency)),
    ),
  );
  return make("div", { class: "hidden" }, make("table", {}, make("caption", {}, text("desk.chart")), make("thead", {}, make("tr", {}, ...head)), make("tbody", {}, ...rows)));
}

// To a number that halves well: 1, 2 or 5 times a power of ten, or 4 for the smallest scale.
function roundUp(number) {
  if (number <= 4) return 4;
  const power = 10 ** Math.floor(Math.log10(number));
  return power * [1, 2, 4, 5, 10].find((step) => step * power >= number);
}

function heightAt(tickets, most) {
  return HEIGHT - BOTTOM - (tickets / most) * (HEIGHT - BOTTOM - TOP);
}

function node(name, attributes, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, String(value));
  element.append(...children);
  return element;
}
