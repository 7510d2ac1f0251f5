// The twin of tests/simserver/sync/lockstep/bouncers.py.

import { ONE, SimDriver, SimEntity, TURN, cosine, sine } from "../../../../simserver/sync/browser/events.js";

const SIDE = 10_000;
const mod = (number, n) => ((number % n) + n) % n;

class Player extends SimEntity {
  public_id = "";
  score = 0;
}

class Board extends SimEntity {
  order = [];
  popped = {};
  best = null;
}

class Ball extends SimEntity {
  owner = "";
  x = 0;
  y = 0;
  heading = 0;
  speed = 100;
  bounces = 0;
  spin = 0;

  simTick() {
    this.x += Math.floor((cosine(this.heading) * this.speed) / ONE);
    this.y += Math.floor((sine(this.heading) * this.speed) / ONE);
    const [hitX, hitY] = [this.x, this.y].map((at) => at < 0 || at >= SIDE);
    if (!hitX && !hitY) return;
    this.heading = mod(hitX ? TURN / 2 - this.heading : -this.heading, TURN);
    this.x = Math.max(0, Math.min(SIDE - 1, this.x));
    this.y = Math.max(0, Math.min(SIDE - 1, this.y));
    this.bounces += 1;
    this.spin = Math.sqrt(this.spin * 0.75 + this.sim.random.uniform()) / 3;
    if (this.bounces >= 12) this.sim.remove(this);
  }

  simExit() {
    for (const player of this.sim.entities(Player)) {
      if (player.public_id === this.owner) player.score += this.bounces;
    }
    for (const board of this.sim.entities(Board)) {
      board.popped = { ...board.popped, [this.owner]: (board.popped[this.owner] ?? 0) + 1 };
      const leaders = this.sim.entities(Player).sort((one, other) => other.score - one.score || one.id - other.id);
      board.best = leaders[0]?.public_id ?? null;
    }
  }
}

export class Bouncers extends SimDriver {
  static kinds = [Player, Board, Ball];

  onReset() {
    this.spawn(Board);
  }

  onConnect(publicId) {
    this.spawn(Player, { public_id: publicId });
  }

  onDisconnect(publicId) {
    for (const player of this.entities(Player)) if (player.public_id === publicId) this.remove(player);
  }

  onClientEvent(type, origin, body) {
    const mine = this.entities(Ball).filter((ball) => ball.owner === origin);
    if (type === "throw" && mine.length < 8) {
      const heading = mod(Number(body), TURN);
      this.spawn(Ball, { owner: origin, x: this.random.below(SIDE), y: this.random.below(SIDE), heading });
    } else if (type === "kick") {
      for (const ball of mine) {
        ball.speed = Math.min(400, ball.speed + this.random.between(-20, 60));
        ball.heading = mod(ball.heading + this.random.between(-64, 64), TURN);
      }
    } else if (type === "pop" && mine.length > 0) {
      this.remove(mine[this.random.below(mine.length)]);
    } else if (type === "mix") {
      const order = this.entities(Player).map((player) => player.public_id);
      this.random.shuffle(order);
      for (const board of this.entities(Board)) board.order = order;
    }
  }

  onTick(tick) {
    if (tick % 50 !== 0 || this.entities(Ball).length >= 20 || !this.random.chance(1, 3)) return;
    const [x, y, heading] = [this.random.below(SIDE), this.random.below(SIDE), this.random.below(TURN)];
    this.spawn(Ball, { owner: "", x, y, heading, speed: this.random.between(50, 250), spin: this.random.uniform() });
  }
}
