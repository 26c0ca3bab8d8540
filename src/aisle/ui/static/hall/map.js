// The map people pan, zoom and tap. d3-zoom moves it (wheel, drag, pinch, double tap); a tap on a block comes closer, a tap
// on a seat asks for it.
import { select, zoom, zoomIdentity } from "../vendor/d3-zoom.js";
import { onSchemeChange, readColours } from "./colours.js";
import { Drawing, SEAT_PIXELS } from "./drawing.js";
import { layOut, seatAt } from "./layout.js";

// A finger needs a larger seat than a mouse before a tap means this seat.
const FINGER_PIXELS = 17;
const SEAT_PIXELS_MAX = 64;
const MARGIN = 28;
const HINT = 24;
const REST_MS = 120;

export class HallMap {
  constructor(canvas, hall, { onPick, onPoint }) {
    this.canvas = canvas;
    this.hall = hall;
    this.onPick = onPick;
    this.onPoint = onPoint;
    this.layout = layOut(hall.places);
    this.drawing = new Drawing(canvas, hall, this.layout, readColours());
    this.transform = zoomIdentity;
    this.waiting = false;
    this.isMoving = false;
    this.pointer = "mouse";
    this.behaviour = zoom().on("zoom", (event) => {
      this.transform = event.transform;
      this.move();
    });
    select(canvas).call(this.behaviour).on("dblclick.zoom", null);
    canvas.addEventListener("pointerdown", (event) => (this.pointer = event.pointerType));
    canvas.addEventListener("click", (event) => this.tap(event));
    canvas.addEventListener("pointermove", (event) => this.point(event));
    canvas.addEventListener("pointerleave", () => this.onPoint(null));
    hall.addEventListener("change", ({ detail }) => {
      this.drawing.repair(detail.place, detail.seats);
      this.schedule();
    });
    onSchemeChange(() => {
      this.drawing.use(readColours());
      this.schedule();
    });
    new ResizeObserver(() => this.resize()).observe(canvas);
  }

  resize() {
    const box = this.canvas.getBoundingClientRect();
    if (!box.width || !box.height) return;
    const isFirst = !this.width;
    const wasWhole = !isFirst && Math.abs(this.transform.k - this.whole.k) < 0.01;
    [this.width, this.height, this.ratio] = [box.width, box.height, Math.min(devicePixelRatio || 1, 2)];
    this.canvas.width = Math.round(this.width * this.ratio);
    this.canvas.height = Math.round(this.height * this.ratio);
    this.whole = this.fit();
    const { left, right, top, bottom } = this.layout.bounds;
    const room = 12;
    this.behaviour
      .extent([
        [0, 0],
        [this.width, this.height],
      ])
      .scaleExtent([this.whole.k * 0.8, Math.max(SEAT_PIXELS_MAX, this.whole.k)])
      .translateExtent([
        [Math.min(left, 0) - room * 3, Math.min(top, this.layout.stage.y) - room],
        [right + room * 3, bottom + room],
      ]);
    if (isFirst || wasWhole) this.moveTo(this.whole, 0);
    this.schedule();
  }

  // The whole hall, stage included.
  fit() {
    const { left, right, bottom } = this.layout.bounds;
    const top = Math.min(this.layout.bounds.top, this.layout.stage.y);
    const k = Math.min(
      (this.width - 2 * MARGIN) / (right - left),
      (this.height - 2 * MARGIN - 2 * HINT) / (bottom - top),
      SEAT_PIXELS_MAX / 2,
    );
    // A little higher than the middle: the hint is below.
    return at(k, (left + right) / 2, (top + bottom) / 2 + HINT / k, this.width, this.height);
  }

  showAll() {
    this.moveTo(this.whole, 400);
  }

  zoomBy(factor) {
    select(this.canvas).transition().duration(calm(200)).call(this.behaviour.scaleBy, factor);
  }

