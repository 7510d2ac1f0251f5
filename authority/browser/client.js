// A client of an instance for browsers (docs/reference/players-door.md, docs/reference/browser-client.md): one module, no build step, no
// dependencies. It watches entities and steers those that its player owns, wherever they are simulated.
//
//   const client = await connect(location.origin, { player: "alpha.ada", keys: await loadKeys("alpha.ada") });
//   const watch = await client.watch({ around: "alpha.robot-1", radius: 20 });
//   for await (const { entity, server, ticks, isGone } of watch) …
//   const robot = await client.steer("alpha.robot-1");
//   const number = await robot.give(new Uint8Array([1, 2]));
//   await robot.applied(number);
//
// Where an entity is, its home says at first; then the door that has it says where it went, and its home again if that
// door is gone. What is watched, and what was given and is not acknowledged, outlives connections and servers.

import { checkWatched, Connection, Door, helloOf, proofOf, Refused } from "./door.js";

export { decode, Door, encode, loadKeys, makeKeys, Mirror, patched, Refused, sign, TickClock } from "./door.js";

const RESEND_MS = 250;
const MAX_RESEND_MS = 4000;
const ASK_AFTER_MS = 2000;
const PRESENT_MS = 3000;
const WINDOW = 512;
const MAX_INPUT_BYTES = 4096;
// Numbers of two pages of a player that begin at the same time are apart by up to this number.
const APART = 2 ** 20;
const MAX_KEPT = 8192;
const MIN_IN_FLIGHT = 4;
const MAX_IN_FLIGHT = 64;
const NOBODY = "nobody";
// This number of inputs of a page that was closed may still wait for a tick: numbers begin beyond them.
const MAX_PENDING = 2048;
// No input ever has this number. The answer to it says how many were applied, and nothing is.
const NO_INPUT = Number.MAX_SAFE_INTEGER;

const ASK_HOME_MS = 250;
const SERVERS_MS = 3000;
const IDLE_MS = 10000;
const GRACE_MS = 2000;
const DOOR_FRESH_MS = 5000;

/** An instance refused, with a stable `code` (docs/reference/rest.md, docs/reference/players-door.md); `unreachable`: it does not answer. */
export class HomeFailure extends Error {
  constructor(code, sentence) {
    super(`${code}: ${sentence}`);
    this.code = code;
    /** For people, without the code. */
    this.sentence = sentence;
  }
}

// --- inputs -----------------------------------------------------------------------------------------------------------

const isBelow = (one, other) => one[0] < other[0] || (one[0] === other[0] && one[1] < other[1]);
const isSame = (one, other) => one[0] === other[0] && one[1] === other[1];

/**
 * The inputs of this player for one entity, numbered; repeated until they are acknowledged (go-back-N), and given again
 * if a failover took them back. As `batonpass.client.input_stream`; it does nothing by itself and knows no time.
 */
export class InputStream {
  constructor(entity, target, nowMs, apart = 0) {
    /** Thrown with dice: it keeps its numbers from those of another page of the player that begins at the same time. */
    this.apart = apart;
    this.entity = entity;
    this.target = target;
    this.ownerRev = 1;
    /** Who owns the entity instead of the player; nothing is sent then. */
    this.owner = "";
    /** Whether it is known how many inputs of this player were applied before this page was there. */
    this.isBegun = false;
    this.sent = 0;
    this.used = 0;
    this.floor = 0;
    this.acknowledged = 0;
    this.durable = 0;
    this.fence = [0, 0];
    this.ledBy = [0, 0];
    this.waiting = [];
    this.kept = [];
    this.refused = [];
    this.givenAgain = 0;
    this.lost = 0;
    this.inFlight = 0;
    this.maxInFlight = MAX_IN_FLIGHT;
    this.progressedAtMs = nowMs;
    this.resendAfterMs = RESEND_MS;
    this.heardAtMs = -Infinity;
    this.askedInVain = false;
    this.isGone = false;
  }

  add(data, nowMs) {
    if (this.waiting.length === 0) this.progressedAtMs = nowMs;
    this.sent += 1;
    this.used = Math.max(this.used, this.sent);
    this.waiting.push([this.sent, data]);
    return this.sent;
  }

  /** The inputs that may be sent now, which count as under way then. */
  nextToSend() {
    const upto = this.owner ? 0 : Math.min(this.waiting.length, this.maxInFlight);
    const inputs = this.waiting.slice(this.inFlight, upto);
    this.inFlight = Math.max(this.inFlight, upto);
    return inputs;
  }

  asInput([seq, data]) {
    const { entity, ownerRev: owner_rev, durable: base, floor } = this;
    return { type: "input", entity, owner_rev, seq, data, base, floor };
  }

  /** Whether an authority has applied numbers that were never given here: another page of the player gives. */
  isOfAnother({ epoch, sub, applied }) {
    return this.isBegun && !isBelow([epoch, sub], this.fence) && applied > Math.max(this.used, this.sent);
  }

  /** What asks how many were applied. */
  asQuestion() {
    return this.asInput([NO_INPUT, new Uint8Array()]);
  }

  /** An authority says how far it has come (`input_ack`). */
  acknowledgedAs({ epoch, sub, applied, durable }, nowMs) {
    this.#begin(applied);
    const fence = [epoch, sub];
    const upto = Math.max(applied, this.floor);
    this.#learnFence(fence, upto, nowMs);
    if (!isSame(fence, this.fence)) return;
    this.#acknowledge(upto, nowMs);
    this.durable = Math.max(this.durable, Math.min(durable, this.acknowledged));
    while (this.kept.length && (this.kept[0][0] <= this.durable || this.kept.length > MAX_KEPT)) this.kept.shift();
  }

