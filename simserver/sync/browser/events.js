/**
 * Lockstep simulations in a browser: the JavaScript side of `batonpass.simserver.sync.lockstep`, hash for hash.
 *
 * One ES module without dependencies and without a build step. Top to bottom: SHA-256, the canonical encoding, the
 * generator, the driver with its entities, comparing two drivers, and the client of a stream. All but the client is
 * pure: no clock, no network, no dice of its own. docs/reference/lockstep.md has the rules and the bytes.
 *
 * @module
 */

/** What a canonical encoding may hold. @typedef {null|boolean|number|string|Uint8Array|Value[]|{[key: string]: Value}} Value */
/** @typedef {{T: number, Type: string, Origin: string, Body: string}} StreamEvent */

/** A value, an order or a reply that breaks a rule of the simulation; the message names it and says what to do. */
export class SimError extends Error {
  name = "SimError";
}

// ---------------------------------------------------------------------------------------------------- SHA-256

const ROUND = Uint32Array.of(
  0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
  0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
  0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
  0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
  0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
  0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
  0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
  0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
);
const utf8 = new TextEncoder();

/**
 * The SHA-256 digest of `bytes` (FIPS 180-4). Synchronous, which WebCrypto is not; WebCrypto is also absent without https.
 * @param {Uint8Array} bytes
 * @returns {Uint8Array} 32 bytes
 */
export function sha256(bytes) {
  const padded = new Uint8Array(((bytes.length + 72) >> 6) << 6);
  padded.set(bytes);
  padded[bytes.length] = 0x80;
  const view = new DataView(padded.buffer);
  view.setUint32(padded.length - 8, Math.floor(bytes.length / 0x20000000));
  view.setUint32(padded.length - 4, bytes.length << 3);
  const sum = Uint32Array.of(
    0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19,
  );
  const w = new Uint32Array(64);
  for (let start = 0; start < padded.length; start += 64) {
    for (let i = 0; i < 16; i++) w[i] = view.getUint32(start + 4 * i);
    for (let i = 16; i < 64; i++) {
      const early = w[i - 15];
      const late = w[i - 2];
      const s0 = ((early >>> 7) | (early << 25)) ^ ((early >>> 18) | (early << 14)) ^ (early >>> 3);
      const s1 = ((late >>> 17) | (late << 15)) ^ ((late >>> 19) | (late << 13)) ^ (late >>> 10);
      w[i] = w[i - 16] + s0 + w[i - 7] + s1;
    }
    let [a, b, c, d, e, f, g, h] = sum;
    for (let i = 0; i < 64; i++) {
      const s1 = ((e >>> 6) | (e << 26)) ^ ((e >>> 11) | (e << 21)) ^ ((e >>> 25) | (e << 7));
      const t1 = (h + s1 + ((e & f) ^ (~e & g)) + ROUND[i] + w[i]) | 0;
      const s0 = ((a >>> 2) | (a << 30)) ^ ((a >>> 13) | (a << 19)) ^ ((a >>> 22) | (a << 10));
      const t2 = (s0 + ((a & b) ^ (a & c) ^ (b & c))) | 0;
      [h, g, f, e, d, c, b, a] = [g, f, e, (d + t1) | 0, c, b, a, (t1 + t2) | 0];
    }
    [a, b, c, d, e, f, g, h].forEach((word, i) => (sum[i] += word));
  }
  const digest = new DataView(new ArrayBuffer(32));
  sum.forEach((word, i) => digest.setUint32(4 * i, word));
  return new Uint8Array(digest.buffer);
}

