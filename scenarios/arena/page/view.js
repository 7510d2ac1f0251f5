// The floor from above: tiles in the colours of the servers that have them, robots in those that simulate them.

const WIDTH_MM = 36_000;
const DEPTH_MM = 24_000;
const [COLUMNS, ROWS] = [12, 4];
const RADIUS_MM = 500;
const PULSE_MS = 700;
// Told apart by people who see colours otherwise, too (Okabe and Ito); by the number of a server's name.
const COLOURS = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9", "#f0e442", "#999999"];
const UNKNOWN = "#7d8590";

export function colourOf(server) {
  const number = Number(/\d+$/.exec(server)?.[0] ?? NaN);
  return Number.isNaN(number) ? UNKNOWN : COLOURS[(number - 1) % COLOURS.length];
}

export class FloorView {
  constructor(canvas) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d");
    this.dark = matchMedia("(prefers-color-scheme: dark)");
    this.still = matchMedia("(prefers-reduced-motion: reduce)");
    this.movedAtMs = new Map();
    this.serverOf = new Map();
  }

  /** Where on the floor a point of the page is, in millimetres. */
  placeAt(clientX, clientY) {
    const box = this.canvas.getBoundingClientRect();
    return [((clientX - box.left) / box.width) * WIDTH_MM, ((clientY - box.top) / box.height) * DEPTH_MM];
  }

  draw(tiles, robots, mine, nowMs) {
    const { canvas, context } = this;
    const ratio = devicePixelRatio || 1;
    const [width, height] = [canvas.clientWidth, canvas.clientHeight];
    if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
    }
    const scale = width / WIDTH_MM;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.fillStyle = this.dark.matches ? "#14171c" : "#ffffff";
    context.fillRect(0, 0, width, height);
    this.#drawTiles(tiles, scale);
    // Yours is on top.
    const names = [...robots.entities.keys()].sort((one, other) => (one === mine) - (other === mine));
    for (const name of names) this.#drawRobot(robots, name, name === mine, scale, nowMs);
  }

  #drawTiles(tiles, scale) {
    const { context } = this;
    const [across, along] = [(WIDTH_MM / COLUMNS) * scale, (DEPTH_MM / ROWS) * scale];
    const middles = new Map();
    for (const [name, { state }] of tiles.entities) {
      const [column, row] = state.t;
      const server = tiles.serverOf(name);
      const [x, y] = [column * across, row * along];
      context.globalAlpha = tiles.isLost(name) ? 0.12 : this.dark.matches ? 0.38 : 0.24;
      context.fillStyle = tiles.isLost(name) ? UNKNOWN : colourOf(server);
      context.fillRect(x, y, across + 0.5, along + 0.5);
      if (tiles.isLost(name)) this.#hatch(x, y, across, along);
      const middle = middles.get(server) ?? { x: 0, count: 0 };
      middles.set(server, { x: middle.x + x + across / 2, count: middle.count + 1 });
    }
    context.globalAlpha = 1;
    context.strokeStyle = this.dark.matches ? "rgba(255, 255, 255, 0.1)" : "rgba(0, 0, 0, 0.09)";
    context.lineWidth = 1;
    context.beginPath();
    for (let column = 1; column < COLUMNS; column += 1) line(context, column * across, 0, column * across, ROWS * along);
    for (let row = 1; row < ROWS; row += 1) line(context, 0, row * along, COLUMNS * across, row * along);
    context.stroke();
    this.#drawNames(middles, ROWS * along, scale);
  }

  /** Below the middle of what a server has. */
  #drawNames(middles, height, scale) {
    const { context } = this;
    const size = Math.max(13, 900 * scale);
    context.font = `600 ${size}px system-ui, sans-serif`;
    context.textAlign = "center";
    context.textBaseline = "middle";
    context.fillStyle = this.dark.matches ? "rgba(232, 234, 237, 0.75)" : "rgba(26, 29, 33, 0.7)";
    for (const [server, { x, count }] of middles) context.fillText(server, x / count, height - size);
  }

  #hatch(x, y, width, height) {
    const { context } = this;
    context.save();
    context.beginPath();
    context.rect(x, y, width, height);
    context.clip();
    context.globalAlpha = 0.35;
    context.strokeStyle = UNKNOWN;
    context.beginPath();
    for (let at = -height; at < width; at += 8) line(context, x + at, y + height, x + at + height, y);
    context.stroke();
    context.restore();
  }

  #drawRobot(robots, name, isMine, scale, nowMs) {
    const found = robots.at(name, nowMs);
    if (!found?.before.state.p) return;
    const { before, after, share } = found;
    const [x, y] = [0, 1].map((axis) => (before.state.p[axis] + share * (after.state.p[axis] - before.state.p[axis])) * scale);
    const server = robots.serverOf(name);
    this.#pulseOf(name, server, nowMs);
    const { context } = this;
    const radius = Math.max(isMine ? 8 : 5, RADIUS_MM * scale * (isMine ? 1.25 : 1));
    const outline = this.dark.matches ? "#ffffff" : "#1a1d21";
    const isLost = robots.isLost(name);
    const heading = Math.hypot(...after.state.v) > 100 ? Math.atan2(after.state.v[1], after.state.v[0]) : null;
    const since = nowMs - (this.movedAtMs.get(name) ?? -Infinity);
    if (since < PULSE_MS && !this.still.matches) {
      context.strokeStyle = colourOf(server);
      context.globalAlpha = 1 - since / PULSE_MS;
      context.lineWidth = 3;
      circle(context, x, y, radius * (1 + (2 * since) / PULSE_MS));
      context.stroke();
      context.globalAlpha = 1;
    }
    if (isMine) {
      context.strokeStyle = outline;
      context.lineWidth = 2;
      circle(context, x, y, radius + 4);
      context.stroke();
    }
    circle(context, x, y, radius);
    context.fillStyle = isLost ? UNKNOWN : colourOf(server);
    context.globalAlpha = isLost ? 0.5 : 1;
    context.fill();
    context.globalAlpha = 1;
    context.strokeStyle = outline;
    context.lineWidth = isMine ? 2 : 1;
    context.stroke();
    if (heading !== null) {
      context.lineWidth = 2;
      context.beginPath();
      line(context, x, y, x + radius * Math.cos(heading), y + radius * Math.sin(heading));
      context.stroke();
    }
    if (isMine) this.#label("you", x, y - radius - 12, outline);
  }

  #label(text, x, y, colour) {
    const { context } = this;
    context.font = "600 13px system-ui, sans-serif";
    context.textAlign = "center";
    context.textBaseline = "middle";
    context.lineWidth = 4;
    context.strokeStyle = this.dark.matches ? "#14171c" : "#ffffff";
    // Within the floor: below, where there is no room above.
    const half = context.measureText(text).width / 2 + 4;
    const [atX, atY] = [Math.max(half, Math.min(this.canvas.clientWidth - half, x)), y < 10 ? y + 52 : y];
    context.strokeText(text, atX, atY);
    context.fillStyle = colour;
    context.fillText(text, atX, atY);
  }

  #pulseOf(name, server, nowMs) {
    if (this.serverOf.has(name) && this.serverOf.get(name) !== server) this.movedAtMs.set(name, nowMs);
    this.serverOf.set(name, server);
  }
}

function line(context, fromX, fromY, toX, toY) {
  context.moveTo(fromX, fromY);
  context.lineTo(toX, toY);
}

function circle(context, x, y, radius) {
  context.beginPath();
  context.arc(x, y, radius, 0, 2 * Math.PI);
}