  /** An authority refused what it has not applied (`not_owner`). */
  corrected({ epoch, sub, applied, owner, owner_rev }, player, nowMs) {
    this.#begin(applied);
    const fence = [epoch, sub];
    const upto = Math.max(applied, this.floor);
    this.#learnFence(fence, upto, nowMs);
    if (isSame(fence, this.fence)) this.#acknowledge(upto, nowMs);
    // Said by somebody who knows less than this player.
    if (owner_rev < this.ownerRev) return;
    this.inFlight = 0;
    if (owner === player) {
      this.#ownAgain(owner_rev);
      return;
    }
    this.ownerRev = owner_rev;
    this.owner = owner || NOBODY;
    this.#correctThePast(this.acknowledged);
  }

  /** The log says who owns it. */
  learnOwner(owner, ownerRev, player) {
    if (ownerRev <= this.ownerRev) return;
    this.inFlight = 0;
    if (owner === player) {
      this.#ownAgain(ownerRev);
    } else {
      this.ownerRev = ownerRev;
      this.owner = owner || NOBODY;
    }
  }

  /** There is no such entity any more. */
  ended() {
    this.isGone = true;
    this.#correctThePast(this.acknowledged);
    this.refused = [];
    this.kept = [];
  }

  isOverdue(nowMs) {
    return this.waiting.length > 0 && nowMs - this.progressedAtMs > this.resendAfterMs;
  }

  /** What was applied last, to be sent once more if nobody has said for long whether it will stay so; or null. */
  toAskWith(nowMs) {
    if (nowMs - this.heardAtMs <= ASK_AFTER_MS) return null;
    if (!this.isBegun) {
      this.heardAtMs = nowMs - ASK_AFTER_MS + 2 * RESEND_MS;
      return this.asQuestion();
    }
    if (this.kept.length === 0 || (this.waiting.length && !this.owner)) return null;
    this.heardAtMs = nowMs;
    return this.asInput(this.kept[this.kept.length - 1]);
  }

  /** Nothing is under way any more: it was in vain. */
  startOver(nowMs) {
    this.inFlight = 0;
    this.maxInFlight = MIN_IN_FLIGHT;
    this.ledBy = [0, 0];
    this.progressedAtMs = nowMs;
    this.resendAfterMs = Math.min(2 * this.resendAfterMs, MAX_RESEND_MS);
  }

  /** A former authority names who has the entity; whether that leads anywhere: towards higher fences only. */
  follow(server, fence) {
    if (!server || !isBelow(this.ledBy, fence) || isBelow(fence, this.fence)) return false;
    this.ledBy = fence;
    if (server !== this.target) this.retarget(server);
    return true;
  }

  retarget(target) {
    this.target = target;
    this.inFlight = 0;
    this.heardAtMs = -Infinity;
    this.askedInVain = false;
  }

  #begin(applied) {
    if (this.isBegun) return;
    this.isBegun = true;
    const from = applied > 0 || this.apart > 0 ? applied + MAX_PENDING + this.apart : 0;
    this.floor = this.sent = this.used = this.acknowledged = this.durable = from;
  }

  #acknowledge(applied, nowMs) {
    const news = Math.max(0, Math.min(applied, this.sent) - this.acknowledged);
    if (news === 0) return;
    this.acknowledged += news;
    this.progressedAtMs = nowMs;
    this.resendAfterMs = RESEND_MS;
    this.maxInFlight = Math.min(2 * this.maxInFlight, MAX_IN_FLIGHT);
    this.kept.push(...this.waiting.splice(0, news));
    this.inFlight = Math.max(0, this.inFlight - news);
  }

  #learnFence(fence, applied, nowMs) {
    if (isBelow(fence, this.fence)) return;
    this.heardAtMs = nowMs;
    const isPast = this.owner !== "" && this.waiting.length === 0;
    if (isBelow(this.fence, fence)) {
      this.fence = fence;
      this.#giveAgain(applied);
    }
    if (isPast) this.#correctThePast(applied);
  }

  #correctThePast(applied) {
    this.refused.unshift(...this.waiting.splice(0));
    while (this.refused.length && this.refused[0][0] === this.acknowledged + 1 && this.acknowledged < applied) {
      this.kept.push(this.refused.shift());
      this.acknowledged += 1;
    }
    this.sent = this.acknowledged;
  }

  #giveAgain(applied) {
    while (this.kept.length && this.kept[this.kept.length - 1][0] > applied) {
      this.waiting.unshift(this.kept.pop());
      this.acknowledged -= 1;
      if (!this.owner) this.givenAgain += 1;
      this.inFlight = 0;
    }
    if (this.acknowledged > applied) this.#lose(this.acknowledged - applied);
  }

  /** `inputs` were durable, and all who had them are dead: what waits is numbered from where the entity is. */
  #lose(inputs) {
    this.lost += inputs;
    this.sent -= inputs;
    this.acknowledged -= inputs;
    this.durable -= inputs;
    this.waiting = this.waiting.map(([seq, data]) => [seq - inputs, data]);
    this.inFlight = 0;
  }

  #ownAgain(ownerRev) {
    if (this.owner) {
      this.durable = this.acknowledged;
      this.kept = [];
      this.refused = [];
      if (this.waiting.length === 0) {
        this.floor = this.sent = this.acknowledged = this.durable = this.used;
      }
    }
    this.ownerRev = ownerRev;
    this.owner = "";
  }
}

/** An entity that this player steers. */
export class Steering {
  constructor(stream, send) {
    this.stream = stream;
    this.send = send;
    this.listeners = new Set();
    /** The entity's tick by which the last input known to be applied was applied. */
    this.tick = 0;
    /** Another page or program of this player steers it by now. */
    this.isTaken = false;
  }

  get entity() {
    return this.stream.entity;
  }