  showPlace(place) {
    const block = this.layout.blocks.find((b) => b.place === place);
    const [wide, high] = [place.perRow + 3, place.rows + 4];
    const across = Math.abs(wide * block.cos) + Math.abs(high * block.sin);
    const down = Math.abs(wide * block.sin) + Math.abs(high * block.cos);
    const fitting = Math.min(this.width / across, this.height / down);
    const least = this.pointer === "touch" ? FINGER_PIXELS : SEAT_PIXELS + 1;
    this.moveTo(
      at(Math.min(Math.max(fitting, least), 44), block.middle.x, block.middle.y, this.width, this.height),
      500,
    );
  }

  showSection(section) {
    const blocks = this.layout.blocks.filter((b) => b.place.section === section);
    if (blocks.length === 1) return this.showPlace(blocks[0].place);
    const left = Math.min(...blocks.map((b) => b.middle.x - b.reach));
    const right = Math.max(...blocks.map((b) => b.middle.x + b.reach));
    const top = Math.min(...blocks.map((b) => b.middle.y - b.reach));
    const bottom = Math.max(...blocks.map((b) => b.middle.y + b.reach));
    const k = Math.min(this.width / (right - left), this.height / (bottom - top), SEAT_PIXELS_MAX / 2);
    return this.moveTo(at(k, (left + right) / 2, (top + bottom) / 2, this.width, this.height), 500);
  }

  moveTo(transform, ms) {
    const target = select(this.canvas);
    (ms ? target.transition().duration(calm(ms)) : target).call(this.behaviour.transform, transform);
  }

  // Until the map has rested for a moment it is drawn in a hurry.
  move() {
    this.isMoving = true;
    clearTimeout(this.rest);
    this.rest = setTimeout(() => {
      this.isMoving = false;
      this.schedule();
    }, REST_MS);
    this.schedule();
  }

  schedule() {
    if (this.waiting || !this.width) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      const start = performance.now();
      this.drawing.draw(this.transform, this.width, this.height, this.ratio, this.isMoving);
      this.measure(start);
      if (this.hall.loaded && !this.drawn) {
        this.drawn = true;
        performance.mark("hall-drawn");
        this.canvas.dataset.drawn = "true";
      }
    });
  }

  // What drawing took, for whoever measures; the last few hundred frames are kept.
  measure(start) {
    performance.measure("hall-frame", { start, end: performance.now() });
    this.frames = (this.frames ?? 0) + 1;
    if (this.frames % 500 === 0) performance.clearMeasures("hall-frame");
  }

  // Where on the page a seat is: for whoever has to point at it.
  positionOf(place, seat) {
    const block = this.layout.blocks.find((b) => b.place === place);
    const [u, v] = [(seat % place.perRow) + 0.5, Math.floor(seat / place.perRow) + 0.5];
    const x = block.x + u * block.cos + v * block.sin;
    const y = block.y - u * block.sin + v * block.cos;
    return { x: x * this.transform.k + this.transform.x, y: y * this.transform.k + this.transform.y };
  }

  under(event) {
    const [x, y] = this.transform.invert([event.offsetX, event.offsetY]);
    return seatAt(this.layout.blocks, x, y);
  }

  isNear() {
    return this.transform.k >= (this.pointer === "touch" ? FINGER_PIXELS : SEAT_PIXELS);
  }

  tap(event) {
    const found = this.under(event);
    if (!found) return;
    if (this.isNear()) this.onPick(found.place, found.seat);
    else this.showPlace(found.place);
  }

  point(event) {
    if (event.pointerType === "touch" || event.buttons) return this.onPoint(null);
    const found = this.under(event);
    this.canvas.classList.toggle("seat", found !== null);
    return this.onPoint(found && { ...found, near: this.isNear(), x: event.offsetX, y: event.offsetY });
  }
}

function at(k, x, y, width, height) {
  return zoomIdentity.translate(width / 2 - x * k, height / 2 - y * k).scale(k);
}

function calm(ms) {
  return matchMedia("(prefers-reduced-motion: reduce)").matches ? 0 : ms;
}
