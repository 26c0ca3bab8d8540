// What a seat looks like. Every state has a shape of its own, so that colour alone never decides:
//
//     free  a disc      mine  a square with a tick      held  a dashed ring      sold  a cross
//     wheelchair place  a square where others are discs, with a wheel in it      not for sale  nothing

export function drawSign(context, kind, isAccessible, tierColour, colours, size) {
  const middle = size / 2;
  const radius = size * 0.4;
  context.lineCap = "round";
  switch (kind) {
    case "free":
      context.fillStyle = tierColour;
      if (isAccessible) wheel(context, colours, size);
      else disc(context, middle, radius);
      break;
    case "busy":
      context.globalAlpha = 0.55;
      square(context, size, colours.mine);
      context.globalAlpha = 1;
      break;
    case "mine":
      square(context, size, colours.mine);
      tick(context, size, colours.mineInk);
      break;
    case "booked":
      square(context, size, colours.mine);
      context.fillStyle = colours.mineInk;
      disc(context, middle, size * 0.13);
      break;
    case "held":
      ring(context, size, colours.goneLine);
      break;
    case "sold":
      cross(context, size, colours.gone);
      break;
  }
}

function disc(context, middle, radius) {
  context.beginPath();
  context.arc(middle, middle, radius, 0, 2 * Math.PI);
  context.fill();
}

function square(context, size, colour) {
  context.fillStyle = colour;
  context.beginPath();
  context.roundRect(size * 0.08, size * 0.08, size * 0.84, size * 0.84, size * 0.2);
  context.fill();
}

function wheel(context, colours, size) {
  context.beginPath();
  context.roundRect(size * 0.1, size * 0.1, size * 0.8, size * 0.8, size * 0.16);
  context.fill();
  context.strokeStyle = colours.surface;
  context.lineWidth = size * 0.08;
  context.beginPath();
  context.arc(size * 0.47, size * 0.6, size * 0.18, -0.6, 4.2);
  context.moveTo(size * 0.44, size * 0.26);
  context.lineTo(size * 0.46, size * 0.52);
  context.lineTo(size * 0.64, size * 0.52);
  context.lineTo(size * 0.72, size * 0.72);
  context.stroke();
}

function ring(context, size, colour) {
  context.strokeStyle = colour;
  context.lineWidth = size * 0.1;
  context.setLineDash([size * 0.16, size * 0.17]);
  context.beginPath();
  context.arc(size / 2, size / 2, size * 0.32, 0, 2 * Math.PI);
  context.stroke();
  context.setLineDash([]);
}

function cross(context, size, colour) {
  context.strokeStyle = colour;
  context.lineWidth = size * 0.13;
  context.beginPath();
  context.moveTo(size * 0.3, size * 0.3);
  context.lineTo(size * 0.7, size * 0.7);
  context.moveTo(size * 0.7, size * 0.3);
  context.lineTo(size * 0.3, size * 0.7);
  context.stroke();
}

function tick(context, size, colour) {
  context.strokeStyle = colour;
  context.lineWidth = size * 0.13;
  context.beginPath();
  context.moveTo(size * 0.28, size * 0.53);
  context.lineTo(size * 0.44, size * 0.68);
  context.lineTo(size * 0.73, size * 0.35);
  context.stroke();
}

// Each sign is drawn once at about the size it is needed in, and stamped thousands of times.
export class Stamps {
  constructor(colours) {
    this.colours = colours;
    this.made = new Map();
    this.size = 0;
  }

  resize(pixels) {
    const size = Math.min(96, 4 * Math.ceil(pixels / 4));
    if (size === this.size) return;
    this.size = size;
    this.made.clear();
  }

  of(kind, isAccessible, tier) {
    const key = `${kind}${isAccessible ? "a" : ""}${tier}`;
    if (!this.made.has(key)) {
      const canvas = new OffscreenCanvas(this.size, this.size);
      drawSign(canvas.getContext("2d"), kind, isAccessible, this.colours.tiers[tier - 1], this.colours, this.size);
      this.made.set(key, canvas.transferToImageBitmap());
    }
    return this.made.get(key);
  }
}
