// The twin of the map for a keyboard and a screen reader: one block at a time as a grid of seats.
//
// Cells are changed in place and never replaced while a block is shown, so the focus stays where it is even when the
// seat under it is taken by somebody else.
import { make, refill } from "../elements.js";
import { money, text } from "../words.js";

export class SeatList {
  constructor({ sections, subsections, grid }, hall, onPick) {
    Object.assign(this, { sections, subsections, grid, hall, onPick });
    this.place = null;
    this.cells = [];
    sections.append(...hall.sections.map((s) => make("option", { value: s.section })));
    sections.addEventListener("change", () => this.showSection(sections.value));
    subsections.addEventListener("change", () => this.show(hall.byName.get(`${sections.value}-${subsections.value}`)));
    grid.addEventListener("keydown", (event) => this.move(event));
    grid.addEventListener("click", (event) => this.press(event.target.closest("[role=gridcell]")));
    hall.addEventListener("change", ({ detail }) => this.update(detail.place, detail.seats));
    if (hall.sections.length) this.showSection(hall.sections[0].section);
  }

  showSection(section) {
    const places = this.hall.places.filter((place) => place.section === section);
    this.sections.value = section;
    this.subsections.replaceChildren(...places.map((place) => make("option", { value: place.number })));
    this.show(places[0]);
  }

  show(place) {
    this.place = place;
    this.sections.value = place.section;
    this.subsections.value = place.number;
    this.grid.setAttribute(
      "aria-label",
      text("list.grid", { place: text("seat.place", { section: place.section, subsection: place.number }) }),
    );
    this.grid.setAttribute("aria-rowcount", place.rows);
    this.grid.setAttribute("aria-colcount", place.perRow);
    this.cells = [];
    const rows = Array.from({ length: place.rows }, (_, row) => this.rowOf(row));
    refill(this.grid, ...rows);
    this.current = 0;
    this.update(null, null);
  }

  rowOf(row) {
    const { place } = this;
    const cells = Array.from({ length: place.perRow }, (_, column) => {
      const seat = row * place.perRow + column;
      const cell = make(
        "div",
        {
          role: "gridcell",
          tabindex: -1,
          class: `tier-${place.tier}`,
          "data-seat": seat,
          "data-accessible": place.accessible.has(seat),
        },
        String(column + 1),
      );
      this.cells.push(cell);
      return cell;
    });
    return make(
      "div",
      { role: "row" },
      make("div", { role: "rowheader" }, text("list.row", { row: row + 1 })),
      ...cells,
    );
  }

  update(place, seats) {
    this.names();
    if (this.place === null || (place !== null && place !== this.place)) return;
    for (const seat of seats ?? this.cells.keys()) this.updateCell(seat);
    for (const cell of this.cells) cell.tabIndex = -1;
    if (this.cells[this.current]) this.cells[this.current].tabIndex = 0;
  }

  updateCell(seat) {
    const { hall, place } = this;
    const cell = this.cells[seat];
    const kind = hall.kindOf(place, seat);
    if (cell.dataset.state === kind) return;
    cell.dataset.state = kind;
    const name = text("seat.name", { row: Math.floor(seat / place.perRow) + 1, seat: (seat % place.perRow) + 1 });
    const label = place.accessible.has(seat) ? "seat.label_accessible" : "seat.label";
    cell.setAttribute(
      "aria-label",
      text(label, { name, price: money(place.price, hall.currency), state: text(`seat.${kind}`) }),
    );
    cell.setAttribute("aria-selected", kind === "mine" ? "true" : "false");
    cell.setAttribute("aria-disabled", kind === "free" || kind === "mine" ? "false" : "true");
  }

  // How many are left, in the two choices above the grid.
  names() {
    const { hall } = this;
    const left = (free) => (free ? text("event.left", { count: free }) : text("event.sold_out"));
    for (const option of this.sections.options) {
      const { price } = hall.sections.find((s) => s.section === option.value);
      option.textContent = text("list.option", {
        section: option.value,
        price: money(price, hall.currency),
        left: left(hall.freeIn(option.value)),
      });
    }
    for (const option of this.subsections.options) {
      const place = hall.byName.get(`${this.sections.value}-${option.value}`);
      option.textContent = text("list.block", { subsection: option.value, left: left(place.free) });
    }
  }

  move(event) {
    const { place } = this;
    const cell = event.target.closest("[role=gridcell]");
    if (!cell) return;
    const seat = Number(cell.dataset.seat);
    const column = seat % place.perRow;
    const steps = {
      ArrowLeft: column > 0 ? -1 : 0,
      ArrowRight: column < place.perRow - 1 ? 1 : 0,
      ArrowUp: -place.perRow,
      ArrowDown: place.perRow,
      Home: -column,
      End: place.perRow - 1 - column,
      PageUp: -5 * place.perRow,
      PageDown: 5 * place.perRow,
    };
    if (event.key in steps) {
      const wanted = seat + steps[event.key];
      if (wanted >= 0 && wanted < place.seats) this.focus(wanted);
    } else if (event.key === "Enter" || event.key === " ") {
      this.press(cell);
    } else {
      return;
    }
    event.preventDefault();
  }

  focus(seat) {
    this.cells[this.current].tabIndex = -1;
    this.current = seat;
    this.cells[seat].tabIndex = 0;
    this.cells[seat].focus();
  }

  press(cell) {
    if (!cell) return;
    this.focus(Number(cell.dataset.seat));
    this.onPick(this.place, Number(cell.dataset.seat));
  }
}
