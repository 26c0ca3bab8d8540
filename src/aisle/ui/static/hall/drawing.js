// Draws a hall on a canvas: from afar each block is one small picture of its seats, from near each seat is a sign.
//
// What is on the screen is at most some thousand stamps whatever the size of the hall, and while the map moves far
// fewer: small seats are drawn one by one when it has come to rest. Pictures of blocks are repaired seat by seat when
// something changes.
import { money, text } from "../words.js";
import { WALK } from "./layout.js";
import { Stamps } from "./signs.js";

// From this many pixels a seat on, seats are drawn one by one; while the map moves, from more.
export const SEAT_PIXELS = 9;
const MOVING_SEAT_PIXELS = 18;
const LABEL_PIXELS = 15;
const BLOCK_NAME_PIXELS = 7;
const BLOCK_NAME_AWAY = 9;
const PILL_HEIGHT = 26;

export class Drawing {
  constructor(canvas, hall, layout, colours) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d", { alpha: false });
    this.hall = hall;
    this.layout = layout;
    // Pictures of blocks by how many pixels a seat has in them: one from afar, four with a gap from nearer.
    this.pictures = { 1: new Map(), 4: new Map() };
    this.use(colours);
  }

  use(colours) {
    this.colours = colours;
    this.stamps = new Stamps(colours);
    this.forget();
  }

  // The picture of a block is out of date: some seats, or all of them.
  repair(place, seats) {
    if (place === null) {
      if (seats === null) this.forget();
      return;
    }
    for (const [grain, pictures] of Object.entries(this.pictures)) {
      const picture = pictures.get(place.name);
      if (picture) for (const seat of seats) this.paintSeat(picture.getContext("2d"), place, seat, Number(grain));
    }
  }

  forget() {
    for (const pictures of Object.values(this.pictures)) pictures.clear();
  }

  draw(transform, width, height, ratio, isMoving) {
    const { context, colours } = this;
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.fillStyle = colours.ground;
    context.fillRect(0, 0, this.canvas.width, this.canvas.height);
    const view = { k: transform.k, x: transform.x, y: transform.y, width, height, ratio };
    this.drawStage(view);
    const near = transform.k >= (isMoving ? MOVING_SEAT_PIXELS : SEAT_PIXELS);
    if (near) this.stamps.resize(transform.k * ratio);
    for (const block of this.layout.blocks) {
      if (!isVisible(block, view)) continue;
      this.enter(block, view);
      if (near) this.drawSeats(block, view);
      else this.drawPicture(block, view);
    }
    this.drawLabels(view);
  }

  enter(block, { k, x, y, ratio }) {
    const s = k * ratio;
    this.context.setTransform(
      s * block.cos,
      -s * block.sin,
      s * block.sin,
      s * block.cos,
      (block.x * k + x) * ratio,
      (block.y * k + y) * ratio,
    );
  }

  drawPicture({ place }, { k, ratio }) {
    const { context, colours } = this;
    context.fillStyle = colours.block;
    context.fillRect(-0.4, -0.4, place.perRow + 0.8, place.rows + 0.8);
    context.imageSmoothingEnabled = true;
    // A fine picture that is shrunk would show a pattern that is not there.
    context.drawImage(this.pictureOf(place, k * ratio >= 4 ? 4 : 1), 0, 0, place.perRow, place.rows);
  }

  pictureOf(place, grain) {
    let picture = this.pictures[grain].get(place.name);
    if (!picture) {
      picture = document.createElement("canvas");
      picture.width = place.perRow * grain;
      picture.height = place.rows * grain;
      const context = picture.getContext("2d");
      for (let seat = 0; seat < place.seats; seat++) this.paintSeat(context, place, seat, grain);
      this.pictures[grain].set(place.name, picture);
    }
    return picture;
  }

  paintSeat(context, place, seat, grain) {
    const { colours } = this;
    const [x, y] = [(seat % place.perRow) * grain, Math.floor(seat / place.perRow) * grain];
    const kind = this.hall.kindOf(place, seat);
    context.clearRect(x, y, grain, grain);
    if (kind === "unavailable") return;
    const own = kind === "mine" || kind === "booked" || kind === "busy";
    context.fillStyle = own ? colours.mine : kind === "free" ? colours.tiers[place.tier - 1] : colours.gone;
    // Taken seats are drawn smaller: a block that empties also grows lighter.
    const inset = grain === 1 ? 0 : kind === "free" || own ? 0.5 : 1.25;
    context.fillRect(x + inset, y + inset, grain - 2 * inset, grain - 2 * inset);
  }

  drawSeats(block, view) {
    const { context, colours, hall, stamps } = this;
    const { place } = block;
    context.fillStyle = colours.block;
    context.beginPath();
    context.roundRect(-0.6, -0.6, place.perRow + 1.2, place.rows + 1.2, 0.6);
    context.fill();
    const shown = visiblePart(block, view);
    for (let row = shown.firstRow; row < shown.lastRow; row++) {
      for (let column = shown.first; column < shown.last; column++) {
        const seat = row * place.perRow + column;
        const kind = hall.kindOf(place, seat);
        if (kind === "unavailable") continue;
        context.drawImage(stamps.of(kind, place.accessible.has(seat), place.tier), column, row, 1, 1);
      }
    }
    this.drawSuggestion(place);
    if (view.k >= LABEL_PIXELS) this.drawRowNumbers(place);
  }

  drawSuggestion(place) {
    if (this.hall.suggested?.place !== place) return;
    const { seat } = this.hall.suggested;
    const { context } = this;
    context.strokeStyle = this.colours.accent;
    context.lineWidth = 0.12;
    context.beginPath();
    context.arc((seat % place.perRow) + 0.5, Math.floor(seat / place.perRow) + 0.5, 0.62, 0, 2 * Math.PI);
    context.stroke();
  }

  drawRowNumbers(place) {
    const { context } = this;
    context.fillStyle = this.colours.soft;
    context.font = "0.5px system-ui, sans-serif";
    context.textBaseline = "middle";
    for (let row = 0; row < place.rows; row++) {
      context.textAlign = "right";
      context.fillText(String(row + 1), -0.75, row + 0.5);
    }
  }

  drawStage(view) {
    const { context, colours } = this;
    const { width, depth, y } = this.layout.stage;
    const s = view.k * view.ratio;
    context.setTransform(s, 0, 0, s, view.x * view.ratio, view.y * view.ratio);
    context.fillStyle = colours.line;
    context.beginPath();
    context.moveTo(-width / 2, y);
    context.lineTo(width / 2, y);
    context.quadraticCurveTo(width * 0.36, y + depth * 1.5, 0, y + depth * 1.5);
    context.quadraticCurveTo(-width * 0.36, y + depth * 1.5, -width / 2, y);
    context.fill();
    context.setTransform(view.ratio, 0, 0, view.ratio, 0, 0);
    this.writeCentred(text("event.stage"), view.x, (y + depth * 0.62) * view.k + view.y, 13, colours.ink);
  }

  drawLabels(view) {
    const { context, colours, hall } = this;
    context.setTransform(view.ratio, 0, 0, view.ratio, 0, 0);
    if (view.k >= BLOCK_NAME_PIXELS) this.drawBlockNames(view);
    if (WALK * view.k < PILL_HEIGHT) return;
    for (const label of this.layout.labels) {
      const x = label.radius * Math.sin(label.angle) * view.k + view.x;
      const y = label.radius * Math.cos(label.angle) * view.k + view.y;
      if (x < -200 || y < -40 || x > view.width + 200 || y > view.height + 40) continue;
      const free = hall.freeIn(label.section);
      const left = free ? text("event.left", { count: free.toLocaleString("en") }) : text("event.sold_out");
      this.writePill(
        `${label.section} · ${money(label.price, hall.currency)} · ${left}`,
        x,
        y,
        colours.tiers[label.tier - 1],
      );
    }
  }

  // Along the back of each block, turned with it: a level name would lie on the corner of a block that is turned.
  drawBlockNames(view) {
    const { context } = this;
    for (const block of this.layout.blocks) {
      if (!isVisible(block, view)) continue;
      const away = block.place.rows + 0.6 + BLOCK_NAME_AWAY / view.k;
      const x = block.x + (block.place.perRow / 2) * block.cos + away * block.sin;
      const y = block.y - (block.place.perRow / 2) * block.sin + away * block.cos;
      const upright = block.cos < 0 ? Math.PI : 0;
      context.setTransform(view.ratio, 0, 0, view.ratio, (x * view.k + view.x) * view.ratio, (y * view.k + view.y) * view.ratio);
      context.rotate(Math.atan2(-block.sin, block.cos) + upright);
      this.writeCentred(`${block.place.section} ${block.place.number}`, 0, 0, 12, this.colours.soft);
    }
    context.setTransform(view.ratio, 0, 0, view.ratio, 0, 0);
  }

  writePill(words, x, y, dot) {
    const { context, colours } = this;
    context.font = "600 12px system-ui, sans-serif";
    const width = context.measureText(words).width + 30;
    context.globalAlpha = 0.92;
    context.fillStyle = colours.surface;
    context.beginPath();
    context.roundRect(x - width / 2, y - 11, width, 22, 11);
    context.fill();
    context.globalAlpha = 1;
    context.fillStyle = dot;
    context.beginPath();
    context.arc(x - width / 2 + 11, y, 4.5, 0, 2 * Math.PI);
    context.fill();
    context.fillStyle = colours.ink;
    context.textAlign = "left";
    context.textBaseline = "middle";
    context.fillText(words, x - width / 2 + 20, y + 0.5);
  }

  writeCentred(words, x, y, pixels, colour) {
    const { context } = this;
    context.fillStyle = colour;
    context.font = `${pixels}px system-ui, sans-serif`;
    context.textAlign = "center";
    context.textBaseline = "middle";
    context.fillText(words, x, y);
  }
}

function isVisible(block, { k, x, y, width, height }) {
  const reach = block.reach * k;
  const [cx, cy] = [block.middle.x * k + x, block.middle.y * k + y];
  return cx + reach > 0 && cy + reach > 0 && cx - reach < width && cy - reach < height;
}

// The rows and columns of a block that can be on the screen: the screen's corners in the block's own axes.
function visiblePart(block, { k, x, y, width, height }) {
  const { perRow, rows } = block.place;
  const corners = [
    [0, 0],
    [width, 0],
    [0, height],
    [width, height],
  ].map(([px, py]) => {
    const [dx, dy] = [(px - x) / k - block.x, (py - y) / k - block.y];
    return [dx * block.cos - dy * block.sin, dx * block.sin + dy * block.cos];
  });
  const range = (axis, size) => {
    const values = corners.map((corner) => corner[axis]);
    return [Math.max(0, Math.floor(Math.min(...values))), Math.min(size, Math.ceil(Math.max(...values)) + 1)];
  };
  const [[first, last], [firstRow, lastRow]] = [range(0, perRow), range(1, rows)];
  return { first, last, firstRow, lastRow };
}
