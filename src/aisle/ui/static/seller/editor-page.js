// A new event with its hall. The fields are the truth: nothing typed is ever replaced, whatever is refused.
import { newKey, post } from "../ask.js";
import { busy, byId, make } from "../elements.js";
import { explain, text } from "../words.js";
import { momentAt, drawable, subsections, toMinor, whole } from "./plan.js";
import { showPreview } from "./preview.js";
import { fromPretix, toPretix } from "./pretix.js";

const PREVIEW_SEATS_MAX = 120_000;
const PREVIEW_MS = 250;
const PLAN_BYTES_MAX = 30_000_000;
const form = byId("editor");
// The marks on the seats of a section, by its fieldset.
const marks = new WeakMap();
let key = newKey();
let timer = 0;

const inputOf = (part, name) => part.querySelector(`[data-name="${name}"]`);
const typed = (part, name) => inputOf(part, name).value;
const partsOf = (kind) => [...form.querySelectorAll(`[data-part="${kind}"]`)];

function describe() {
  const basics = byId("basics");
  const currency = typed(basics, "currency").trim().toUpperCase();
  const zone = typed(basics, "time_zone").trim();
  return {
    name: typed(basics, "name").trim(),
    venue: typed(basics, "venue").trim(),
    description: typed(basics, "description"),
    starts_at: momentAt(typed(basics, "starts_at"), zone),
    time_zone: zone,
    currency,
    seats_per_booking: whole(typed(basics, "seats_per_booking")),
    seats_per_buyer: whole(typed(basics, "seats_per_buyer")),
    sections: partsOf("section").map((part) => describeSection(part, currency)),
    pools: partsOf("pool").map((part) => ({
      name: typed(part, "name").trim(),
      price: toMinor(typed(part, "price"), currency),
      capacity: whole(typed(part, "capacity")),
      places_per_buyer: whole(typed(part, "places_per_buyer")),
    })),
  };
}

function describeSection(part, currency) {
  const [count, rows, seats_per_row] = ["count", "rows", "seats_per_row"].map((name) => whole(typed(part, name)));
  return {
    name: typed(part, "name").trim(),
    price: toMinor(typed(part, "price"), currency),
    subsections: subsections({ count, rows, seats_per_row, marks: marks.get(part) }),
  };
}

function preview() {
  const plan = drawable(describe(), PREVIEW_SEATS_MAX);
  const parts = partsOf("section");
  if (plan === null) {
    byId("preview").replaceChildren(make("p", { class: "nothing" }, text("editor.nothing")));
    return;
  }
  const marksOf = (section) => marks.get(parts.find((part) => (typed(part, "name").trim() || "?") === section));
  const hall = showPreview(plan, marksOf);
  for (const part of parts) {
    const place = hall.places.find((p) => p.section === (typed(part, "name").trim() || "?"));
    part.className = place ? `part tier-${place.tier}` : "part";
  }
}

function add(kind, values = {}) {
  const part = byId(`${kind}-template`).content.cloneNode(true).firstElementChild;
  marks.set(part, new Map());
  for (const [name, value] of Object.entries(values)) inputOf(part, name).value = value;
  byId(`${kind}s-list`).append(part);
  part.querySelector("[data-do=remove]").addEventListener("click", () => {
    (part.nextElementSibling ?? part.previousElementSibling)?.querySelector("input").focus();
    part.remove();
    preview();
  });
  return part;
}

// The sections of a seating plan replace those described so far; their prices are the seller's to fill in.
async function importPlan(file) {
  byId("plan-wrong").textContent = "";
  let found;
  try {
    if (file.size > PLAN_BYTES_MAX) throw new RangeError("too large");
    found = fromPretix(JSON.parse(await file.text()));
  } catch {
    byId("plan-wrong").textContent = text("editor.bad_plan");
    return;
  }
  byId("sections-list").replaceChildren();
  for (const { marks: own, ...values } of found) marks.set(add("section", values), own);
  preview();
}

