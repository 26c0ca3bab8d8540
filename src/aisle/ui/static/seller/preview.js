// The hall while it is being described: the buyers' map and seat list, on which a tap marks a seat.
import { byId } from "../elements.js";
import { showTip, wireTools } from "../hall/controls.js";
import { Hall, seatText } from "../hall/hall.js";
import { SeatList } from "../hall/list.js";
import { HallMap } from "../hall/map.js";
import { text } from "../words.js";

const UNAVAILABLE = 3;

// `marksOf(section)` are the marks of a section: block number -> seat name -> kind. Returns the hall shown.
export function showPreview(plan, marksOf) {
  const isList = byId("list") && !byId("list").hidden;
  byId("preview").replaceChildren(byId("preview-template").content.cloneNode(true));
  const hall = new Hall(plan, sectionsOf(plan));
  for (const [n, place] of hall.places.entries()) {
    for (const seat of plan.subsections[n].blocked) place.states[seat] = UNAVAILABLE;
    hall.count(place);
  }
  hall.loaded = true;
  const pick = (place, seat) => mark(hall, list, marksOf, place, seat);
  const map = new HallMap(byId("canvas"), hall, { onPick: pick, onPoint: showTip(hall) });
  const parts = { sections: byId("list-section"), subsections: byId("list-subsection"), grid: byId("grid") };
  const list = new SeatList(parts, hall, pick);
  wireTools(map);
  byId("size").textContent = text("home.seats", { count: plan.seats.toLocaleString("en") });
  byId("canvas").positionOf = (name, seat) => map.positionOf(hall.byName.get(name), seat);
  if (isList) byId("show-list").click();
  return hall;
}

function sectionsOf(plan) {
  return [...new Map(plan.subsections.map((sub) => [sub.section, { section: sub.section, price: sub.price }])).values()];
}

// The same mark again takes it away.
function mark(hall, list, marksOf, place, seat) {
  const kind = document.querySelector("input[name=mark]:checked").value;
  const marks = marksOf(place.section);
  if (!marks.has(place.number)) marks.set(place.number, new Map());
  const own = marks.get(place.number);
  const name = seatText(place, seat);
  if (own.get(name) === kind) own.delete(name);
  else own.set(name, kind);
  if (own.size === 0) marks.delete(place.number);
  place.states[seat] = own.get(name) === "blocked" ? UNAVAILABLE : 0;
  place.accessible[own.get(name) === "accessible" ? "add" : "delete"](seat);
  hall.count(place);
  redrawCell(list, place, seat);
  hall.tell(place, [seat]);
}

function redrawCell(list, place, seat) {
  if (list.place !== place) return;
  const cell = list.cells[seat];
  cell.toggleAttribute("data-accessible", place.accessible.has(seat));
  delete cell.dataset.state; // its label changes although its state may not
}
