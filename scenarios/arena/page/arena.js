// The arena: a robot of one's own among others, on a floor that several servers share.

import { connect, HomeFailure, loadKeys } from "./client.js";
import { Driver } from "./drive.js";
import { showHops } from "./hops.js";
import { makeUnsteady } from "./network.js";
import { colourOf, FloorView } from "./view.js";

const NAME = "arena.player";
const MIDDLE_MM = [18_000, 12_000];
const REACH_MM = 18_000;
const GIVE_MS = 50;
// The robot brakes when it has heard nothing for two seconds.
const REPEAT_MS = 500;
const SHOW_MS = 250;
const UNSEEN_MS = 1500;
// A player that has gone without a word loses its robot after so long.
const AWAY_S = 120;

const element = (id) => document.getElementById(id);
const view = new FloorView(element("floor"));
const driver = new Driver(element("floor"), document.querySelectorAll(".pad button"), view);

function tell(text) {
  // It is read aloud: not again for the same.
  if (element("notice").textContent !== text) element("notice").textContent = text;
  element("notice").hidden = !text;
}

function say(state, isOpen) {
  element("state").textContent = state;
  element("state").classList.toggle("open", isOpen);
}

async function enter() {
  const { instance } = await (await fetch("/v1/cluster")).json();
  const wanted = new URLSearchParams(location.hash.slice(1));
  const known = localStorage.getItem(NAME) ?? "";
  const player = known.startsWith(`${instance}.`) ? known : `${instance}.guest-${random()}`;
  const keys = await loadKeys(player);
  const invitation = wanted.get("invitation");
  // An empty invitation comes where everybody may.
  const client = await connect(location.origin, { player, keys, invitation: invitation ?? (known === player ? null : "") });
  localStorage.setItem(NAME, player);
  return { client, instance };
}

function random() {
  return Array.from(crypto.getRandomValues(new Uint8Array(5)), (byte) => (byte % 36).toString(36)).join("");
}

/** The robot that this player has already, or a new one. */
async function robotOf(client) {
  const mine = await client.owned();
  const found = mine.find(({ entity }) => entity.startsWith(`${client.player}-`));
  if (found) return found.entity;
  const robot = `${client.player}-${random()}`;
  const params = { driver: client.player, p: MIDDLE_MM.map((at) => at + Math.round(4000 * (Math.random() - 0.5))) };
  let problem;
  for (const server of await client.home.simservers()) {
    try {
      await client.spawn(robot, { kind: "robot", server, params, on_leave: "despawn", owner_timeout_s: AWAY_S });
      return robot;
    } catch (failure) {
      // This one may be gone, or be drained.
      if (!(failure instanceof HomeFailure)) throw failure;
      problem = failure;
    }
  }
  throw problem;
}

class Arena {
  constructor(client, robot, robots, tiles, steering) {
    Object.assign(this, { client, robot, robots, tiles, steering });
    this.given = [0, 0];
    this.givenAtMs = 0;
    this.server = "";
    this.seenAtMs = performance.now();
    this.moves = [];
    this.trouble = "";
  }

  get place() {
    return this.robots.at(this.robot)?.after.state.p;
  }

  start() {
    setInterval(() => this.give(), GIVE_MS);
    setInterval(() => this.show(), SHOW_MS);
    const draw = (nowMs) => {
      view.draw(this.tiles, this.robots, this.robot, nowMs);
      requestAnimationFrame(draw);
    };
    requestAnimationFrame(draw);
    this.look();
    this.drain(this.tiles);
    element("show").addEventListener("click", () => this.toggleHops());
  }

  /** Give what the player wants, when that changes, and now and then while it holds. */
  give() {
    const direction = driver.direction(this.place);
    const isNew = direction.join() !== this.given.join();
    const isDue = direction.some(Boolean) && performance.now() - this.givenAtMs > REPEAT_MS && this.steering.waiting < 20;
    if (!isNew && !isDue) return;
    this.given = direction;
    this.givenAtMs = performance.now();
    this.steering.give(new Uint8Array(Int8Array.from(direction).buffer)).catch((refused) => {
      this.trouble = refused.sentence;
    });
  }