  /** Who owns the entity instead of this player; empty while it does itself. */
  get owner() {
    return this.stream.owner;
  }

  /** How many inputs were given and are not known to be applied. */
  get waiting() {
    return this.stream.sent - this.stream.acknowledged;
  }

  /** Give an input; its number. Waits while too many are not acknowledged. */
  async give(data) {
    if (!(data instanceof Uint8Array)) throw new TypeError("an input is a Uint8Array");
    if (data.length > MAX_INPUT_BYTES) {
      throw new RangeError(`an input has at most ${MAX_INPUT_BYTES} bytes, not ${data.length}`);
    }
    const { stream } = this;
    while (!stream.isGone && !this.isTaken && (!stream.isBegun || this.waiting >= WINDOW)) await this.#news();
    this.#requireThere();
    const number = stream.add(data.slice(), performance.now());
    this.send(this);
    return number;
  }

  /** Wait until the input of this number is applied; the tick at which the entity was then, at the latest. */
  async applied(number) {
    while (this.stream.acknowledged < number) {
      this.#requireThere();
      if (this.stream.owner) {
        throw new Refused("not_owner", `${this.entity} is owned by ${this.owner}: input ${number} was not applied`);
      }
      await this.#news();
    }
    return this.tick;
  }

  /** Wait until no failure of a server can take the input of this number back. */
  async durable(number) {
    await this.applied(number);
    while (this.stream.durable < number) {
      this.#requireThere();
      await this.#news();
    }
  }

  #requireThere() {
    if (this.isTaken) {
      const text = `another page or program of this player steers ${this.entity}: steer it again to have it back`;
      throw new Refused("steered_elsewhere", text);
    }
    if (this.stream.isGone) throw new Refused("not_found", `${this.entity} was deleted`);
  }

  #news() {
    return new Promise((resolve) => this.listeners.add(resolve));
  }

  hasNews() {
    const listeners = this.listeners;
    this.listeners = new Set();
    for (const resolve of listeners) resolve();
  }
}

// --- what is watched --------------------------------------------------------------------------------------------------

const MAX_SAMPLES = 32;
const MIN_DELAY_MS = 40;
const MAX_DELAY_MS = 500;

/**
 * The last states of entities with the times at which they were, so that motion between them can be drawn smoothly:
 * as it was `delayMs` ago, which is as much as frames are late of late. Hand-overs are no jump: of which server a state
 * is does not matter, since each is put on the clock of this page.
 */
export class JitterBuffer {
  constructor() {
    this.samples = new Map();
    this.delayMs = MIN_DELAY_MS;
    this.wantedMs = MIN_DELAY_MS;
    this.lookedAtMs = NaN;
  }

  /** A state of an entity, which was so at `atMs`; frames come each `periodMs`, and up to `latenessMs` late. */
  add(entity, atMs, periodMs, latenessMs) {
    const samples = this.samples.get(entity.name) ?? [];
    this.samples.set(entity.name, samples);
    const last = samples[samples.length - 1];
    // Two servers' clocks are known with an error each; time goes on all the same.
    samples.push({ entity, atMs: last && atMs <= last.atMs ? last.atMs + 1 : atMs });
    if (samples.length > MAX_SAMPLES) samples.shift();
    this.wantedMs = Math.min(MAX_DELAY_MS, Math.max(MIN_DELAY_MS, periodMs + latenessMs));
  }

  remove(name) {
    this.samples.delete(name);
  }

  /** What was shown before and after the moment that is drawn now, and how much of the way is done; null: nothing. */
  at(name, nowMs) {
    this.#proceed(nowMs);
    const samples = this.samples.get(name);
    if (!samples) return null;
    const moment = nowMs - this.delayMs;
    let index = samples.length - 1;
    while (index > 0 && samples[index].atMs > moment) index -= 1;
    const before = samples[index];
    const after = samples[index + 1] ?? before;
    const span = after.atMs - before.atMs;
    const share = span > 0 ? Math.min(1, Math.max(0, (moment - before.atMs) / span)) : 0;
    return { before: before.entity, after: after.entity, share };
  }

  /** The delay changes by a tenth of the time that passes: slower or faster motion is not seen, a jump would be. */
  #proceed(nowMs) {
    const step = Number.isNaN(this.lookedAtMs) ? Infinity : (nowMs - this.lookedAtMs) / 10;
    this.lookedAtMs = nowMs;
    this.delayMs += Math.max(-step, Math.min(step, this.wantedMs - this.delayMs));
  }
}

/** Entities that are watched; `for await` gives what changes, each entity with its latest state. */
export class Watch {
  constructor(asked, end) {
    this.asked = asked;
    /** By name, what is known now. */
    this.entities = new Map();
    /** By name, the server that showed it last. */
    this.servers = new Map();
    this.buffer = new JitterBuffer();
    this.end = end;
    this.read = new Map();
    this.lost = new Map();
    this.changed = new Set();
    this.gone = new Map();
    this.refusal = null;
    this.isClosed = false;
    this.wake = () => {};
  }

  serverOf(name) {
    return this.servers.get(name) ?? "";
  }

  /** Whether no door shows it at this moment: it is on its way, or its server has died. */
  isLost(name) {
    return this.lost.has(name);
  }

  /** As `JitterBuffer.at`. */
  at(name, nowMs = performance.now()) {
    return this.buffer.at(name, nowMs);
  }

  close() {
    if (this.isClosed) return;
    this.isClosed = true;
    this.end(this);
    this.wake();
  }

  [Symbol.asyncIterator]() {
    return this;
  }

  async return() {
    this.close();
    return { done: true, value: undefined };
  }

