// How the installation is, looked at every few seconds. Nothing here changes anything.
import { get } from "./ask.js";
import { byId, make } from "./elements.js";
import { explain, text } from "./words.js";

const LOOK_MS = 5000;
const count = (number) => number.toLocaleString("en");
const seconds = (value) => `${value.toFixed(1)} s`;
const megabytes = (bytes) => `${(bytes / 2 ** 20).toFixed(1)} MB`;

function row(name, ...values) {
  return make("tr", {}, make("th", { scope: "row" }, name), ...values.map((value) => make("td", {}, value)));
}

function show(report) {
  byId("at").textContent = text("ops.at", { at: new Date(report.at).toLocaleTimeString("en-GB"), version: report.version });
  byId("alarms").replaceChildren(
    ...(report.alarms.length
      ? report.alarms.map((alarm) => make("li", {}, text(`alarm.${alarm}`)))
      : [make("li", { class: "quiet" }, text("ops.quiet"))]),
  );
  byId("parts").replaceChildren(...report.parts.map(part), part({ name: "breaker", fine: report.breaker === "closed", detail: "" }));
  byId("store").replaceChildren(...(report.store ? storeRows(report.store) : []));
  byId("bookings").replaceChildren(...(report.database ? bookingRows(report.database.bookings) : []));
  byId("queues").replaceChildren(...(report.database ? queueRows(report.database) : []));
  const dead = report.dead_letters ?? [];
  byId("dead").replaceChildren(
    ...(dead.length ? dead.map((one) => row(one.lane, count(one.waiting))) : [row(text("ops.none"), count(0))]),
  );
}

function part({ name, fine, detail }) {
  return make(
    "div",
    {},
    make("dt", {}, text(`part.${name}`)),
    make("dd", { class: fine ? "" : "bad" }, text(fine ? "ops.fine" : "ops.away")),
    detail ? make("dd", { class: "why" }, detail) : null,
  );
}

function storeRows(store) {
  const limit = store.memory_bytes_max ? ` / ${megabytes(store.memory_bytes_max)}` : "";
  return [
    row(text("ops.server"), store.server),
    row(text("ops.memory"), `${megabytes(store.memory_bytes)}${limit}`),
    row(text("ops.standing"), store.standing),
    row(text("ops.places"), count(store.places_with_holds)),
    row(text("ops.overdue_holds"), count(store.overdue_holds)),
  ];
}

function bookingRows(bookings) {
  return Object.entries(bookings).map(([name, number]) => row(text(`waiting.${name}`), count(number)));
}

function queueRows({ lanes, outboxes }) {
  const line = (prefix) => (one) =>
    row(text(`queue.${prefix}`, { name: one.name }), count(one.waiting), one.waiting ? seconds(one.oldest_s) : "–");
  return [...outboxes.map(line("outbox")), ...lanes.map(line("lane"))];
}

function showTrail({ items }) {
  const name = (deed) => `${deed.number} ${deed.what}`;
  byId("audit").replaceChildren(
    ...items.map((deed) => row(name(deed), new Date(deed.at).toLocaleString("en-GB"), deed.subject || "–")),
  );
}

async function look() {
  try {
    show(await get("/ops"));
    showTrail(await get("/ops/audit?limit=10"));
  } catch (problem) {
    byId("at").textContent = explain(problem);
  }
  setTimeout(look, LOOK_MS);
}

look();
