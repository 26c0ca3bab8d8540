// Where the blocks of a hall stand: in rings around the stage, each block facing it, dearest sections in front.
//
// The seller gives sections, rows and seats, no drawing. One unit is the distance between two seats. The stage is at
// (0, 0), the audience below it. A block's own axes: x along its rows, y away from the stage; `angle` is where on the
// ring it stands (0 is straight in front), so the axes point to (cos, -sin) and (sin, cos) of it.

const AISLE = 1.6;
export const WALK = 5.5;
// A little less than half a circle: nobody sits behind the stage.
const ANGLE_MAX = 3.0;

export function layOut(places) {
  const rings = spread(ringsOf(places));
  let radius = firstRadius(rings);
  const blocks = [];
  const labels = [];
  for (const ring of rings) {
    const angles = ring.blocks.map((place) => 2 * Math.atan((place.perRow + AISLE) / 2 / radius));
    let angle = angles.reduce((sum, a) => sum + a, 0) / 2;
    const start = angle;
    ring.blocks.forEach((place, n) => {
      const middle = angle - angles[n] / 2;
      angle -= angles[n];
      blocks.push(blockAt(place, -middle, radius));
    });
    labels.push(...labelsOf(ring, radius, start, angles));
    radius += ring.depth + WALK;
  }
  return { blocks, labels, stage: stageOf(rings, firstRadius(rings)), bounds: boundsOf(blocks) };
}

// Sections in their order; small ones share a ring as long as it does not get wider than the hall is deep.
function ringsOf(places) {
  const area = places.reduce((sum, place) => sum + place.seats, 0);
  const wide = Math.sqrt(area) * 1.6;
  const rings = [];
  for (const section of new Set(places.map((place) => place.section))) {
    const blocks = places.filter((place) => place.section === section);
    const last = rings.at(-1);
    if (last && widthOf(last.blocks) + widthOf(blocks) <= wide) last.blocks.push(...blocks);
    else rings.push({ blocks });
  }
  for (const ring of rings) ring.depth = Math.max(...ring.blocks.map((place) => place.rows));
  return rings;
}

// A ring that would not fit around the stage becomes several of the same length.
function spread(rings) {
  const depth = rings.reduce((sum, ring) => sum + ring.depth + WALK, 0);
  const radiusMax = Math.max(depth * 2, 40);
  return rings.flatMap((ring) => {
    const count = Math.ceil(widthOf(ring.blocks) / (ANGLE_MAX * radiusMax));
    const each = Math.ceil(ring.blocks.length / count);
    return Array.from({ length: count }, (_, n) => {
      const blocks = ring.blocks.slice(n * each, (n + 1) * each);
      return { blocks, depth: Math.max(0, ...blocks.map((place) => place.rows)) };
    }).filter((part) => part.blocks.length > 0);
  });
}

// Large enough that every ring fits into its share of the circle; few blocks stand almost straight.
function firstRadius(rings) {
  let before = 0;
  let radius = 8;
  for (const ring of rings) {
    const share = Math.min(ANGLE_MAX, 0.2 + 0.42 * ring.blocks.length);
    radius = Math.max(radius, widthOf(ring.blocks) / share - before);
    before += ring.depth + WALK;
  }
  return radius;
}

function blockAt(place, angle, radius) {
  const [sin, cos] = [Math.sin(angle), Math.cos(angle)];
  return {
    place,
    angle,
    sin,
    cos,
    // Where its first row's left end is, and its middle.
    x: radius * sin - (place.perRow / 2) * cos,
    y: radius * cos + (place.perRow / 2) * sin,
    middle: { x: (radius + place.rows / 2) * sin, y: (radius + place.rows / 2) * cos },
    reach: Math.hypot(place.perRow, place.rows) / 2 + 1,
  };
}

// One label a section, in the walk before its ring, at the middle of its blocks.
function labelsOf(ring, radius, start, angles) {
  const labels = [];
  let angle = start;
  let from = start;
  ring.blocks.forEach((place, n) => {
    angle -= angles[n];
    if (place.section !== ring.blocks[n + 1]?.section) {
      const middle = -(from + angle) / 2;
      labels.push({
        section: place.section,
        tier: place.tier,
        price: place.price,
        angle: middle,
        radius: radius - WALK * 0.4,
      });
      from = angle;
    }
  });
  return labels;
}

function stageOf(rings, radius) {
  const width = Math.min(widthOf(rings[0]?.blocks ?? []), radius * 1.5) * 0.62;
  const depth = Math.min(width * 0.3, radius * 0.35);
  return { width, depth, y: radius - WALK * 1.2 - depth * 1.5 };
}

function boundsOf(blocks) {
  const bounds = { left: Infinity, right: -Infinity, top: Infinity, bottom: -Infinity };
  for (const block of blocks) {
    for (const [u, v] of [
      [0, 0],
      [1, 0],
      [0, 1],
      [1, 1],
    ]) {
      const x = block.x + u * block.place.perRow * block.cos + v * block.place.rows * block.sin;
      const y = block.y - u * block.place.perRow * block.sin + v * block.place.rows * block.cos;
      bounds.left = Math.min(bounds.left, x);
      bounds.right = Math.max(bounds.right, x);
      bounds.top = Math.min(bounds.top, y);
      bounds.bottom = Math.max(bounds.bottom, y);
    }
  }
  return bounds;
}

function widthOf(blocks) {
  return blocks.reduce((sum, place) => sum + place.perRow + AISLE, 0);
}

// The block and seat under a point, or null.
export function seatAt(blocks, x, y) {
  for (const block of blocks) {
    const [dx, dy] = [x - block.x, y - block.y];
    const along = dx * block.cos - dy * block.sin;
    const away = dx * block.sin + dy * block.cos;
    if (along >= 0 && away >= 0 && along < block.place.perRow && away < block.place.rows) {
      return { block, place: block.place, seat: Math.floor(away) * block.place.perRow + Math.floor(along) };
    }
  }
  return null;
}