  async next() {
    for (;;) {
      // What has come meanwhile is not read any more.
      if (this.isClosed) return { done: true, value: undefined };
      for (const [name, update] of this.gone) {
        this.gone.delete(name);
        return { done: false, value: update };
      }
      for (const name of this.changed) {
        this.changed.delete(name);
        const entity = this.entities.get(name);
        const before = this.read.get(name);
        this.read.set(name, entity);
        const ticks = before ? entity.tick - before.tick : 0;
        return { done: false, value: { entity, ticks, isGone: false, server: this.serverOf(name) } };
      }
      if (this.refusal) throw this.refusal;
      await new Promise((resolve) => {
        this.wake = resolve;
      });
    }
  }

  // For the client.

  show(server, entity, clock, periodMs) {
    const known = this.entities.get(entity.name);
    if (known && isEarlier(entity, known)) return;
    this.entities.set(entity.name, entity);
    this.servers.set(entity.name, server);
    this.lost.delete(entity.name);
    this.gone.delete(entity.name);
    this.changed.add(entity.name);
    this.buffer.add(entity, clock.timeOf(entity.round), periodMs, clock.latenessMs);
    this.wake();
  }

  noLonger(server, names, nowMs) {
    for (const name of names) if (this.servers.get(name) === server && !this.lost.has(name)) this.lost.set(name, nowMs);
  }

  loseAll(server, nowMs) {
    this.noLonger(server, [...this.entities.keys()], nowMs);
  }

  refused(server, { code, message }) {
    this.refusal = new Refused(code, `${server}: ${message}`);
    this.wake();
  }

  /** Give those up that no door has shown for too long, if all doors that could are open. */
  look(nowMs, isComplete) {
    for (const [name, sinceMs] of this.lost) if (isComplete && nowMs - sinceMs > GRACE_MS) this.remove(name);
  }

  remove(name) {
    const entity = this.entities.get(name);
    if (!entity) return;
    this.gone.set(name, { entity, ticks: 0, isGone: true, server: this.serverOf(name) });
    for (const map of [this.entities, this.servers, this.read, this.lost]) map.delete(name);
    this.changed.delete(name);
    this.buffer.remove(name);
    this.wake();
  }
}

const path = (entity) => `/v1/entities/${encodeURIComponent(entity)}`;

function isEarlier(one, other) {
  const fences = [one, other].map(({ epoch, sub }) => [epoch, sub]);
  return isBelow(...fences) || (isSame(...fences) && one.tick < other.tick);
}

// --- homes ------------------------------------------------------------------------------------------------------------

const HOME_SUBPROTOCOL = "batonpass.home.1";
const HOME_PATH = "/v1/play";
const REQUEST_MS = 8000;
const MEMBERS_MS = 30000;
// With other codes than these it is of no use to come again as the same.
const FOR_NOW = new Set(["closed", "home_unreachable", "too_slow", "unknown_place", "proof_expired", "bad_token"]);

/** The homeservers of an instance: one connection, to whichever of them answers. */
export class Home {
  constructor(url, { player = "", keys = null, invitation = null } = {}) {
    this.urls = [url.replace(/\/+$/, "")];
    this.player = player;
    this.keys = keys;
    /** Is called with what a homeserver tells by itself: `entity`, `transfer`, `question`, `gone`. */
    this.onevent = () => {};
    /** What this player may do: `rights`, `kinds`, `entities`, `most_entities`. */
    this.welcome = null;
    this.session = null;
    this.invitation = invitation;
    this.followed = [];
    this.doors = new Map();
    this.answers = new Map();
    this.next = 1;
    this.waiters = [];
    this.failure = null;
    this.connection = new Connection({
      subprotocol: HOME_SUBPROTOCOL,
      find: async () => this.urls[0] + HOME_PATH,
      hello: (challenge) => this.#hello(challenge),
      onopen: (welcome) => this.#opened(welcome),
      onmessage: (message) => this.#take(message),
      onclosed: (reason) => this.#lost(reason),
    });
    this.timers = [setInterval(() => this.#learnMembers(), MEMBERS_MS)];
  }

  /** Wait until a homeserver has let this player in. */
  async ready() {
    if (!this.connection.isOpen) await this.#open(performance.now() + REQUEST_MS);
  }

  close() {
    this.timers.forEach(clearInterval);
    clearTimeout(this.renewal);
    this.connection.close();
    this.#failAll(new HomeFailure("unreachable", "this client was closed"));
  }

  /** A request of REST, of those that a player may make (docs/reference/players-door.md); the JSON of the answer. */
  async ask(method, target, body = null) {
    const untilMs = performance.now() + REQUEST_MS;
    if (!this.connection.isOpen) await this.#open(untilMs);
    const id = this.next++;
    const bytes = body === null ? new Uint8Array() : new TextEncoder().encode(JSON.stringify(body));
    const { status, body: said } = await new Promise((resolve, reject) => {
      const late = () => {
        this.answers.delete(id);
        // It may hang for good: another one is asked from now on.
        this.connection.breakOff();
        reject(new HomeFailure("unreachable", `${method} ${target} was not answered`));
      };
      const timer = setTimeout(late, Math.max(0, untilMs - performance.now()));
      this.answers.set(id, { resolve, reject, timer });
      this.connection.send({ type: "ask", id, method, target, body: bytes });
    });
    const json = said.length ? JSON.parse(new TextDecoder().decode(said)) : null;
    if (status < 400) return json;
    // It has no majority, or is not ready: another one may.
    if (status === 503) this.connection.breakOff();
    throw new HomeFailure(status >= 500 ? "unreachable" : json?.code ?? "refused", json?.message ?? `status ${status}`);
  }

  /** Where an entity is, and whose: `server`, `owner`, `owner_rev`. */
  async locate(entity) {
    // As this member knows it: who is asked again and again hears what changes, and no server is waited for.
    const { authority, owner, owner_rev } = await this.ask("GET", `${path(entity)}?consistency=local`);
    return { server: authority, owner, owner_rev };
  }

  /** The names of the simulation servers of the instance. */
  async simservers() {
    const rows = await this.ask("GET", "/v1/servers");
    return rows.filter(({ role }) => role === "simserver").map(({ name }) => name);
  }

  /** Where clients enter a simulation server; empty if that is not known now. */
  async doorOf(server) {
    const known = this.doors.get(server);
    if (known && performance.now() < known.untilMs) return known.url;
    const { url } = await this.ask("GET", `/v1/servers/${encodeURIComponent(server)}/door`);
    this.hint(server, url);
    return url;
  }

  /** Another server says where this one's door is. */
  hint(server, url) {
    this.doors.set(server, { url, untilMs: performance.now() + DOOR_FRESH_MS });
  }

  /** A door did not open: ask anew where it is. */
  doubt(server) {
    this.doors.delete(server);
  }

  /** Hear what happens to these entities, too; they replace those of before. */
  follow(entities) {
    this.followed = [...entities];
    this.connection.send({ type: "follow", entities: this.followed });
  }

  async #hello(challenge) {
    if (this.invitation !== null && !this.session) {
      const proof = await proofOf(challenge.server, challenge.challenge, this.player, this.keys);
      const { player, invitation } = this;
      return { type: "enrol", version: 1, player, keys: this.keys.jwks, invitation, proof };
    }
    return await helloOf(challenge, this.player, this.keys, this.session);
  }

  #opened(welcome) {
    this.welcome = welcome;
    this.failure = null;
    // It is redeemed: from now on the keys are enough.
    this.invitation = null;
    this.#take({ type: "session", ...welcome });
    if (this.followed.length) this.follow(this.followed);
    for (const { resolve } of this.waiters.splice(0)) resolve();
    this.#learnMembers();
  }

