// Entities on a map: each a dot in the colour of its server, which changes as it goes to another one; regions behind them.

import { ask, byId, el, keyed, say, svg } from "./dom.js";
import { count } from "./map.js";
import { WhileSeen } from "./seen.js";

const AGAIN_MS = 1000;
const COLOURS = 8;
const [WIDTH, HEIGHT] = [1000, 500];
const RADIUS = 6;
const EDGE = 20;

export class SpaceMap {
  constructor() {
    this.seen = new WhileSeen(byId("space"), () => this.#load(), AGAIN_MS);
    this.picture = byId("space-map");
    this.picture.setAttribute("viewBox", `0 0 ${WIDTH} ${HEIGHT}`);
    this.cells = svg("g");
    this.dots = svg("g");
    this.picture.append(this.cells, this.dots);
    this.box = null;
    this.dots.addEventListener("click", ({ target }) => target.dataset.key && (location.hash = `#entity/${target.dataset.key}`));
  }

  async #load() {
    try {
      this.#show(await ask("positions"));
      say(byId("space-error"), "");
    } catch (error) {
      say(byId("space-error"), error.message);
    }
  }

  #show({ entities, one_in: oneIn, placed, cells, servers, silent, has_positions: has }) {
    const colours = new Map(servers.map((name, at) => [name, `colour-${at % COLOURS}`]));
    const here = servers.map((name) => [name, placed.filter(({ server }) => server === name).length]);
    const left = placed.length < entities ? ": the others have no position, or are on their way" : "";
    const shown = `${count(placed.length)} of ${count(entities)} entities${oneIn === 1 ? left : `, a sample of one in ${count(oneIn)}`}`;
    const unsaid = silent.length ? ` Not told by ${silent.join(", ")}.` : "";
    say(byId("space-about"), has ? `${shown}.${unsaid}` : `The world does not say where its entities are (position).${unsaid}`);
    this.picture.setAttribute("aria-label", `${shown}: ${here.map(([name, some]) => `${count(some)} at ${name}`).join(", ")}`);
    keyed(byId("space-legend"), here, ([name]) => name, () => el("li", {}, el("i"), el("span")), (item, [name, some]) => {
      item.firstChild.className = colours.get(name);
      say(item.lastChild, `${name} ${count(some)}`);
    });
    this.picture.toggleAttribute("hidden", !placed.length && !cells.length);
    this.#fit(placed, cells);
    keyed(this.cells, cells, ({ cell }) => cell, () => svg("rect", {}, svg("title")), (rect, cell) => this.#cell(rect, cell, colours));
    keyed(this.dots, placed, ({ entity }) => entity, () => svg("circle", { r: RADIUS }, svg("title")), (dot, one) => this.#dot(dot, one, colours));
  }

  /** The part of space that is drawn holds all of them, and grows only: what moves is the entities. */
  #fit(placed, cells) {
    const points = [...placed.map(({ at }) => point(at)), ...cells.flatMap(({ low, high }) => [point(low), point(high)])];
    const along = (axis) => points.map((at) => at[axis]).filter((value) => value !== null);
    const [xs, ys] = [along(0), along(1)];
    const box = [least(xs), least(ys), most(xs), most(ys)];
    this.box = this.box === null ? box : [Math.min(box[0], this.box[0]), Math.min(box[1], this.box[1]), Math.max(box[2], this.box[2]), Math.max(box[3], this.box[3])];
    const [left, top, right, bottom] = this.box;
    this.scale = Math.min((WIDTH - 2 * EDGE) / Math.max(right - left, 1e-9), (HEIGHT - 2 * EDGE) / Math.max(bottom - top, 1e-9));
    this.shift = [(WIDTH - this.scale * (right - left)) / 2, (HEIGHT - this.scale * (bottom - top)) / 2];
  }

  #x(value) {
    return this.shift[0] + this.scale * (value - this.box[0]);
  }

  #y(value) {
    return this.shift[1] + this.scale * (value - this.box[1]);
  }

  #cell(rect, { cell, server, low, high }, colours) {
    const [x, right] = [low[0] === null ? 0 : this.#x(low[0]), high[0] === null ? WIDTH : this.#x(high[0])];
    const [a, b] = [point(low)[1], point(high)[1]];
    // A cell along one axis is as high as the map.
    const [y, bottom] = low.length < 2 ? [0, HEIGHT] : [a === null ? 0 : this.#y(a), b === null ? HEIGHT : this.#y(b)];
    for (const [name, value] of Object.entries({ x, y, width: Math.max(0, right - x), height: Math.max(0, bottom - y) })) rect.setAttribute(name, value);
    rect.setAttribute("class", colours.get(server) ?? "");
    say(rect.firstChild, `${cell} of ${server}`);
  }

  #dot(dot, { entity, server, at }, colours) {
    const [x, y] = point(at);
    dot.setAttribute("cx", this.#x(x));
    dot.setAttribute("cy", this.#y(y));
    const went = dot.dataset.server && dot.dataset.server !== server;
    dot.dataset.server = server;
    dot.setAttribute("class", `${colours.get(server) ?? ""}${went ? " went" : ""}`);
    say(dot.firstChild, `${entity} at ${server}`);
  }
}

/** The first two numbers of a position; of one with a single number, the other one is 0. */
const point = (at) => [at[0], at.length > 1 ? at[1] : 0];
const least = (values) => values.reduce((a, b) => Math.min(a, b), values[0] ?? 0);
const most = (values) => values.reduce((a, b) => Math.max(a, b), values[0] ?? 1);