function exportPlan() {
  const name = typed(byId("basics"), "venue").trim() || typed(byId("basics"), "name").trim() || text("editor.title");
  const plan = toPretix(name, drawable(describe(), PREVIEW_SEATS_MAX)?.subsections ?? []);
  const address = URL.createObjectURL(new Blob([JSON.stringify(plan, null, 1)], { type: "application/json" }));
  make("a", { href: address, download: "seating-plan.json" }).click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}

async function create() {
  clear();
  try {
    const event = await post("/events", describe(), key);
    return location.assign(`/seller/events/${event.id}`);
  } catch (problem) {
    // What may have happened without our hearing of it is asked for again under the same key.
    if (problem.status > 0 && problem.status < 500) key = newKey();
    return show(problem);
  }
}

function show(problem) {
  const fields = (problem.body.errors ?? []).flatMap((error) => fieldsOf(error.key ?? ""));
  const named = problem.code === "bad_event" ? fieldIn(problem.detail) : [];
  const found = [...fields, ...named];
  for (const input of found) wrong(input, problem.code === "bad_event" ? problem.detail : sentence(input));
  if (found.length) found[0].focus();
  else byId("form-wrong").textContent = problem.code === "bad_event" ? problem.detail : explain(problem);
}

// The API names a field of a section without saying of which one: it is the one that the browser finds wrong too.
function fieldsOf(path) {
  const [first, ...rest] = path.replaceAll(/\[[^\]]*\]/g, "").split(".");
  if (first !== "sections" && first !== "pools") return [inputOf(byId("basics"), first)].filter(Boolean);
  const inputs = partsOf(first.slice(0, -1)).map((part) => inputOf(part, rest.at(-1) ?? "name")).filter(Boolean);
  const doubtful = inputs.filter((input) => !input.checkValidity());
  return doubtful.length ? doubtful : inputs.slice(0, 1);
}

// A sentence about the whole that names a field is said there.
function fieldIn(detail) {
  const name = ["starts_at", "time_zone", "seats_per_buyer"].find((one) => detail.startsWith(one));
  if (name) return [inputOf(byId("basics"), name)];
  if (!/same name|has the name/.test(detail)) return [];
  const names = form.querySelectorAll("[data-part] [data-name=name]");
  const seen = new Set();
  return [...names].filter((input) => seen.size === seen.add(input.value.trim()).size);
}

function sentence(input) {
  if (input.value.trim() === "") return text("form.missing");
  if (input.dataset.name === "name" && input.pattern) return text("editor.bad_name");
  return input.validationMessage || text("editor.bad_value");
}

function wrong(input, words) {
  const place = input.closest(".field").querySelector(".wrong");
  place.id ||= `wrong-${crypto.randomUUID()}`;
  place.textContent = words;
  input.setAttribute("aria-invalid", "true");
  input.setAttribute("aria-describedby", place.id);
}

function clear() {
  for (const place of document.querySelectorAll(".wrong")) place.textContent = "";
  for (const input of form.querySelectorAll("[aria-invalid]")) input.removeAttribute("aria-invalid");
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  busy(byId("create"), create);
});
form.addEventListener("input", (event) => {
  if (event.target.name === "mark") return;
  clearTimeout(timer);
  timer = setTimeout(preview, PREVIEW_MS);
});
byId("add-section").addEventListener("click", () => inputOf(add("section"), "name").focus());
byId("add-pool").addEventListener("click", () => inputOf(add("pool"), "name").focus());
byId("import").addEventListener("click", () => byId("plan").click());
byId("export").addEventListener("click", exportPlan);
byId("plan").addEventListener("change", async ({ target }) => {
  if (target.files[0]) await importPlan(target.files[0]);
  target.value = "";
});
byId("zones").append(...Intl.supportedValuesOf("timeZone").map((zone) => make("option", {}, zone)));
// Somebody may have typed before this module was there.
inputOf(byId("basics"), "time_zone").value ||= Intl.DateTimeFormat().resolvedOptions().timeZone;
add("section", { name: "Stalls", price: "45", count: 3, rows: 10, seats_per_row: 12 });
add("section", { name: "Circle", price: "30", count: 3, rows: 6, seats_per_row: 14 });
preview();