  #take(message) {
    switch (message.type) {
      case "session":
        this.session = message.token?.length ? message.token : null;
        clearTimeout(this.renewal);
        if (this.session) this.renewal = setTimeout(() => this.#renew(), (message.token_s * 1000) / 2);
        break;
      case "answer":
        this.#answered(message.id, ({ resolve }) => resolve(message));
        break;
      case "refused":
        this.failure = new HomeFailure(message.code, message.message);
        if (message.id) this.#answered(message.id, ({ reject }) => reject(this.failure));
        break;
      default:
        this.onevent(message);
    }
  }

  #answered(id, settle) {
    const asked = this.answers.get(id);
    if (!asked) return;
    this.answers.delete(id);
    clearTimeout(asked.timer);
    settle(asked);
  }

  #renew() {
    this.connection.send({ type: "renew" });
  }

  #lost(reason) {
    if (reason === "bad_token") this.session = null;
    // The next one is tried: this one may be gone.
    this.urls.push(this.urls.shift());
    const failure = FOR_NOW.has(reason) ? new HomeFailure("unreachable", reason) : this.failure ?? new HomeFailure(reason, "");
    for (const id of [...this.answers.keys()]) this.#answered(id, ({ reject }) => reject(failure));
    if (FOR_NOW.has(reason)) return;
    for (const { reject } of this.waiters.splice(0)) reject(failure);
  }

  #failAll(failure) {
    for (const id of [...this.answers.keys()]) this.#answered(id, ({ reject }) => reject(failure));
    for (const { reject } of this.waiters.splice(0)) reject(failure);
  }

  #open(untilMs) {
    return new Promise((resolve, reject) => {
      const waiter = { resolve: () => settle(resolve), reject: (failure) => settle(() => reject(failure)) };
      const timer = setTimeout(() => {
        this.waiters.splice(this.waiters.indexOf(waiter), 1);
        reject(new HomeFailure("unreachable", `no homeserver answers at ${this.urls.join(", ")}`));
      }, Math.max(0, untilMs - performance.now()));
      const settle = (how) => {
        clearTimeout(timer);
        how();
      };
      this.waiters.push(waiter);
      if (this.connection.isClosed) waiter.reject(this.failure ?? new HomeFailure("unreachable", "it is closed"));
    });
  }

  /** The other homeservers, for when this one is gone. */
  async #learnMembers() {
    if (!this.connection.isOpen) return;
    try {
      const rows = await this.ask("GET", "/v1/servers");
      const others = rows.filter(({ role }) => role === "homeserver").map(({ rest_url }) => rest_url.replace(/\/+$/, ""));
      // In the order in which they are tried, so that each has its turn.
      const kept = this.urls.filter((url, at) => at === 0 || others.includes(url));
      this.urls = [...new Set([...kept, ...others])];
    } catch (failure) {
      if (!(failure instanceof HomeFailure)) throw failure;
    }
  }
}

// --- the client -------------------------------------------------------------------------------------------------------

/**
 * A client of the instance that has a homeserver at this address; an observer, if it is no player.
 *
 * With an `invitation` the player's keys are registered first; an empty one comes where an instance lets everybody in.
 */
export async function connect(url, { player = "", keys = null, invitation = null } = {}) {
  if (Boolean(player) !== Boolean(keys)) throw new Error("a player has a name and keys; an observer has neither");
  const home = new Home(url, { player, keys, invitation });
  try {
    await home.ready();
  } catch (failure) {
    home.close();
    throw failure;
  }
  return new Client(home, { player, keys });
}