  /** What becomes of the own robot: which server has it, and for how long none was seen to. */
  async look() {
    for await (const { entity, server } of this.robots) {
      if (entity.name !== this.robot) continue;
      const now = performance.now();
      if (this.server && server !== this.server) {
        this.moves.push({ from: this.server, to: server, afterMs: Math.round(now - this.seenAtMs) });
        this.isStale = true;
      }
      this.server = server;
      this.seenAtMs = now;
    }
  }

  async drain(watch) {
    for await (const _ of watch);
  }

  show() {
    const { stream } = this.steering;
    // A hand-over takes it out of sight for a moment; that is nothing to be told of.
    const isLost = this.robots.isLost(this.robot) && performance.now() - this.seenAtMs > UNSEEN_MS;
    const isSeen = !isLost && this.server !== "";
    say(isSeen ? "connected" : "looking for your robot", isSeen);
    const takeover = "If that server is gone, another one takes it over in some seconds, with all that you did.";
    const missed = isSeen || !this.server ? "" : `Nobody shows your robot at this moment; ${this.server} did last. ${takeover}`;
    tell(this.trouble || missed);
    element("name").textContent = this.robot;
    // Who showed it last may be gone: then it is not known who simulates it.
    element("server").replaceChildren(...named(isSeen || !this.server ? this.server : "nobody shows it"));
    const begun = stream.acknowledged - stream.floor;
    element("inputs").textContent = `${begun} applied, ${this.steering.waiting} waiting`;
    const last = this.moves[this.moves.length - 1];
    element("moves").textContent = last ? `${this.moves.length} (gap ${last.afterMs} ms)` : "none yet";
    element("lost").textContent = String(this.client.reconnections);
    if (last && this.isStale && element("hops").hidden) {
      element("summary").textContent = `${last.from} to ${last.to}; its states came again after ${last.afterMs} ms.`;
    }
    if (this.isStale && !element("hops").hidden) this.showHops();
    this.showServers();
  }

  showServers() {
    const counts = new Map();
    for (const [watch, at] of [[this.tiles, 0], [this.robots, 1]]) {
      for (const name of watch.entities.keys()) {
        const server = watch.isLost(name) ? "nobody" : watch.serverOf(name);
        const count = counts.get(server) ?? [0, 0];
        count[at] += 1;
        counts.set(server, count);
      }
    }
    const rows = [...counts].sort().map(([server, [tiles, robots]]) => {
      const row = document.createElement("li");
      const who = document.createElement("span");
      who.append(...named(server));
      const what = document.createElement("span");
      what.textContent = `${tiles} tiles, ${robots} robots`;
      row.append(who, what);
      return row;
    });
    element("servers").replaceChildren(...rows);
  }

  async toggleHops() {
    const isShown = element("hops").hidden;
    element("hops").hidden = !isShown;
    element("show").setAttribute("aria-expanded", String(isShown));
    element("show").textContent = isShown ? "Hide its hops" : "Show its hops";
    if (isShown) await this.showHops();
  }

  async showHops() {
    if (this.isAsking) return;
    this.isAsking = true;
    try {
      this.isStale = !showHops(await this.client.transfers(this.robot, 5));
    } catch (failure) {
      if (!(failure instanceof HomeFailure)) throw failure;
    } finally {
      this.isAsking = false;
    }
  }
}

function named(server) {
  const swatch = document.createElement("span");
  swatch.className = "swatch";
  swatch.style.background = colourOf(server);
  return [swatch, server || "…"];
}

async function main() {
  makeUnsteady();
  const { client, instance } = await enter();
  const robot = await robotOf(client);
  const [robots, tiles, steering] = await Promise.all([
    client.watch({ centre: MIDDLE_MM, radius: REACH_MM }),
    client.watch({ pattern: `${instance}.tile-*`, rateHz: 4 }),
    client.steer(robot),
  ]);
  window.arena = new Arena(client, robot, robots, tiles, steering);
  window.arena.start();
}

main().catch((failure) => {
  say("not connected", false);
  const isStranger = ["bad_invitation", "not_invited", "unknown_player"].includes(failure.code);
  const sentence = `${(failure.sentence ?? failure.message).replace(/\.$/, "")}.`;
  tell(isStranger ? `${sentence} Open the address that baton up --play printed.` : sentence);
});