/** `bytes` in lower-case hex. @param {Uint8Array} bytes @returns {string} */
export function hex(bytes) {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

// ----------------------------------------------------------- canonical encoding (RFC 8949, 4.2.1, restricted)

/** How deep values may be nested. */
export const MAX_NESTING = 64;

/**
 * The one encoding of `value`, equal to Python's to the byte.
 * A number with an integral value between -(2^53 - 1) and 2^53 - 1 is an integer, -0 is 0, other finite ones take 8 bytes.
 * @param {Value} value
 * @param {string} path what errors call the value
 * @returns {Uint8Array}
 * @throws {SimError} names the path of what cannot be encoded
 */
export function encode(value, path = "value") {
  const out = new Writer();
  write(out, value, path, 0);
  return out.taken();
}

/** Bytes that grow. */
class Writer {
  #bytes = new Uint8Array(256);
  #view = new DataView(this.#bytes.buffer);
  #length = 0;

  /** Room for `more` bytes; where they begin. */
  #room(more) {
    const start = this.#length;
    this.#length += more;
    if (this.#length > this.#bytes.length) {
      const grown = new Uint8Array(2 * this.#length);
      grown.set(this.#bytes.subarray(0, start));
      this.#bytes = grown;
      this.#view = new DataView(grown.buffer);
    }
    return start;
  }

  raw(bytes) {
    const start = this.#room(bytes.length);
    this.#bytes.set(bytes, start);
  }

  byte(byte) {
    const start = this.#room(1);
    this.#bytes[start] = byte;
  }

  /** A major type with its argument, in the shortest form. */
  head(major, argument) {
    if (argument < 24) return this.byte((major << 5) | argument);
    const size = argument < 0x100 ? 0 : argument < 0x10000 ? 1 : argument < 0x100000000 ? 2 : 3;
    this.byte((major << 5) | (24 + size));
    const start = this.#room(1 << size);
    if (size === 0) this.#view.setUint8(start, argument);
    else if (size === 1) this.#view.setUint16(start, argument);
    else if (size === 2) this.#view.setUint32(start, argument);
    else this.#view.setBigUint64(start, BigInt(argument));
  }

  double(number) {
    this.byte(0xfb);
    const start = this.#room(8);
    this.#view.setFloat64(start, number);
  }

  taken() {
    return this.#bytes.slice(0, this.#length);
  }
}

function write(out, value, path, depth) {
  if (value === null) out.byte(0xf6);
  else if (value === true) out.byte(0xf5);
  else if (value === false) out.byte(0xf4);
  else if (typeof value === "number") writeNumber(out, value, path);
  else if (typeof value === "string") out.raw(textBytes(value, path));
  else if (value instanceof Uint8Array) {
    out.head(2, value.length);
    out.raw(value);
  } else if (depth === MAX_NESTING && typeof value === "object") {
    throw new SimError(`${path}: nested more than ${MAX_NESTING} levels deep; keep deeper values in other entities`);
  } else if (Array.isArray(value)) {
    out.head(4, value.length);
    for (let i = 0; i < value.length; i++) write(out, value[i], `${path}[${i}]`, depth + 1);
  } else if (isPlain(value)) {
    const entries = Object.entries(value).map(([key, item]) => [textBytes(key, path), key, item]);
    entries.sort(([one], [other]) => compareBytes(one, other));
    out.head(5, entries.length);
    for (const [bytes, key, item] of entries) {
      out.raw(bytes);
      write(out, item, `${path}.${key}`, depth + 1);
    }
  } else {
    const name = typeof value === "object" ? (value.constructor?.name ?? "object") : typeof value;
    throw new SimError(
      `${path}: ${name} has no canonical encoding; use null, booleans, numbers, text, Uint8Array, arrays or plain objects`,
    );
  }
}

function writeNumber(out, number, path) {
  if (Number.isSafeInteger(number)) {
    if (number >= 0) out.head(0, number);
    else out.head(1, -1 - number);
  } else if (Number.isFinite(number)) out.double(number);
  else throw new SimError(`${path}: ${number} has no canonical encoding; keep numbers finite`);
}

const texts = new Map(); // names of fields and kinds, which come again in each tick
const MOST_TEXTS = 1000;

function textBytes(text, path) {
  const known = texts.get(text);
  if (known) return known;
  if (/\p{Surrogate}/u.test(text)) throw new SimError(`${path}: text with half a surrogate pair; use well-formed text`);
  const out = new Writer();
  const bytes = utf8.encode(text);
  out.head(3, bytes.length);
  out.raw(bytes);
  const encoded = out.taken();
  if (texts.size >= MOST_TEXTS) texts.clear();
  if (text.length <= 40) texts.set(text, encoded);
  return encoded;
}

function isPlain(value) {
  if (typeof value !== "object") return false;
  const prototype = Object.getPrototypeOf(value);
  return prototype === Object.prototype || prototype === null;
}

function compareBytes(one, other) {
  const shared = Math.min(one.length, other.length);
  for (let i = 0; i < shared; i++) if (one[i] !== other[i]) return one[i] - other[i];
  return one.length - other.length;
}

/**
 * The value that `bytes` encode. Anything but the one encoding of that value is refused.
 * @param {Uint8Array} bytes
 * @returns {Value}
 * @throws {SimError}
 */
export function decode(bytes) {
  const reader = new Reader(bytes);
  const value = reader.value(0);
  if (compareBytes(encode(value), bytes) !== 0) throw new SimError("not in canonical form: encode it by the rules again");
  return value;
}

class Reader {
  #bytes;
  #view;
  #at = 0;

  constructor(bytes) {
    this.#bytes = bytes;
    this.#view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  }

  #take(length) {
    if (length > this.#bytes.length - this.#at) throw new SimError(`cut short at byte ${this.#at}: read all of it`);
    const start = this.#at;
    this.#at += length;
    return start;
  }

  #argument(low) {
    if (low < 24) return low;
    if (low === 24) return this.#view.getUint8(this.#take(1));
    if (low === 25) return this.#view.getUint16(this.#take(2));
    if (low === 26) return this.#view.getUint32(this.#take(4));
    if (low === 27) return Number(this.#view.getBigUint64(this.#take(8)));
    throw new SimError(`byte ${this.#at - 1}: a length that is not in the canonical encoding`);
  }

  value(depth) {
    const first = this.#bytes[this.#take(1)];
    if (first === 0xf4) return false;
    if (first === 0xf5) return true;
    if (first === 0xf6) return null;
    if (first === 0xfb) return this.#view.getFloat64(this.#take(8));
    const argument = this.#argument(first & 31);
    switch (first >> 5) {
      case 0:
        return argument;
      case 1:
        return -1 - argument;
      case 2:
        return this.#bytes.slice(this.#take(argument), this.#at);
      case 3:
        return this.#text(argument);
      case 4:
        return this.#several(argument, depth, () => this.value(depth + 1));
      case 5:
        return Object.fromEntries(this.#several(argument, depth, () => [this.#key(), this.value(depth + 1)]));
      default:
        throw new SimError(`byte ${this.#at - 1}: a type that is not in the canonical encoding`);
    }
  }

  #several(count, depth, one) {
    if (depth === MAX_NESTING) throw new SimError(`byte ${this.#at}: nested more than ${MAX_NESTING} levels deep`);
    const items = [];
    for (let i = 0; i < count; i++) items.push(one()); // each takes a byte or more, so a false count ends soon
    return items;
  }

  #key() {
    const key = this.value(MAX_NESTING);
    if (typeof key !== "string") throw new SimError(`byte ${this.#at}: keys are text`);
    return key;
  }

  #text(length) {
    const start = this.#take(length);
    try {
      return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(this.#bytes.subarray(start, this.#at));
    } catch {
      throw new SimError(`byte ${start}: text that is not UTF-8`);
    }
  }
}

// ------------------------------------------------------------------- generator (xoshiro128** 1.1, Blackman, Vigna)

const TWO_32 = 0x100000000;

/** The one generator of a simulation: 32 bits, the same draws on every machine. */
export class Xoshiro128 {
  #state;

  /** @param {number[]} state four numbers of 32 bits, not all zero */
  constructor(state) {
    this.state = state;
  }

  /** Seeded from the body of `_a`: the first 16 bytes of its SHA-256 digest, little-endian. @param {string} text */
  static seeded(text) {
    const view = new DataView(sha256(utf8.encode(text)).buffer);
    const state = [0, 4, 8, 12].map((at) => view.getUint32(at, true));
    if (state.every((word) => word === 0)) state[0] = 1;
    return new Xoshiro128(state);
  }

  /** @returns {number[]} */
  get state() {
    return Array.from(this.#state);
  }

  set state(words) {
    const whole = Array.isArray(words) && words.length === 4 && words.every((word) => word >>> 0 === word);
    if (!whole || words.every((word) => word === 0)) {
      throw new SimError(`a generator's state is four numbers of 32 bits, not all zero: ${JSON.stringify(words)}`);
    }
    this.#state = Uint32Array.from(words);
  }

  /** The next 32 bits. @returns {number} */
  next() {
    const s = this.#state;
    const times5 = Math.imul(s[1], 5);
    const drawn = Math.imul((times5 << 7) | (times5 >>> 25), 9) >>> 0;
    const shifted = s[1] << 9;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= shifted;
    s[3] = (s[3] << 11) | (s[3] >>> 21);
    return drawn;
  }

  /** A whole number from 0 up to `n`, without `n` itself; 1 <= n <= 2^32. No number is likelier than another. */
  below(n) {
    if (!Number.isInteger(n) || n < 1 || n > TWO_32) throw new SimError(`below(${n}): ask for 1 to 2^32`);
    const limit = TWO_32 - (TWO_32 % n);
    let drawn = this.next();
    while (drawn >= limit) drawn = this.next();
    return drawn % n;
  }

  /** A whole number from `low` to `high`, both included. */
  between(low, high) {
    return low + this.below(high - low + 1);
  }

  /** True in `numerator` of `denominator` draws. */
  chance(numerator, denominator) {
    return this.below(denominator) < numerator;
  }

  /** A number from 0 up to 1, without 1 itself, in steps of 2^-32. */
  uniform() {
    return this.next() / TWO_32;
  }

  /** Put `items` into a random order, in place (Fisher and Yates, from the end). */
  shuffle(items) {
    for (let i = items.length - 1; i > 0; i--) {
      const j = this.below(i + 1);
      [items[i], items[j]] = [items[j], items[i]];
    }
  }
}

// ------------------------------------------------------------------------------ sine and cosine in whole numbers

/** The steps of a whole turn. */
export const TURN = 1024;
/** What 1 is in the results of `sine` and `cosine`. */
export const ONE = 65536;

const SINES = Array.from({ length: TURN }, (_, step) => Math.floor(Math.sin((2 * Math.PI * step) / TURN) * ONE + 0.5));

/** The sine of an angle, times 65536. @param {number} angle in 1024ths of a turn, any whole number */
export function sine(angle) {
  return SINES[((angle % TURN) + TURN) % TURN];
}

/** The cosine of an angle, times 65536. @param {number} angle in 1024ths of a turn, any whole number */
export function cosine(angle) {
  return sine(angle + TURN / 4);
}

// ------------------------------------------------------------------------------------- acts: draws and writes

const MOST_ACTS = 20_000; // of one tick; the first difference is what is looked for

/**
 * One draw or write of a tick: `what` it is, `of` which draw or field, the `value`, and the line of the game (`site`).
 * @typedef {{what: "draw" | "write", of: string, value: Value, site: string}} Act
 */

/** Says whether a step is being taken, and keeps its acts if they are to be kept. */
class StepGuard {
  isOpen = false;
  /** @type {Act[]} */
  acts = [];

  constructor(traced) {
    this.traced = traced;
  }

  demandOpen(what) {
    if (!this.isOpen) throw new SimError(`${what} outside of a tick or event: other clients would not do it; use sendEvent`);
  }

  did(what, of, value) {
    if (this.traced && this.acts.length < MOST_ACTS) this.acts.push({ what, of, value, site: callSite() });
  }
}

/** The innermost line that is not this module's own. */
function callSite() {
  const lines = (new Error().stack ?? "").split("\n");
  return lines.find((line) => /:\d+:\d+\)?$/.test(line) && !line.includes(import.meta.url))?.trim() ?? "?";
}

/** A generator that draws in steps only, and reports each draw. */
class GuardedGenerator extends Xoshiro128 {
  #guard;
  #isInner = false;

  constructor(state, guard) {
    super(state);
    this.#guard = guard;
  }

  #drawn(of, draw) {
    if (this.#isInner) return draw();
    this.#guard.demandOpen("the generator is used");
    this.#isInner = true;
    try {
      const value = draw();
      this.#guard.did("draw", of, value);
      return value;
    } finally {
      this.#isInner = false;
    }
  }

  next() {
    return this.#drawn("next()", () => super.next());
  }

  below(n) {
    return this.#drawn(`below(${n})`, () => super.below(n));
  }

  between(low, high) {
    return this.#drawn(`between(${low}, ${high})`, () => super.between(low, high));
  }

  chance(numerator, denominator) {
    return this.#drawn(`chance(${numerator}, ${denominator})`, () => super.chance(numerator, denominator));
  }

  uniform() {
    return this.#drawn("uniform()", () => super.uniform());
  }

  shuffle(items) {
    const before = this.state; // stands for the order
    this.#drawn(`shuffle(${items.length})`, () => super.shuffle(items) ?? before);
  }
}

// ---------------------------------------------------------------------------------------------------- entities

const unguarded = new WeakMap(); // an entity -> the object behind it, which is read more quickly
let making = null; // what makes an entity, for the constructor below: {sim, id, guard}

/**
 * What is simulated. Its class declares fields with their first values, as `x = 0;`. Fields can be read at any time, and
 * written from the methods and callbacks that the driver calls. They hold frozen values: to change a list, assign another.
 *
 * Only a driver makes entities (`SimDriver.spawn`): a class of yours has no constructor. Its name is part of the state,
 * so a tool that shortens names needs `static kind = "Ball";`.
 *
 * @property {number} id 1 for the first entity after a reset, and never given again until the next one
 * @property {any} sim the driver: your class of `SimDriver`
 */
export class SimEntity {
  constructor() {
    if (!making) throw new SimError(`${new.target.name}: entities are made by spawn, in a tick or event`);
    const { sim, id, guard } = making;
    Object.defineProperty(this, "id", { value: id });
    Object.defineProperty(this, "sim", { value: sim });
    const guarded = new Proxy(this, fieldTraps(`${kindOf(new.target)} ${id}`, guard));
    unguarded.set(guarded, this);
    return guarded;
  }

  /** Called when it has entered the scene, at the end of the tick in which it was spawned. */
  simEnter() {}

  /** Called in each tick, in the order of spawning. */
  simTick() {}

  /** Called when it has left the scene, at the end of the tick in which it was removed. */
  simExit() {}
}

function kindOf(Class) {
  return Class.kind ?? Class.name;
}

/** What an entity's fields take, and when. */
function fieldTraps(name, guard) {
  return {
    defineProperty(target, field, description) {
      if (!making) throw new SimError(`${name}.${String(field)} is not declared: write \`${String(field)} = 0;\` in its class`);
      const value = frozen(description.value, `${name}.${String(field)}`);
      return Reflect.defineProperty(target, field, { value, writable: true, enumerable: true, configurable: true });
    },
    set(target, field, value) {
      const path = `${name}.${String(field)}`;
      if (!making) guard.demandOpen(`${path} is written`);
      if (!Object.prototype.propertyIsEnumerable.call(target, field)) {
        throw new SimError(`${path} is not declared: write \`${String(field)} = 0;\`, or another first value, in its class`);
      }
      target[field] = frozen(value, path);
      if (!making) guard.did("write", path, target[field]);
      return true;
    },
    deleteProperty(target, field) {
      throw new SimError(`${name}.${String(field)} cannot be deleted: a field may be null`);
    },
  };
}

/** The canonical form of a value: a copy that cannot be changed, with the keys of maps in the order of their bytes. */
function frozen(value, path, levels = MAX_NESTING) {
  if (typeof value === "number" && Number.isFinite(value)) return value === 0 ? 0 : value;
  if (value instanceof Uint8Array) return value.slice();
  if (levels > 0 && Array.isArray(value)) {
    return Object.freeze(value.map((item, at) => frozen(item, `${path}[${at}]`, levels - 1)));
  }
  if (levels > 0 && value !== null && typeof value === "object" && isPlain(value)) {
    const rows = Object.entries(value).map(([key, item]) => [textBytes(key, path), key, item]);
    rows.sort(([one], [other]) => compareBytes(one, other));
    return Object.freeze(Object.fromEntries(rows.map(([, key, item]) => [key, frozen(item, `${path}.${key}`, levels - 1)])));
  }
  encode(value, path); // refuses by name what has no canonical form
  return value;
}

// ------------------------------------------------------------------------------------------------------ driver

const KEPT_TICKS = 200;
const MOST_SENT = 1000;
const MOST_EVENT_BYTES = 12 * 1024; // of a request of 16 KiB, which has hashes, too
const MOST_DUMP_CHARS = 1024 * 1024;

/** What is kept of a tick: its hash, its snapshot, its events, and in trace mode its draws and writes.
 * @typedef {{tick: number, hash: string, state: Uint8Array, events: StreamEvent[], acts: Act[] | null}} TickRecord */

/**
 * A game: say in `static kinds` which entities it has, and override the callbacks that you need. A tick, in this order:
 *
 * 1. The generator is drawn once.
 * 2. `onTick`, then `simTick` of every entity in the order of spawning.
 * 3. The events of the tick in the order of the log: `onReset`, `onConnect`, `onDisconnect`, `onClientEvent`.
 * 4. The tick's number grows by one.
 * 5. What was spawned enters, then what was removed leaves; what these ask for waits for the next tick.
 * 6. The hash of the state is taken.
 *
 * All that is to be equal on every client is in entities: callbacks must not read what is elsewhere.
 */
export class SimDriver {
  /** @type {(typeof SimEntity)[]} */
  static kinds = [];

  #options;
  #guard;
  #kinds;
  #tick = 0;
  #random;
  #nextId = 1;
  #entities = new Map(); // id -> entity, in the order of spawning
  #spawns = [];
  #removals = new Set();
  #records = new Map(); // tick -> TickRecord
  #last; // the latest of them
  #sent = [];
  #failed = null;

  /**
   * @param {object} [options]
   * @param {boolean} [options.trace] keep draws and writes with their call sites, for desync reports
   * @param {boolean} [options.check] save, load and compare at each tick, and refuse what machines do not agree on
   * @param {number} [options.keptTicks] how many ticks are kept for desync reports
   */
  constructor(options = {}) {
    this.#options = { trace: false, check: false, keptTicks: KEPT_TICKS, ...options };
    const { keptTicks } = this.#options;
    if (!(keptTicks >= 1)) throw new SimError(`keptTicks is ${keptTicks}: the last tick is kept at least, so give 1 or more`);
    this.#guard = new StepGuard(this.#options.trace);
    this.#kinds = new Map(this.constructor.kinds.map((Class) => [kindOf(Class), Class]));
    if (this.#options.check) for (const Class of [this.constructor, ...this.#kinds.values()]) demandNoPowers(Class);
    this.startOver();
  }

  // What a game overrides.

  /** Build the scene: everything was cleared, and the generator is that of `seed`. @param {string} seed */
  onReset(seed) {}

  /** Take note of a client that has come. @param {string} publicId */
  onConnect(publicId) {}

  /** Take note of a client that has gone. @param {string} publicId */
  onDisconnect(publicId) {}

  /** Act on an event of the client with the public id `origin`. Anybody may have written `type` and `body`. */
  onClientEvent(type, origin, body) {}

  /** Called in each tick, before entities. @param {number} tick */
  onTick(tick) {}

  // What a game calls.

  /** How many ticks have been computed. */
  get tick() {
    return this.#tick;
  }

  /** The one generator. It draws in ticks and events only. @returns {Xoshiro128} */
  get random() {
    return this.#random;
  }

  /** Ask for an entity, which is there at the end of the tick. @returns {number} its id */
  spawn(Class, fields = {}) {
    this.#guard.demandOpen(`${kindOf(Class)} is spawned`);
    if (this.#kinds.get(kindOf(Class)) !== Class) {
      throw new SimError(`${kindOf(Class)} is not among the kinds of ${this.constructor.name}: add it to \`static kinds\``);
    }
    this.#spawns.push(this.#made(Class, this.#nextId, fields));
    return this.#nextId++;
  }

  /** Ask for an entity, or the one with this id, to leave at the end of the tick. @param {SimEntity | number} entity */
  remove(entity) {
    const id = typeof entity === "number" ? entity : entity.id;
    this.#guard.demandOpen(`entity ${id} is removed`);
    this.#demandId(id);
    this.#removals.add(id);
  }

  /** The entity with this id, if it is in the scene. */
  entity(id) {
    return this.#entities.get(id);
  }

  /** The entities of a class in the order of spawning; without one, all. @template {typeof SimEntity} C @param {C} [Class] */
  entities(Class = SimEntity) {
    return Array.from(this.#entities.values()).filter((entity) => entity instanceof Class);
  }

  /** Post an event. It has no effect until it comes back in `onClientEvent`, on all clients in the same tick. */
  sendEvent(type, body = "") {
    if (!/^[^_$]/.test(type)) throw new SimError(`type ${type}: a type is a text that does not begin with _ or $, the server's`);
    const bytes = eventBytes(type, body);
    if (bytes > MOST_EVENT_BYTES) throw new SimError(`the event ${type} has ${bytes} bytes: an event has at most ${MOST_EVENT_BYTES}`);
    if (this.#sent.length >= MOST_SENT) throw new SimError(`${MOST_SENT} events wait to be sent: send fewer, or follow a stream`);
    this.#sent.push([type, body]);
  }

  // What followers and tools call.

  /** Compute one tick with its events, in their order. @param {StreamEvent[]} events @returns {string} the hash of the state after it */
  step(events) {
    if (this.#failed) throw new SimError(`${this.#failed} failed half-way: load a snapshot, or start over`);
    const before = this.#last.state;
    this.#failed = `tick ${this.#tick}`;
    this.#guard.acts = [];
    this.#guard.isOpen = true;
    try {
      if (this.#options.check) agreed(() => this.#play(events));
      else this.#play(events);
    } finally {
      this.#guard.isOpen = false;
    }
    this.#failed = null;
    this.#keep(events, this.#encoded());
    if (this.#options.check) this.#checkFrom(before, events);
    return this.hash;
  }

  #play(events) {
    Xoshiro128.prototype.next.call(this.#random);
    this.onTick(this.#tick);
    for (const entity of this.#entities.values()) entity.simTick();
    for (const event of events) this.#dispatch(event);
    this.#tick += 1;
    const [spawns, removals] = [this.#spawns, this.#removals];
    [this.#spawns, this.#removals] = [[], new Set()];
    for (const entity of spawns) {
      this.#entities.set(entity.id, entity);
      entity.simEnter();
    }
    for (const id of removals) {
      const entity = this.#entities.get(id);
      this.#entities.delete(id);
      // Asked for again meanwhile, by what entered or left before it: it leaves once.
      this.#removals.delete(id);
      entity.simExit();
    }
  }

  #dispatch({ Type, Origin, Body }) {
    const system = Origin === "_" ? Type : "";
    if (system === "_a") {
      this.#clear(Body);
      this.onReset(Body);
    } else if (system === "_c") this.onConnect(Body);
    else if (system === "_d") this.onDisconnect(Body);
    else this.onClientEvent(Type, Origin, Body);
  }

  /** The canonical bytes of the state: what the hash is of, and what `load` takes. @returns {Uint8Array} */
  save() {
    return this.#last.state;
  }

  /** Become the state of a snapshot, which may come from anybody. @param {Uint8Array} bytes @throws {SimError} nothing is changed then */
  load(bytes) {
    const kept = [this.#tick, this.#random, this.#nextId, this.#entities, this.#spawns, this.#removals];
    try {
      this.#read(decode(bytes));
      if (compareBytes(this.#encoded(), bytes) !== 0) throw new SimError("there is more in it than this game writes");
    } catch (error) {
      [this.#tick, this.#random, this.#nextId, this.#entities, this.#spawns, this.#removals] = kept;
      throw new SimError(`${bytes.length} bytes are no snapshot of ${this.constructor.name}: ${error.message}`);
    }
    this.#begin(bytes);
  }

  /** Become the state before the first tick, for a stream that begins anew. */
  startOver() {
    this.#tick = 0;
    this.#clear("");
    this.#begin(this.#encoded());
  }

  /** The hash of the state, as taken after the last tick: SHA-256 in lower-case hex. */
  get hash() {
    return this.#last.hash;
  }

  /** What is kept of a tick, if it is not too old. @returns {TickRecord | undefined} */
  record(tick) {
    return this.#records.get(tick);
  }

  /** Types and bodies of events that were posted since the last call, at most `most`. @returns {[string, string][]} */
  takeSent(most = MOST_SENT) {
    return this.#sent.splice(0, most);
  }

  /** What Python's `explain` compares: a tick's record as JSON, if it is kept and not too long. @returns {string | undefined} */
  dump(tick) {
    const record = this.#records.get(tick);
    if (!record) return undefined;
    const hashes = Array.from(this.#records.values(), (kept) => [kept.tick, kept.hash]);
    const bytesAsHex = (key, value) => (value instanceof Uint8Array ? hex(value) : value);
    for (let acts = record.acts; ; acts = acts.slice(0, acts.length >> 1)) {
      const text = JSON.stringify({ ...record, acts, state: toBase64(record.state), hashes }, bytesAsHex);
      if (text.length <= MOST_DUMP_CHARS) return text;
      if (!acts?.length) return undefined;
    }
  }

  #begin(state) {
    this.#failed = null;
    this.#records.clear();
    this.#keep([], state);
  }

  #keep(events, state) {
    const acts = this.#options.trace ? this.#guard.acts : null;
    this.#last = { tick: this.#tick, hash: hex(sha256(state)), state, events, acts };
    this.#records.set(this.#tick, this.#last);
    this.#records.delete(this.#tick - this.#options.keptTicks);
  }

  #clear(seed) {
    this.#random = new GuardedGenerator(Xoshiro128.seeded(seed).state, this.#guard);
    this.#nextId = 1;
    this.#entities = new Map();
    this.#spawns = [];
    this.#removals = new Set();
  }

  #made(Class, id, fields) {
    const outer = making;
    making = { sim: this, id, guard: this.#guard };
    try {
      return Object.assign(new Class(), fields);
    } finally {
      making = outer;
    }
  }

  #demandId(id) {
    if (this.#entities.has(id) || this.#spawns.some((entity) => entity.id === id)) return;
    throw new SimError(`there is no entity ${id} to be removed`);
  }

  #encoded() {
    const row = (entity) => [entity.id, kindOf(entity.constructor), { ...unguarded.get(entity) }];
    const Entities = Array.from(this.#entities.values(), row);
    const Pending = [...this.#spawns.map(row), ...Array.from(this.#removals, (id) => [id])];
    return encode({ Tick: this.#tick, Random: this.#random.state, Next: this.#nextId, Entities, Pending }, "state");
  }

  #read({ Tick, Random, Next, Entities, Pending }) {
    const made = ([id, kind, fields]) => {
      const isKnown = this.#entities.has(id) || this.#spawns.some((entity) => entity.id === id);
      if (!(Number.isSafeInteger(id) && id > 0 && id < Next) || isKnown) throw new SimError(`${id} is no id of an entity, or of two`);
      if (!this.#kinds.has(kind)) throw new SimError(`${kind} is not among its kinds`);
      return this.#made(this.#kinds.get(kind), id, fields);
    };
    if (![Tick, Next].every((count) => Number.isSafeInteger(count) && count >= 0)) throw new SimError("Tick and Next are counts");
    this.#clear("");
    this.#random.state = Random;
    this.#tick = Tick;
    this.#nextId = Next;
    for (const row of Entities) this.#entities.set(row[0], made(row));
    for (const row of Pending) {
      if (row.length === 1) {
        this.#demandId(row[0]);
        this.#removals.add(row[0]);
      } else this.#spawns.push(made(row));
    }
  }

  /** The same tick once more, from the saved state before it. */
  #checkFrom(before, events) {
    const twin = new this.constructor({ ...this.#options, check: false });
    twin.load(before);
    twin.step(events);
    const found = firstDifference(this.#last, twin.record(this.#tick));
    if (found) throw new SimError(`${found.text} after loading what was saved: keep all state in fields of entities`);
  }
}

function eventBytes(type, body) {
  return utf8.encode(JSON.stringify([type, body])).length;
}

function fromBase64(text) {
  try {
    return Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  } catch {
    throw new SimError("a state that is not base64: ask for it again");
  }
}

function toBase64(bytes) {
  return btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""));
}

/** What no two machines agree on, or not all browsers: clocks, chance, languages and zones, what is rounded as one likes. */
const REFUSED = [
  [Math, "random acos acosh asin asinh atan atan2 atanh cbrt cos cosh exp expm1 hypot log log10 log1p log2 pow sin sinh tan tanh"],
  [globalThis, "Date Intl WeakRef performance crypto"],
  [String.prototype, "localeCompare toLocaleLowerCase toLocaleUpperCase"],
  ...[Object, Number, BigInt, Array, Uint8Array.__proto__].map((Class) => [Class.prototype, "toLocaleString"]),
];

/** Do `work` with all that refused by name. */
function agreed(work) {
  const kept = REFUSED.flatMap(([object, names]) =>
    names.split(" ").map((name) => [object, name, Object.getOwnPropertyDescriptor(object, name)]),
  );
  for (const [object, name, former] of kept) {
    const refuse = () => {
      throw new SimError(`${name} ${ADVICE}`);
    };
    // Also when it is called with `new`, and whatever is read of it.
    const value = new Proxy(function () {}, { apply: refuse, construct: refuse, get: refuse });
    Object.defineProperty(object, name, { configurable: true, enumerable: former?.enumerable ?? false, writable: true, value });
  }
  try {
    work();
  } finally {
    for (const [object, name, former] of kept) {
      if (former) Object.defineProperty(object, name, former);
      else delete object[name];
    }
  }
}

const ADVICE = "differs between machines: use the driver's generator, whole numbers, and + - * / and sqrt";
// Comments and texts, in which stars mean nothing; what follows a backslash belongs to its text.
const ASIDE = /\/\*[^]*?\*\/|\/\/.*|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|`(?:\\.|\$\{[^}]*\}|[^`\\])*`/g;

/** Operators cannot be replaced, so a class is looked through for the one that is `Math.pow`. */
function demandNoPowers(Class) {
  const bare = String(Class).replace(ASIDE, (aside) => (aside[0] === "`" ? (aside.match(/\$\{[^}]*\}/g) ?? []).join() : ""));
  if (bare.includes("**")) throw new SimError(`** in ${Class.name} ${ADVICE}`);
}

// ----------------------------------------------------------------------------------------------- desync reports

/**
 * Where two records of one tick differ first.
 * @param {{state: Uint8Array, acts?: Act[] | null}} one here
 * @param {{state: Uint8Array, acts?: Act[] | null}} other there
 * @returns {{text: string, tick: number, entity: string, field: string, values: Value[], act: object | null} | null} nothing if they are equal
 */
export function firstDifference(one, other) {
  const [left, right] = [decode(one.state), decode(other.state)];
  const found = differing(left, right, []);
  if (!found) return null;
  const [, index, part, ...rest] = found.path;
  const row = found.path[0] === "Entities" ? (left.Entities[index] ?? right.Entities[index]) : undefined;
  const entity = row ? `${row[1]} ${row[0]}` : "driver";
  const steps = !row ? found.path : part === 2 ? rest : [];
  const field = steps.map((step) => (typeof step === "number" ? `[${step}]` : `.${step}`)).join("");
  const values = found.values.map((value) => (value === undefined ? "nothing" : shown(value)));
  const act = one.acts && other.acts ? firstAct(one.acts, other.acts) : null;
  const text = `tick ${left.Tick}: ${entity}${field} is ${values[0]} here and ${values[1]} there${act ? `; ${act.text}` : ""}`;
  return { text, tick: left.Tick, entity, field: field.replace(/^\./, ""), values: found.values, act };
}

function differing(one, other, path) {
  const isTree = (value) => typeof value === "object" && value !== null && !(value instanceof Uint8Array);
  if (isTree(one) && isTree(other) && Array.isArray(one) === Array.isArray(other)) {
    const steps = Array.isArray(one) ? [...Array(Math.max(one.length, other.length)).keys()] : Object.keys({ ...one, ...other });
    for (const step of steps) {
      const found = differing(one[step], other[step], [...path, step]);
      if (found) return found;
    }
    return null;
  }
  return shown(one) === shown(other) ? null : { path, values: [one, other] };
}

function shown(value) {
  return value instanceof Uint8Array ? `h'${hex(value)}'` : JSON.stringify(value);
}

function firstAct(one, other) {
  for (let index = 0; index < Math.max(one.length, other.length); index++) {
    const [here, there] = [one[index], other[index]];
    const content = (act) => act && JSON.stringify([act.what, act.of, act.value]);
    if (content(here) === content(there)) continue;
    const told = (act) => (act ? `${act.what} ${act.of} = ${shown(act.value)} (${act.site})` : "nothing");
    return { index, here, there, text: `act ${index} is ${told(here)} here and ${told(there)} there` };
  }
  return null;
}

const TICK_MS = 50;

/**
 * How many ticks are due. A tick takes 50 ms, and a tenth of that less for each tick that the client is behind beyond
 * `tolerance`. At ten beyond, one is due at every call; for each ten more, one more.
 * @param {number} behind known ticks that are not computed yet
 * @param {number} elapsedMs since the last tick was computed
 * @param {number} [tolerance] how far behind a client may be without catching up
 */
export function framesDue(behind, elapsedMs, tolerance = 4) {
  let length = (TICK_MS * (10 - Math.max(0, behind - tolerance))) / 10;
  if (behind <= 0 || elapsedMs < length) return 0;
  let due = 1;
  for (length += TICK_MS; length < 0; length += TICK_MS) due += 1;
  return Math.min(due, behind);
}

// ---------------------------------------------------------------------------------------- following a stream

const MOST_HASHES = 600;
const HASHES_A_REQUEST = 32;
const CHECKPOINT_TICKS = 20; // all clients tell the hashes of its multiples, however slow they are
const EVENTS_A_REQUEST = 16; // the server takes 20 of a client in a second
const STEPS_AT_ONCE = 100;
const OFFER_TRIES = 10; // each comes a second later after the last one than that did: 45 s in all

/** What a client asks a stream's server, and what an answer does to the driver. Pure: no network and no clock. */
export class StreamFollower {
  #driver;
  #tolerance;
  #events = []; // of ticks to come, in the order of the log
  #waiting = []; // events that the server has not acknowledged
  #first = 0; // the number of the first of them, once the server has said what it has
  #hashes = new Map(); // by tick
  #told = { event: 0, hashes: new Set() }; // the highest number, and the ticks, that were sent on this connection
  #searched = { from: 0, to: 0 }; // the ticks before a desync, of which all that is known is told
  #offer = null; // the record of a tick whose snapshot is offered, how often that was refused, and when it is due
  #waited_ms = 0;

  /**
   * @param {SimDriver} driver
   * @param {{tolerance?: number, offerEvery?: number}} [options] a client that is more ticks behind than `tolerance`
   *   catches up; snapshots of the multiples of `offerEvery` are to be offered, of none if it is 0
   */
  constructor(driver, { tolerance = 4, offerEvery = 0 } = {}) {
    if (!(offerEvery >= 0) || offerEvery % CHECKPOINT_TICKS) throw new SimError(`offerEvery is ${offerEvery}: give a multiple of ${CHECKPOINT_TICKS}, which all clients tell`);
    this.#driver = driver;
    this.#tolerance = tolerance;
    /** At which ticks snapshots are to be offered: its multiples; 0: none. */
    this.offerEvery = offerEvery;
    /** Whether the history that it would need was dropped: it begins from a snapshot. */
    this.beginsAnew = false;
    /** The last tick that the server has told of: the driver is never ahead of it. */
    this.known = 0;
    /** Which life of the stream it follows. @type {string | null} */
    this.incarnation = null;
    /** This client in events, once the server has said it. */
    this.publicId = "";
    /** Whether events wait, because the server takes no more of them just now; the next request then has none. */
    this.holdsEvents = false;
  }

  /** How many known ticks are not computed yet. */
  get behind() {
    return this.known - this.#driver.tick;
  }

  /** How many posted events wait to be acknowledged. */
  get unacknowledged() {
    this.#collect();
    return this.#waiting.length;
  }

  /** Whether there is something to tell that was not told on this connection. */
  get hasNews() {
    this.#collect();
    const hasEvents = !this.holdsEvents && this.#first + this.#waiting.length - 1 > this.#told.event;
    return this.incarnation !== null && (hasEvents || this.#hashes.size > this.#told.hashes.size);
  }

  /** Compute the ticks that are due when `elapsedMs` more have passed. @returns {number} how many these were */
  play(elapsedMs) {
    this.#waited_ms += elapsedMs;
    const due = Math.min(framesDue(this.behind, this.#waited_ms, this.#tolerance), STEPS_AT_ONCE);
    const rest = due > 0 ? Math.max(0, this.#waited_ms - TICK_MS) : this.#waited_ms;
    this.#waited_ms = Math.min(rest, TICK_MS);
    for (let i = 0; i < due; i++) this.#step();
    return due;
  }

  #step() {
    const tick = this.#driver.tick + 1;
    const later = this.#events.findIndex((event) => event.T > tick);
    this.#hashes.set(tick, this.#driver.step(this.#events.splice(0, later < 0 ? this.#events.length : later)));
    if (this.#hashes.size > MOST_HASHES) this.#forgetHash(this.#hashes.keys().next().value);
    if (this.offerEvery === 0 || this.#offer !== null || tick % this.offerEvery !== 0) return;
    // Not all at one time: one of them is enough.
    const from = tick + (Number(this.publicId) % 5 || 0) * CHECKPOINT_TICKS;
    this.#offer = { record: this.#driver.record(tick), tries: 0, from };
  }

  /** The record of which a snapshot is to be offered now. The server has this client's hash of it. @returns {TickRecord | null} */
  offerDue() {
    if (this.#offer === null || this.incarnation === null || this.#driver.tick < this.#offer.from) return null;
    return this.#hashes.has(this.#offer.record.tick) ? null : this.#offer.record;
  }

  /** What became of an offer: it was taken, or refused, perhaps because the votes of others are under way. */
  offered(record, wasTaken) {
    if (this.#offer?.record !== record) return;
    this.#offer.tries += 1;
    this.#offer.from = this.#driver.tick + this.#offer.tries * CHECKPOINT_TICKS;
    if (wasTaken || this.#offer.tries >= OFFER_TRIES) this.#offer = null;
  }

  /**
   * The body of the next request.
   * @param {boolean} anew whether to repeat what was sent and not answered: on a new connection, and in each poll
   */
  request(anew) {
    this.#collect();
    if (anew) this.#told = { event: 0, hashes: new Set() };
    if (this.holdsEvents) this.#told.event = 0;
    if (this.incarnation === null) return {}; // which numbers are taken is in the first answer
    const body = { Incarnation: this.incarnation };
    const events = [];
    let room = MOST_EVENT_BYTES;
    for (const [at, [Type, Body]] of (this.holdsEvents ? [] : this.#waiting).entries()) {
      const Id = this.#first + at;
      if (Id <= this.#told.event) continue;
      room -= eventBytes(Type, Body);
      if (room < 0 || events.length === EVENTS_A_REQUEST) break;
      events.push({ Type, Body, Id });
    }
    if (events.length > 0) body.Events = events;
    const ticks = this.#ticksToTell();
    if (ticks.length > 0) body.Hashes = ticks.map((tick) => [tick, this.#hashes.get(tick)]);
    this.#told.event = events.at(-1)?.Id ?? this.#told.event;
    for (const tick of ticks) this.#told.hashes.add(tick);
    return body;
  }

  /** Of which ticks the next request has the hashes: first of those that all clients tell. */
  #ticksToTell() {
    const weight = (tick) => (this.#isSearched(tick) ? 0 : tick % CHECKPOINT_TICKS === 0 ? 1 : 2);
    const untold = [...this.#hashes.keys()].filter((tick) => !this.#told.hashes.has(tick));
    const first = untold.sort((a, b) => weight(a) - weight(b) || a - b).slice(0, HASHES_A_REQUEST);
    return first.sort((a, b) => a - b);
  }

  /** Whether the server has not yet heard all that is known of the ticks before a desync: it may be of one of these. */
  get isSearching() {
    return [...this.#hashes.keys()].some((tick) => this.#isSearched(tick));
  }

  #isSearched(tick) {
    return this.#searched.from <= tick && tick < this.#searched.to;
  }

  /** Tell all that is known of the ticks before a desync: the server may not have heard of the first one. */
  #search(tick) {
    if (tick === this.#searched.to) return;
    this.#searched = { from: tick - CHECKPOINT_TICKS + 1, to: tick };
    for (let known = Math.max(1, this.#searched.from); known < tick; known++) {
      const hash = this.#driver.record(known)?.hash;
      if (hash) this.#hashes.set(known, hash);
    }
  }

  #forgetHash(tick) {
    this.#hashes.delete(tick);
    this.#told.hashes.delete(tick);
  }

  #forgetHashes() {
    this.#offer = null;
    this.#hashes.clear();
    this.#told.hashes.clear();
    this.#searched = { from: 0, to: 0 };
  }

  #collect() {
    this.#waiting.push(...this.#driver.takeSent(MOST_SENT - this.#waiting.length));
  }

  /**
   * Take an answer to the last request, or what the server sent on the same connection.
   * @returns {"followed" | "reset" | "stale"} `reset`: the history began anew; `stale`: it is of another history than
   *   what was asked for, nothing was taken of it, and the next request is for all of it
   * @throws {SimError} it is not an answer of a stream
   */
  receive(reply) {
    demandReply(reply);
    const isForeign = this.incarnation !== null && reply.Incarnation !== this.incarnation;
    const isReset = reply.Reset === true;
    if (isReset || isForeign || reply.T < this.known) {
      this.#driver.startOver();
      this.#events = [];
      this.#forgetHashes();
      this.#told.event = 0;
      this.known = 0;
      if (isForeign) this.#first = 0; // each life of a stream counts anew, and has had none of what waits
      this.incarnation = null;
      if (!isReset) return "stale";
    }
    this.incarnation = reply.Incarnation;
    this.publicId = reply.ProxyId;
    if (this.#first > 0) this.#waiting.splice(0, Math.max(0, reply.Acked + 1 - this.#first));
    this.#first = Math.max(this.#first, reply.Acked + 1);
    for (const tick of [...this.#told.hashes]) this.#forgetHash(tick);
    if (reply.Desync) this.#search(reply.Desync.T);
    if (this.#offer !== null && reply.Snapshot >= this.#offer.record.tick) this.#offer = null;
    for (const event of reply.Events) if (event.T > this.known) this.#events.push(event);
    this.known = reply.T;
    return isReset ? "reset" : "followed";
  }

  /**
   * Jump to a snapshot that the stream's clients agreed on. One that a single client vouches for, which was alone, is
   * taken only where the history was dropped.
   * @returns {boolean} whether it jumped
   * @throws {SimError} it is none, or of another stream
   */
  jump(snapshot) {
    if (![snapshot?.State, snapshot?.Hash, snapshot?.Incarnation].every((text) => typeof text === "string")) {
      throw new SimError("snapshot: it has not State, Hash and Incarnation; is this address a batonpass stream's?");
    }
    const state = fromBase64(snapshot.State);
    const found = hex(sha256(state));
    if (found !== snapshot.Hash) throw new SimError(`snapshot: its hash is ${found}, not ${snapshot.Hash}; ask for another`);
    const voters = new Set(snapshot.Votes?.map((vote) => vote.ProxyId)).size;
    if (voters === 0) throw new SimError("snapshot: no client vouches for it");
    const isForeign = this.incarnation !== null && snapshot.Incarnation !== this.incarnation;
    if (!this.beginsAnew && isForeign) {
      throw new SimError(`snapshot: it is of the stream ${snapshot.Incarnation}, not of ${this.incarnation}; ask for another`);
    }
    if (!this.beginsAnew && voters === 1) return false;
    this.#driver.load(state);
    if (this.beginsAnew) {
      this.#events = [];
      this.known = 0;
      if (isForeign) this.#first = 0; // as after a reset
    }
    this.beginsAnew = false;
    this.incarnation = snapshot.Incarnation;
    this.known = Math.max(this.known, this.#driver.tick);
    this.#events = this.#events.filter((event) => event.T > this.#driver.tick);
    this.#forgetHashes();
    this.#waited_ms = 0;
    return true;
  }
}

function demandReply(reply) {
  const isText = (value) => typeof value === "string";
  const isCount = (value) => Number.isSafeInteger(value) && value >= 0;
  const isEvent = (event) => isCount(event?.T) && isText(event.Type) && isText(event.Origin) && isText(event.Body);
  const isReply = isCount(reply?.T) && isCount(reply.Acked) && isText(reply.Incarnation) && isText(reply.ProxyId);
  if (isReply && Array.isArray(reply.Events) && reply.Events.every(isEvent)) return;
  throw new SimError("this is no answer of a stream: look whether the address is that of a batonpass server");
}

// ------------------------------------------------------------------------------------------ client of a stream

const POLL_MS = 200;
const POLL_WAIT_S = 20;
const ANSWER_MS = 30_000;
const SILENCE_MS = 5_000;
const HOLD_MS = 1_000;
const OPEN_MS = 3_000;
const FIRST_RETRY_MS = 250;
const LONGEST_RETRY_MS = 8_000;
const LOST_AFTER_MS = 15_000;
const JUMP_AFTER_TICKS = 1200;
const POLLS_BEFORE_WEBSOCKET = 300; // a minute of them
const MAX_SENT_ON = 4; // in a row, without an answer

/** A refusal by the server: `code` is for programs. */
export class StreamRefused extends SimError {
  name = "StreamRefused";

  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

/** Where a stream is: at one of several doors, or where one of them has sent the client on. */
class KnownDoors {
  #urls;
  #stream;
  #at = 0;
  #streamUrl = null;
  #sentOn = 0;

  constructor(servers, stream) {
    this.#urls = [servers].flat().map((url) => new URL(url).href.replace(/\/*$/, "/"));
    if (this.#urls.length === 0) throw new SimError("server: give the address of one door at least");
    this.#stream = encodeURIComponent(stream);
  }

  get count() {
    return this.#urls.length;
  }

  /** Where what these parts of a path name is asked for: they are what comes behind the name of the stream. */
  address(...parts) {
    const streamUrl = this.#streamUrl ?? this.#urls[this.#at] + this.#stream;
    return new URL([streamUrl, ...parts.map(encodeURIComponent)].join("/"));
  }

  /** A door says that the stream is there: it is asked for there from now on. @throws {Error} sent on and on */
  sentOn(url) {
    if (!/^https?:\/\/[^/]/.test(url)) throw new Error(`the door sends this client on to ${url}, which is no address`);
    if (++this.#sentOn > MAX_SENT_ON) throw new Error(`the stream is always elsewhere; ${this.address()} was asked last`);
    this.#streamUrl = url.replace(/\/+$/, "");
    const known = this.#urls.findIndex((door) => this.#streamUrl.startsWith(door));
    if (known >= 0) this.#at = known;
  }

  /** A fetch for these parts of a path was sent on, and answered from `url`. */
  answeredFrom(url, parts) {
    const rest = ["", ...parts.map(encodeURIComponent)].join("/");
    if (url.endsWith(rest)) this.sentOn(url.slice(0, -rest.length));
  }

  answered() {
    this.#sentOn = 0;
  }

  /** The door that was asked does not answer, or cannot: the next one is asked. */
  failed() {
    this.#streamUrl = null;
    this.#sentOn = 0;
    this.#at = (this.#at + 1) % this.#urls.length;
  }
}

/** What asking again does not change. */
const FINAL = ["bad_path", "bad_number", "bad_body", "reserved_type", "body_too_large"];

/**
 * Keeps a driver at a stream: by WebSocket, or by long polls where there is none. It connects again by itself, and goes
 * where the stream goes: a door that does not have it says where it is, and when one does not answer, the next is asked.
 *
 * Call `play(performance.now())` for each picture. A page that is not shown draws none: answers of the server play as well,
 * and a machine that slept catches up, or jumps by a snapshot when it is more than `jumpAfter` ticks behind.
 */
export class StreamClient extends EventTarget {
  #options;
  #doors;
  #follower;
  #driver;
  #isStopped = false;
  #socket = null;
  #stop = new AbortController();
  #playedAt = null;
  #isFetching = false;
  #lookedAt = 0; // the tick of the last snapshot that it was given, and perhaps did not take
  #isOffering = false;
  #sign;
  #dumped = new Set();
  #failures = 0;
  #toldAt = 0;
  #heardAt = performance.now();

  /**
   * @param {object} options
   * @param {string | URL | (string | URL)[]} options.server the address under which streams are, as `http://host:9922/`,
   *   or those of several doors that know the stream
   * @param {string} options.stream its name
   * @param {string} options.privateId this client's own secret name
   * @param {SimDriver} options.driver the game
   * @param {number} [options.tolerance] a client that is more ticks behind catches up
   * @param {number} [options.jumpAfter] behind by more ticks than this, it jumps by a snapshot
   * @param {number} [options.offerEvery] at the multiples of this, which is one of 20, it offers snapshots to the stream,
   *   where it can sign them; 0: never
   * @param {boolean} [options.useWebSocket] false: polls only
   * @param {boolean} [options.early] whether events come as `early` before their tick is over, over a WebSocket
   */
  constructor(options) {
    super();
    this.#options = { tolerance: 4, jumpAfter: JUMP_AFTER_TICKS, offerEvery: JUMP_AFTER_TICKS, useWebSocket: true, ...options };
    this.#doors = new KnownDoors(options.server, options.stream);
    this.#driver = options.driver;
    const { tolerance, offerEvery } = this.#options;
    this.#follower = new StreamFollower(options.driver, { tolerance, offerEvery });
    /** @type {"connecting" | "websocket" | "polling" | "lost" | "refused" | "failed" | "stopped"} */
    this.state = "connecting";
    /** What went wrong last. @type {Error | null} */
    this.error = null;
    /** The first tick at which clients had different states, as the server told. @type {{T: number, Hashes: object} | null} */
    this.desync = null;
  }

  /** This client's name in events. */
  get publicId() {
    return this.#follower.publicId;
  }

  /** The last tick that the server has told of. */
  get known() {
    return this.#follower.known;
  }

  /** How many ticks the game is behind the stream. */
  get behind() {
    return this.#follower.behind;
  }

  /** Follow the stream until `stop`. Dispatches `state` when `state` changes and `tick` after each played one. */
  async start() {
    let mayUseWebSocket = this.#options.useWebSocket;
    let polls = 0;
    while (!this.#isStopped) {
      try {
        if (this.#follower.incarnation === null || this.#follower.beginsAnew) await this.#fetchSnapshot();
        if (mayUseWebSocket) {
          polls = 0;
          mayUseWebSocket = await this.#talk();
        } else {
          await this.#poll();
          polls += 1;
          mayUseWebSocket = this.#options.useWebSocket && polls >= POLLS_BEFORE_WEBSOCKET;
        }
      } catch (error) {
        if (this.#isStopped) break;
        // A door that does not answer at all says nothing of WebSockets.
        if (!(error instanceof StreamRefused)) mayUseWebSocket = this.#options.useWebSocket;
        if (!(await this.#recovers(error))) return;
      }
    }
  }

  /** More events than the server takes of a client in a second wait for a second; nothing else does. */
  #holdOrThrow(error) {
    if (error.code !== "too_many_events") throw error;
    this.#follower.holdsEvents = true;
    setTimeout(() => (this.#follower.holdsEvents = false), HOLD_MS);
  }

  /** Whether to go on after an error; waits before that, longer each time. */
  async #recovers(error) {
    this.error = error;
    if (error instanceof StreamRefused && error.code === "history_dropped") {
      this.#follower.beginsAnew = true; // the snapshot is fetched next
    } else if (error instanceof StreamRefused && FINAL.includes(error.code)) {
      this.#become("refused");
      return false;
    } else if (error instanceof SimError && !(error instanceof StreamRefused)) {
      this.#become("failed");
      return false;
    }
    if (!(error instanceof StreamRefused) || error.code === "unavailable") this.#doors.failed();
    const isLost = performance.now() - this.#heardAt > LOST_AFTER_MS;
    this.#become(isLost ? "lost" : "connecting");
    const rounds = Math.floor(this.#failures++ / this.#doors.count);
    const longest = Math.min(LONGEST_RETRY_MS, FIRST_RETRY_MS * 2 ** rounds);
    await this.#sleep(longest * (0.5 + Math.random() / 2));
    return !this.#isStopped;
  }

  /** Leave the stream. */
  stop() {
    if (this.#isStopped) return;
    this.#isStopped = true;
    this.#socket?.close();
    this.#stop.abort();
    fetch(this.#doors.address(this.#options.privateId), { method: "DELETE", keepalive: true }).catch(() => {});
    this.#become("stopped");
  }

  /** Post an event. */
  sendEvent(type, body = "") {
    this.#driver.sendEvent(type, body);
    this.#tell(performance.now());
  }

  /** Compute the ticks that are due. @param {number} now_ms of `performance.now()` */
  play(now_ms) {
    const elapsed_ms = this.#playedAt === null ? 0 : Math.max(0, now_ms - this.#playedAt);
    this.#playedAt = now_ms;
    if (this.state === "failed" || this.state === "refused") return;
    try {
      if (this.#follower.play(elapsed_ms) > 0) this.dispatchEvent(new Event("tick"));
    } catch (error) {
      this.#fail(error);
    }
  }

  #fail(error) {
    this.error = error;
    this.#isStopped = true;
    this.#become("failed");
    this.#socket?.close();
    this.#stop.abort();
  }

  #become(state) {
    if (this.state === state) return;
    this.state = state;
    this.dispatchEvent(new Event("state"));
  }

  #sleep(ms) {
    const { signal } = this.#stop;
    return new Promise((resolve) => {
      const done = () => {
        clearTimeout(timer);
        signal.removeEventListener("abort", done);
        resolve();
      };
      const timer = setTimeout(done, ms);
      signal.addEventListener("abort", done);
    });
  }

  /** Ask for what is under `parts` of a path, behind the stream's name. */
  async #ask(parts, options = {}) {
    const signal = AbortSignal.any([this.#stop.signal, AbortSignal.timeout(ANSWER_MS)]);
    const answer = await fetch(this.#doors.address(...parts), { ...options, signal });
    if (answer.redirected) this.#doors.answeredFrom(answer.url, parts);
    if (!answer.ok) throw await refusal(answer);
    return answer.json();
  }

  async #poll() {
    const began = performance.now();
    const body = { ...this.#follower.request(true), Wait: POLL_WAIT_S };
    try {
      const reply = await this.#ask([this.#options.privateId, this.#follower.known], { method: "POST", body: JSON.stringify(body) });
      this.#become("polling");
      this.#take(reply);
    } catch (error) {
      this.#holdOrThrow(error);
    }
    await this.#sleep(Math.max(0, POLL_MS - (performance.now() - began)));
  }

  /** Talk over a WebSocket until it ends. @returns {Promise<boolean>} whether there are WebSockets here at all */
  async #talk() {
    const address = this.#doors.address(this.#options.privateId, this.#follower.known);
    address.protocol = address.protocol.replace("http", "ws");
    const socket = new WebSocket(address);
    this.#socket = socket;
    let hasAnswered = false;
    try {
      await new Promise((resolve, reject) => {
        let silence;
        const wait = (ms) => {
          clearTimeout(silence);
          silence = setTimeout(() => reject(new Error(`the server was silent for ${ms} ms`)), ms);
        };
        wait(OPEN_MS);
        const early = this.#options.early ? { Early: true } : {};
        socket.onopen = () => socket.send(JSON.stringify({ ...this.#follower.request(true), ...early }));
        socket.onclose = () => (clearTimeout(silence), reject(new Error("the WebSocket was closed")));
        socket.onmessage = ({ data }) => {
          wait(SILENCE_MS);
          try {
            const reply = JSON.parse(data);
            hasAnswered = true;
            if (Array.isArray(reply.Early)) {
              for (const { Type, Origin, Body } of reply.Early) {
                this.dispatchEvent(new CustomEvent("early", { detail: { type: Type, origin: Origin, body: Body } }));
              }
              return;
            }
            if (reply.code === "elsewhere") {
              clearTimeout(silence);
              this.#doors.sentOn(reply.url);
              resolve();
              return;
            }
            if (typeof reply.code === "string") {
              this.#holdOrThrow(new StreamRefused(0, reply.code, reply.message));
              return;
            }
            this.#become("websocket");
            if (this.#take(reply) === "stale") resolve();
            else if (performance.now() - this.#toldAt >= POLL_MS) this.#tell(performance.now());
          } catch (error) {
            clearTimeout(silence);
            reject(error);
          }
        };
      });
    } catch (error) {
      if (hasAnswered || error instanceof SimError) throw error;
      return false;
    } finally {
      socket.onmessage = socket.onclose = null;
      socket.close();
      this.#socket = null;
    }
    return true;
  }

  /** Send what there is to tell, if there is a WebSocket; a poll takes it along otherwise. */
  #tell(now_ms) {
    if (this.#socket?.readyState !== 1 || this.state !== "websocket" || !this.#follower.hasNews) return;
    this.#toldAt = now_ms;
    this.#socket.send(JSON.stringify(this.#follower.request(false)));
  }

  #take(reply) {
    const outcome = this.#follower.receive(reply);
    this.#heardAt = performance.now();
    this.#failures = 0;
    this.#doors.answered();
    this.error = null;
    if (reply.Desync) this.#report(reply.Desync);
    if (outcome !== "followed") this.#lookedAt = 0;
    const canJump = Number.isSafeInteger(reply.Snapshot) && reply.Snapshot > Math.max(this.#driver.tick, this.#lookedAt);
    if (canJump && this.behind > this.#options.jumpAfter) this.#fetchSnapshot().catch((error) => (this.error = error));
    this.play(performance.now());
    this.#offerSnapshot();
    return outcome;
  }

  /** Offer the stream a snapshot when one is due, so that who comes late need not compute all ticks. */
  async #offerSnapshot() {
    const { incarnation } = this.#follower;
    const record = this.#follower.offerDue();
    if (record === null || this.#isOffering) return;
    this.#isOffering = true;
    try {
      this.#sign ??= await newSigner();
      const signed = await this.#sign(`batonpass snapshot\n${incarnation}\n${record.tick}\n${record.hash}`);
      const offer = { Incarnation: incarnation, State: toBase64(record.state), Hash: record.hash, ...signed };
      await this.#ask([this.#options.privateId, "snapshot", record.tick], { method: "PUT", body: JSON.stringify(offer) });
      this.#follower.offered(record, true);
    } catch (error) {
      if (!this.#sign) this.#follower.offerEvery = 0;
      this.#follower.offered(record, !this.#sign);
    } finally {
      this.#isOffering = false;
    }
  }

  /** Jump by the trusted snapshot, if there is one. */
  async #fetchSnapshot() {
    if (this.#isFetching) return;
    this.#isFetching = true;
    try {
      const snapshot = await this.#ask(["snapshot"]);
      this.#lookedAt = snapshot?.T ?? 0;
      this.#follower.jump(snapshot);
    } catch (error) {
      if (!(error instanceof StreamRefused && error.status === 404)) throw error;
    } finally {
      this.#isFetching = false;
    }
  }

  /** Show the server this client's state of the first tick at which clients differ, once. */
  #report(desync) {
    if (this.desync?.T !== desync.T) {
      this.desync = desync;
      this.dispatchEvent(new Event("desync"));
    }
    const name = `${this.#follower.incarnation} ${desync.T}`;
    // In its turn: what is told of the ticks before may show that the desync is of one of these.
    if (this.#dumped.has(name) || this.#dumped.size > 10 || this.#follower.isSearching) return;
    const body = this.#driver.dump(desync.T);
    if (!body) return;
    this.#dumped.add(name);
    this.#ask([this.#options.privateId, "desync", desync.T], { method: "PUT", body }).catch((error) => (this.error = error));
  }
}

/** Makes a key, and a function that signs a text with it (Ed25519). @throws where there is none, as in pages without https */
async function newSigner() {
  const { publicKey, privateKey } = await crypto.subtle.generateKey("Ed25519", false, ["sign", "verify"]);
  const Key = toBase64(new Uint8Array(await crypto.subtle.exportKey("raw", publicKey)));
  return async (text) => {
    const signature = await crypto.subtle.sign("Ed25519", privateKey, new TextEncoder().encode(text));
    return { Key, Signature: toBase64(new Uint8Array(signature)) };
  };
}

async function refusal(answer) {
  const { code, message } = await answer.json().catch(() => ({}));
  if (answer.status >= 500) return new Error(message ?? `the server answered ${answer.status}`);
  return new StreamRefused(answer.status, code ?? "", message ?? `the server answered ${answer.status}`);
}