/** Made by `connect`. */
export class Client {
  constructor(home, { player, keys }) {
    this.home = home;
    this.player = player;
    this.keys = keys;
    /** How many connections were lost while something was wanted of them. */
    this.reconnections = 0;
    /** Is called with what servers say of entities besides states: `imminent_loss`, and what homes tell. */
    this.onevent = () => {};
    this.links = new Map();
    this.steered = new Map();
    this.watches = new Set();
    this.placeOf = new Map();
    this.asking = new Set();
    this.isClosed = false;
    this.timers = [
      setInterval(() => this.#repeat(), RESEND_MS / 2),
      setInterval(() => this.#stayKnown(), PRESENT_MS),
      setInterval(() => this.#findServers(), SERVERS_MS),
    ];
    home.onevent = (message) => this.#homeSays(message);
  }

  close() {
    this.isClosed = true;
    this.timers.forEach(clearInterval);
    for (const watch of [...this.watches]) watch.close();
    for (const { door } of this.links.values()) door.close();
    this.links.clear();
    this.home.close();
  }

  /** Watch one entity, all of an owner, those whose names match a pattern, or those in an area. Throws `Refused`, `HomeFailure`. */
  async watch({ entity = "", owner = "", pattern = "", centre = null, around = "", radius = 0, rateHz = 1000 }) {
    const hasArea = centre !== null || around !== "";
    const asked = { entity, owner, pattern, area: hasArea ? { centre, around, radius } : null, rate_hz: rateHz };
    checkWatched(asked);
    // An area around nothing would show nothing, for ever.
    if (around) await this.home.locate(around);
    const watch = new Watch(asked, (one) => this.#endWatch(one));
    if (entity) {
      const place = await this.home.locate(entity);
      this.watches.add(watch);
      this.#put(watch, place.server);
    } else {
      const servers = await this.home.simservers();
      this.watches.add(watch);
      for (const server of servers) this.#watchAt(server, watch);
    }
    return watch;
  }

  /** Steer an entity that this player owns. */
  async steer(entity) {
    if (!this.player) throw new Refused("not_a_player", "an observer steers nothing: connect as a player");
    const known = this.steered.get(entity);
    if (known && !known.isTaken) return known;
    const place = await this.home.locate(entity);
    const apart = crypto.getRandomValues(new Uint32Array(1))[0] % APART;
    const stream = new InputStream(entity, place.server, performance.now(), apart);
    stream.learnOwner(place.owner, place.owner_rev, this.player);
    const steering = new Steering(stream, (one) => this.#send(one));
    this.steered.set(entity, steering);
    if (stream.target) this.#link(stream.target);
    this.#repeat();
    return steering;
  }

  /** Have an entity made, which this player owns: `kind`, `server`, `params` and what else docs/reference/rest.md has. */
  async spawn(id, { kind, server, params = {}, ...more }) {
    return await this.home.ask("POST", "/v1/entities", { id, kind, spawner: this.player, server, params, ...more });
  }

  /** Ask to own an entity where it is; the transfer. `transferId` makes it safe to ask again. */
  async own(entity, { transferId = crypto.randomUUID(), ...more } = {}) {
    const body = { requester: this.player, transfer_id: transferId, proof: "", ...more };
    return await this.home.ask("POST", `${path(entity)}/ownership`, body);
  }

  /** Have an entity moved to a simulation server, and own it there; the transfer. */
  async move(entity, to, { transferId = crypto.randomUUID(), ...more } = {}) {
    const body = { requester: this.player, transfer_id: transferId, proof: "", to, ...more };
    return await this.home.ask("POST", `${path(entity)}/transfers`, body);
  }

  /** Give an entity up; `ownerRev` is that of its ownership as this player saw it, here and below. */
  async divest(entity, ownerRev, { ifWanted = false } = {}) {
    return await this.#done("POST", `${path(entity)}/divest`, { if_wanted: ifWanted }, { owner_rev: ownerRev });
  }

  /** Give an entity back to its former owner. */
  async handBack(entity, ownerRev) {
    return await this.#done("POST", `${path(entity)}/hand-back`, {}, { owner_rev: ownerRev });
  }

  /** Go away from an entity, which gets another owner, waits, or ends, as its policy says. */
  async leave(entity, ownerRev) {
    return await this.#done("POST", `${path(entity)}/leave`, { owner_rev: ownerRev });
  }

  /** Keep others from becoming owner. */
  async lock(entity, name, locksRev) {
    return await this.#done("POST", `${path(entity)}/locks/${encodeURIComponent(name)}/lock`, { locks_rev: locksRev });
  }

  /** Let others again. */
  async unlock(entity, name, locksRev) {
    return await this.#done("POST", `${path(entity)}/locks/${encodeURIComponent(name)}/unlock`, { locks_rev: locksRev });
  }

  /** Delete an entity for good. */
  async delete(entity, masterRev) {
    return await this.#done("POST", `${path(entity)}/delete`, { master_rev: masterRev });
  }

  /** Have an entity simulated again that is quarantined or suspended. */
  async release(entity, masterRev, releaseRev, { discardInputs = false } = {}) {
    const stated = { master_rev: masterRev, discard_inputs: discardInputs };
    return await this.#done("POST", `${path(entity)}/release`, stated, { release_rev: releaseRev });
  }

  /** Give an entity a parent, with which it moves, or none (empty). */
  async attach(entity, parent, parentRev) {
    return await this.#done("PUT", `${path(entity)}/parent`, { parent, parent_rev: parentRev });
  }

  /** Change rule, owner, master or policies; `seen` is the record as the master saw it. */
  async changeRights(entity, seen, changes) {
    const names = ["rule_rev", "owner_rev", "master_rev"];
    if (Object.keys(changes).some((name) => !["rule", "owner", "master"].includes(name))) names.push("policies_rev");
    return await this.#done("PATCH", path(entity), changes, Object.fromEntries(names.map((name) => [name, seen[name]])));
  }

  /** Ask for what takes a proof elsewhere; `seen` are the revisions that stand in that and not in the body. */
  async #done(method, target, stated, seen = null) {
    const proof = seen === null ? "" : JSON.stringify(seen);
    return await this.home.ask(method, target, { by: this.player, proof, ...stated });
  }

  /** The record of an entity: `authority`, `owner`, `owner_rev` and what else docs/reference/rest.md has. */
  async entity(entity) {
    return await this.home.ask("GET", path(entity));
  }

  /** Whether an entity runs, and if not, why, and what to do. */
  async why(entity) {
    return await this.home.ask("GET", `${path(entity)}/why`);
  }

  /** How far a transfer is. */
  async transfer(transferId) {
    return await this.home.ask("GET", `/v1/transfers/${encodeURIComponent(transferId)}`);
  }

  /** Take a request back that is not decided yet. */
  async cancel(transferId) {
    return await this.#done("POST", `/v1/transfers/${encodeURIComponent(transferId)}/cancel`, {});
  }

  /** All servers of the instance, with their leases. */
  async servers() {
    return await this.home.ask("GET", "/v1/servers");
  }

  /** One server, of any instance. */
  async server(name) {
    return await this.home.ask("GET", `/v1/servers/${encodeURIComponent(name)}`);
  }

  /** How much the simulation servers have to do. */
  async loads() {
    return await this.home.ask("GET", "/v1/servers/load");
  }

  /** The public keys of a player, of any instance. */
  async keysOf(player) {
    return await this.home.ask("GET", `/v1/players/${encodeURIComponent(player)}/keys`);
  }

  /** What this player owns: `entity`, `owner_rev`, `authority` and what else docs/reference/rest.md has. */
  async owned() {
    return await this.home.ask("GET", `/v1/players/${encodeURIComponent(this.player)}/entities`);
  }

  /** What waits for this player's answer, as a master. */
  async questions() {
    return await this.home.ask("GET", `/v1/players/${encodeURIComponent(this.player)}/asks`);
  }

  /** Say yes or no to a question. */
  async answer({ transfer_id, master_rev }, isYes) {
    const body = { by: this.player, allow: isYes, master_rev, proof: "" };
    return await this.home.ask("POST", `/v1/transfers/${encodeURIComponent(transfer_id)}/answer`, body);
  }

  /** The transfers of an entity, those that moved it newest first. */
  async transfers(entity, limit = 10) {
    return await this.home.ask("GET", `${path(entity)}/transfers?limit=${limit}`);
  }

  /** Hear by `onevent` what happens to these entities, beside those that this player owns. */
  follow(entities) {
    this.home.follow(entities);
  }

  /** The player has finished what it does there: an entity that is about to leave may go at once. */
  letGo(entity) {
    const steering = this.steered.get(entity);
    return this.links.get(steering?.stream.target)?.door.send({ type: "let_go", entity }) ?? false;
  }

  // --- doors ---

  #link(server) {
    const known = this.links.get(server);
    if (known) return known;
    const link = { server, door: null, stops: new Map(), wantedAtMs: performance.now(), wasOpen: false };
    this.links.set(server, link);
    link.door = new Door(() => this.home.doorOf(server), {
      player: this.player,
      keys: this.keys,
      session: () => this.home.session,
    });
    link.door.onstate = (state) => this.#doorIs(link, state);
    link.door.onmessage = (message) => this.#answered(server, message);
    return link;
  }

  #doorIs(link, state) {
    const { server } = link;
    const now = performance.now();
    if (state === "open") {
      link.wasOpen = true;
      for (const steering of this.steered.values()) {
        if (steering.stream.target !== server) continue;
        // What was under way by the last connection may be lost.
        steering.stream.inFlight = 0;
        if (!steering.stream.isBegun) steering.stream.heardAtMs = -Infinity;
        this.#send(steering);
      }
      this.#repeat();
      return;
    }
    if (link.wasOpen) this.reconnections += 1;
    link.wasOpen = false;
    this.home.doubt(server);
    for (const watch of link.stops.keys()) watch.loseAll(server, now);
    if (this.isClosed || this.links.get(server) !== link) return;
    for (const [watch, place] of this.placeOf) if (place === server) this.#askHome(watch.asked.entity);
    for (const { stream } of this.steered.values()) if (stream.target === server) this.#askHome(stream.entity);
  }

  #watchAt(server, watch) {
    const link = this.#link(server);
    if (link.stops.has(watch)) return;
    const { door } = link;
    const periodMs = () => Math.max(door.clock.periodMs, 1000 / watch.asked.rate_hz);
    const stop = door.watch(
      watch.asked,
      (entity) => watch.show(server, entity, door.clock, periodMs()),
      (name) => watch.noLonger(server, [name], performance.now()),
      (refusal) => watch.refused(server, refusal),
    );
    link.stops.set(watch, stop);
  }

  #unwatchAt(link, watch) {
    const stop = link.stops.get(watch);
    if (!stop) return;
    link.stops.delete(watch);
    stop();
    watch.loseAll(link.server, performance.now());
    link.wantedAtMs = performance.now();
  }

