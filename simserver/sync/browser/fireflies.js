/**
 * Fireflies: two boats on a pond at night catch fireflies; ten points win a round. The twin of the Python example
 * of the same name, hash for hash: whole numbers only, a unit of the pond is 256 of them.
 *
 * @module
 */

import { SimDriver, SimEntity } from "./events.js";

export const WIDTH = 1600;
export const HEIGHT = 1000;
export const UNIT = 256;
export const GOAL = 10;
const RADIUS = { boat: 46, firefly: 14 };
const FIREFLIES = 6;
const PAUSE_TICKS = 100;
const NOBODY = "";

/** Move `entity` by its velocity; it bounces off the shore with half of its speed. */
function drift(entity, radius) {
  entity.x += entity.vx;
  entity.y += entity.vy;
  const [right, low] = [(WIDTH - radius) * UNIT, (HEIGHT - radius) * UNIT];
  if (entity.x < radius * UNIT || entity.x > right) {
    entity.x = Math.min(Math.max(entity.x, radius * UNIT), right);
    entity.vx = -entity.vx >> 1;
  }
  if (entity.y < radius * UNIT || entity.y > low) {
    entity.y = Math.min(Math.max(entity.y, radius * UNIT), low);
    entity.vy = -entity.vy >> 1;
  }
}

/** Whether two centres are nearer than `reach` units. */
function near(one, other, reach) {
  const [dx, dy] = [(one.x - other.x) >> 8, (one.y - other.y) >> 8];
  return dx * dx + dy * dy < reach * reach;
}

/** A light to catch; every eighth is golden and gives three points. */
export class Firefly extends SimEntity {
  x = 0;
  y = 0;
  vx = 0;
  vy = 0;
  gold = false;

  simTick() {
    if (((this.sim.tick + this.id) & 15) === 0) {
      this.vx = this.sim.random.between(-600, 600);
      this.vy = this.sim.random.between(-600, 600);
    }
    drift(this, RADIUS.firefly);
  }
}

/** What one player steers: `dx` and `dy`, from -8 to 8, are where the player wants to go. */
export class Boat extends SimEntity {
  owner = NOBODY;
  seat = 0;
  x = 0;
  y = 0;
  vx = 0;
  vy = 0;
  dx = 0;
  dy = 0;
  score = 0;

  simTick() {
    this.vx = ((this.vx + this.dx * 128) * 224) >> 8;
    this.vy = ((this.vy + this.dy * 128) * 224) >> 8;
    drift(this, RADIUS.boat);
  }

  /** To the start, without points. */
  start() {
    this.x = (this.seat === 0 ? 300 : WIDTH - 300) * UNIT;
    this.y = (HEIGHT / 2) * UNIT;
    this.vx = 0;
    this.vy = 0;
    this.score = 0;
  }
}

/** A client came or left; the pond takes note of it in its next tick. */
export class Visit extends SimEntity {
  owner = NOBODY;
  there = false;
}

/** The rules: who has which seat, who waits for one, the points and the round. */
export class Pond extends SimEntity {
  round = 0;
  winner = -1; // seat, after a round
  pause = 0; // ticks until the next round
  seats = [NOBODY, NOBODY];
  waiting = [];

  simTick() {
    const boats = this.sim.entities(Boat);
    this.bump(boats);
    if (this.pause === 0) this.score(boats);
    else if (--this.pause === 0) this.begin(boats);
    this.seat(boats);
  }

  /** Boats that meet exchange their speeds. */
  bump(boats) {
    if (boats.length !== 2 || !near(boats[0], boats[1], 2 * RADIUS.boat)) return;
    const [one, other] = boats;
    const closing = (one.x - other.x) * (one.vx - other.vx) + (one.y - other.y) * (one.vy - other.vy);
    if (closing >= 0) return;
    [one.vx, other.vx] = [other.vx, one.vx];
    [one.vy, other.vy] = [other.vy, one.vy];
  }

  score(boats) {
    for (const firefly of this.sim.entities(Firefly)) {
      const boat = boats.find((boat) => near(boat, firefly, RADIUS.boat + RADIUS.firefly));
      if (!boat) continue;
      boat.score += firefly.gold ? 3 : 1;
      this.sim.remove(firefly);
      this.sim.hatch();
    }
    const winner = boats.find((boat) => boat.score >= GOAL);
    if (winner) {
      this.winner = winner.seat;
      this.pause = PAUSE_TICKS;
    }
  }

  /** The next round. */
  begin(boats) {
    this.round += 1;
    this.winner = -1;
    this.pause = 0;
    for (const boat of boats) boat.start();
  }

  /** Seats for those who came, in order; those who left give theirs up. */
  seat(boats) {
    for (const visit of this.sim.entities(Visit)) {
      this.waiting = this.waiting.filter((owner) => owner !== visit.owner);
      if (visit.there) this.waiting = [...this.waiting, visit.owner];
      this.seats = this.seats.map((owner) => (owner === visit.owner ? NOBODY : owner));
      for (const boat of boats) if (boat.owner === visit.owner) this.sim.remove(boat);
      this.sim.remove(visit);
    }
    for (const seat of [0, 1]) {
      if (this.seats[seat] !== NOBODY || this.waiting.length === 0) continue;
      const owner = this.waiting[0];
      this.waiting = this.waiting.slice(1);
      this.seats = this.seats.map((former, at) => (at === seat ? owner : former));
      this.sim.spawn(Boat, { owner, seat, x: (seat === 0 ? 300 : WIDTH - 300) * UNIT, y: (HEIGHT / 2) * UNIT });
      this.begin(boats);
    }
  }
}

/** The game. Its one event is `steer`, with the body "dx dy". */
export class Fireflies extends SimDriver {
  static kinds = [Pond, Firefly, Boat, Visit];

  onReset() {
    this.spawn(Pond);
    for (let i = 0; i < FIREFLIES; i++) this.hatch();
  }

  onConnect(publicId) {
    this.spawn(Visit, { owner: publicId, there: true });
  }

  onDisconnect(publicId) {
    this.spawn(Visit, { owner: publicId, there: false });
  }

  onClientEvent(type, origin, body) {
    const wanted = /^(-?[0-8]) (-?[0-8])$/.exec(body);
    const boat = this.entities(Boat).find((boat) => boat.owner === origin);
    if (type !== "steer" || !wanted || !boat) return;
    boat.dx = Number(wanted[1]);
    boat.dy = Number(wanted[2]);
  }

  /** A new firefly, anywhere on the pond. */
  hatch() {
    const x = this.random.between(60, WIDTH - 60) * UNIT;
    const y = this.random.between(60, HEIGHT - 60) * UNIT;
    this.spawn(Firefly, { x, y, gold: this.random.chance(1, 8) });
  }
}
