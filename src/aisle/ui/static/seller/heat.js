// Where the hall sells: every seat one small square, coloured by its state. The table beside it says the same in numbers.
import { get } from "../ask.js";
import { onSchemeChange } from "../hall/colours.js";
import { Hall } from "../hall/hall.js";
import { layOut } from "../hall/layout.js";

const MARGIN = 16;
const REFRESH_MS = 2000;

export class Heat {
  constructor(canvas, event) {
    Object.assign(this, { canvas, event, waiting: false, isBusy: false });
    onSchemeChange(() => this.draw());
    new ResizeObserver(() => this.draw()).observe(canvas);
  }

  // False if the event has no seats to draw.
  async start() {
    const [plan, sections] = await Promise.all([get(`/events/${this.event}/hall`), get(`/events/${this.event}/sections`)]);
    this.hall = new Hall(plan, sections);
    if (this.hall.places.length === 0) return false;
    this.layout = layOut(this.hall.places);
    await this.load();
    return true;
  }

  // Something was sold: look again, not more often than anybody could follow.
  refresh() {
    if (!this.hall?.places.length || this.waiting) return;
    this.waiting = true;
    setTimeout(() => {
      this.waiting = false;
      this.load().catch(() => undefined); // the next figures try again
    }, REFRESH_MS);
  }

  async load() {
    const { places, map } = await get(`/events/${this.event}/seatmap`);
    this.hall.load(places, map, 2);
    this.draw();
  }

  draw() {
    const box = this.canvas.getBoundingClientRect();
    if (!this.layout || !box.width) return;
    const ratio = Math.min(devicePixelRatio || 1, 2);
    [this.canvas.width, this.canvas.height] = [box.width * ratio, box.height * ratio];
    const pen = this.canvas.getContext("2d");
    const { left, right, top, bottom } = this.layout.bounds;
    const k = Math.min((box.width - 2 * MARGIN) / (right - left), (box.height - 2 * MARGIN) / (bottom - top), 20);
    const style = getComputedStyle(document.documentElement);
    const colours = ["line-strong", "mine", "accent"].map((name) => style.getPropertyValue(`--${name}`).trim());
    const [x, y] = [box.width / 2 - ((left + right) / 2) * k, box.height / 2 - ((top + bottom) / 2) * k];
    for (const block of this.layout.blocks) this.drawBlock(pen, block, [k * ratio, x * ratio, y * ratio], colours);
  }

  drawBlock(pen, { place, x, y, sin, cos }, [k, left, top], colours) {
    pen.setTransform(k * cos, -k * sin, k * sin, k * cos, k * x + left, k * y + top);
    const gap = k > 4 ? 0.12 : 0;
    colours.forEach((colour, state) => {
      pen.fillStyle = colour;
      for (let seat = 0; seat < place.seats; seat++) {
        if (place.states[seat] !== state) continue;
        const [column, row] = [seat % place.perRow, Math.floor(seat / place.perRow)];
        pen.fillRect(column + gap, row + gap, 1 - 2 * gap, 1 - 2 * gap);
      }
    });
  }
}
