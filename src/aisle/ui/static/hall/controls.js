// What stands around the map: the chips of its sections, zoom, the choice between map and list, the tip, the legend.
import { byId, make } from "../elements.js";
import { money, seatName, text } from "../words.js";
import { readColours } from "./colours.js";
import { seatText } from "./hall.js";
import { drawSign } from "./signs.js";

// One chip a section: its colour on the map, its price, what is left. Pressed, it brings the section closer.
export function showSections(hall, map, list) {
  const counts = new Map();
  for (const { section, price } of hall.sections) {
    const { tier } = hall.places.find((place) => place.section === section);
    const left = make("span");
    counts.set(section, left);
    const chip = make(
      "button",
      { type: "button" },
      make("i", { class: `tier-${tier}` }),
      make("b", {}, section),
      ` ${money(price, hall.currency)} · `,
      left,
    );
    chip.addEventListener("click", () => {
      if (byId("map").hidden) list.showSection(section);
      else map.showSection(section);
    });
    byId("sections").append(make("li", {}, chip));
  }
  const update = () => {
    for (const [section, left] of counts) {
      const free = hall.freeIn(section);
      left.textContent = free ? text("event.left", { count: free.toLocaleString("en") }) : text("event.sold_out");
    }
  };
  hall.addEventListener("change", update);
}

export function showTip(hall) {
  const tip = byId("tip");
  return (found) => {
    tip.hidden = !found;
    if (!found) return;
    const { place, seat, near, x, y } = found;
    const where = text("seat.place", { section: place.section, subsection: place.number });
    const price = money(place.price, hall.currency);
    const first = near ? `${seatName(seatText(place, seat))} · ${price}` : `${where} · ${price}`;
    const kind = near ? text(`seat.${hall.kindOf(place, seat)}`) : text("event.left", { count: place.free });
    const accessible = near && place.accessible.has(seat) ? ` · ${text("seat.accessible")}` : "";
    tip.replaceChildren(make("b", {}, first), near ? `${where} · ${kind}${accessible}` : kind);
    const box = tip.parentElement.getBoundingClientRect();
    tip.style.translate = `${Math.min(x + 14, box.width - tip.offsetWidth - 8)}px ${y > box.height - 90 ? y - 64 : y + 16}px`;
  };
}

export function wireTools(map) {
  byId("zoom-in").addEventListener("click", () => map.zoomBy(1.6));
  byId("zoom-out").addEventListener("click", () => map.zoomBy(1 / 1.6));
  byId("zoom-all").addEventListener("click", () => map.showAll());
  const views = { map: byId("show-map"), list: byId("show-list") };
  for (const [name, button] of Object.entries(views)) {
    button.addEventListener("click", () => {
      for (const [other, b] of Object.entries(views)) b.setAttribute("aria-pressed", other === name ? "true" : "false");
      byId("map").hidden = name !== "map";
      byId("zoom-tools").hidden = name !== "map";
      byId("list").hidden = name !== "list";
    });
  }
  byId("canvas").addEventListener("pointerdown", () => byId("hint").remove(), { once: true });
}

export function drawLegend() {
  const colours = readColours();
  for (const sign of document.querySelectorAll(".sign")) {
    const isAccessible = sign.dataset.sign === "accessible";
    drawSign(
      sign.getContext("2d"),
      isAccessible ? "free" : sign.dataset.sign,
      isAccessible,
      colours.tiers[1],
      colours,
      sign.width,
    );
  }
}