  #endWatch(watch) {
    this.watches.delete(watch);
    this.placeOf.delete(watch);
    for (const link of this.links.values()) this.#unwatchAt(link, watch);
  }

  /** Watch an entity at the door of this server, and at no other. */
  #put(watch, server) {
    if (!server || watch.isClosed) return;
    this.placeOf.set(watch, server);
    this.#watchAt(server, watch);
    for (const link of this.links.values()) if (link.server !== server) this.#unwatchAt(link, watch);
  }

  // --- what doors say ---

  #answered(server, message) {
    const steering = this.steered.get(message.entity);
    const now = performance.now();
    const isOfInputs = message.type === "input_ack" || message.type === "not_owner";
    if (isOfInputs && steering?.stream.isOfAnother(message)) {
      steering.isTaken = true;
      steering.hasNews();
    }
    if (isOfInputs && steering?.isTaken) return;
    switch (message.type) {
      case "elsewhere":
        this.#elsewhere(server, message, steering);
        break;
      case "input_ack":
        if (!steering) return;
        steering.stream.acknowledgedAs(message, now);
        if (isSame([message.epoch, message.sub], steering.stream.fence)) {
          steering.tick = message.tick;
          if (steering.stream.target !== server) steering.stream.retarget(server);
        }
        break;
      case "not_owner":
        steering?.stream.corrected(message, this.player, now);
        break;
      default:
        this.onevent({ ...message, server });
    }
    if (steering) {
      steering.hasNews();
      this.#send(steering);
    }
  }

  #elsewhere(server, { entity, server: next, url, epoch, sub }, steering) {
    if (url) this.home.hint(next, url);
    for (const [watch, place] of [...this.placeOf]) {
      if (watch.asked.entity !== entity || place !== server) continue;
      if (next && next !== server) this.#put(watch, next);
      else this.#askHome(entity);
    }
    if (steering?.stream.target === server && !steering.stream.follow(next, [epoch, sub])) this.#askHome(entity);
  }

  #send(steering) {
    const { stream } = steering;
    if (!stream.target || stream.owner || !stream.isBegun || steering.isTaken) return;
    const { door } = this.#link(stream.target);
    if (!door.isOpen) return;
    for (const item of stream.nextToSend()) door.send(stream.asInput(item));
  }

  // --- home ---

  /** What home tells by itself: the owner of what is steered, and that something is gone, are for this client too. */
  #homeSays(message) {
    if (message.type === "gone") this.#isGone(message.entity);
    const steering = message.type === "entity" ? this.steered.get(message.entity.id) : undefined;
    if (steering) {
      const { owner, owner_rev } = message.entity;
      steering.stream.learnOwner(owner, owner_rev, this.player);
      steering.hasNews();
      this.#send(steering);
    }
    this.onevent(message);
  }

  async #askHome(entity) {
    if (!entity || this.asking.has(entity)) return;
    this.asking.add(entity);
    let place = null;
    try {
      await new Promise((resolve) => setTimeout(resolve, ASK_HOME_MS));
      place = await this.home.locate(entity);
    } catch (failure) {
      if (failure.code === "not_found") this.#isGone(entity);
      else if (!(failure instanceof HomeFailure)) throw failure;
      return;
    } finally {
      this.asking.delete(entity);
    }
    if (this.isClosed) return;
    for (const watch of [...this.placeOf.keys()]) if (watch.asked.entity === entity) this.#put(watch, place.server);
    const steering = this.steered.get(entity);
    if (!steering) return;
    steering.stream.learnOwner(place.owner, place.owner_rev, this.player);
    if (place.server && place.server !== steering.stream.target) steering.stream.retarget(place.server);
    this.#send(steering);
    steering.hasNews();
  }

  #isGone(entity) {
    for (const watch of this.watches) if (watch.asked.entity === entity) watch.remove(entity);
    const steering = this.steered.get(entity);
    steering?.stream.ended();
    steering?.hasNews();
  }

  // --- what has to be done again and again ---

  #repeat() {
    const now = performance.now();
    for (const steering of this.steered.values()) this.#repeatFor(steering, now);
    for (const watch of this.watches) this.#look(watch, now);
    const wanted = new Set([...this.steered.values()].map(({ stream }) => stream.target));
    for (const link of [...this.links.values()]) {
      if (link.stops.size || wanted.has(link.server)) link.wantedAtMs = now;
      if (now - link.wantedAtMs < IDLE_MS) continue;
      this.links.delete(link.server);
      link.door.close();
    }
  }

  #repeatFor(steering, now) {
    const { stream } = steering;
    if (stream.isGone || steering.isTaken) return;
    if (stream.isOverdue(now)) {
      stream.startOver(now);
      this.#send(steering);
      this.#askHome(stream.entity);
      return;
    }
    if (!stream.target) {
      this.#askHome(stream.entity);
      return;
    }
    const { door } = this.#link(stream.target);
    const question = !stream.isBegun && !door.isOpen ? null : stream.toAskWith(now);
    if (!question) return;
    if (!door.send(question) || stream.askedInVain) this.#askHome(stream.entity);
    stream.askedInVain = true;
  }

  #look(watch, now) {
    const { entity } = watch.asked;
    if (entity) {
      // That it is deleted, its home says; until then it is on its way.
      const isShown = watch.entities.has(entity) && !watch.isLost(entity);
      const isOpen = this.links.get(this.placeOf.get(watch))?.door.isOpen ?? true;
      if (!isShown && isOpen) this.#askHome(entity);
      return;
    }
    const links = [...this.links.values()].filter((link) => link.stops.has(watch));
    watch.look(now, links.every(({ door }) => door.isOpen));
  }

  /** Say now and then to the servers that have the entities that this player is there. */
  #stayKnown() {
    const byServer = new Map([...this.steered.values()].map(({ stream }) => [stream.target, stream.entity]));
    for (const [server, entity] of byServer) this.links.get(server)?.door.send({ type: "present", entity });
  }

  /** Servers come and go: what is watched by owner, pattern or area is watched at all of them. */
  async #findServers() {
    const wide = [...this.watches].filter(({ asked }) => !asked.entity);
    if (wide.length === 0) return;
    let servers;
    try {
      servers = await this.home.simservers();
    } catch (failure) {
      if (!(failure instanceof HomeFailure)) throw failure;
      return;
    }
    for (const watch of wide) {
      if (watch.isClosed) continue;
      for (const server of servers) this.#watchAt(server, watch);
      for (const link of this.links.values()) if (!servers.includes(link.server)) this.#unwatchAt(link, watch);
    }
  }
}
