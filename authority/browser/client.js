// A client of an instance for browsers (docs/reference/players-door.md, docs/reference/browser-client.md): one file, no build step, no
// dependencies, nothing else that is loaded. It watches entities and steers those that its player owns, wherever they are simulated.
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
//
// Below is a client of one door, for pages that know its address (docs/reference/players-door.md):
//
//   const door = new Door("ws://127.0.0.1:7300", { player, keys });   // without both: an observer
//   const stop = door.watch({ pattern: "alpha.ball-*", rate_hz: 10 }, (entity) => …, (name) => …);
//   door.send({ type: "input", … });
//   door.close();
//
// A connection that ends is opened anew by itself, and what is watched is asked for again. `door.onstate` hears
// "open", "closed" and a code with which the door refused.

const SUBPROTOCOL = "batonpass.door.1";
// With 2 a door leads to homeservers, too; with 3 it goes on from what it showed by an earlier connection.
const HOME_SINCE = 2;
const HAVE_SINCE = 3;
const VERSION = 3;
const FRAME = 1;
// What a topic showed is kept at the last frame whose number is a multiple of this.
const BASE_EVERY = 32;
const MAX_HAVE = 256;
const MAX_HELD_TOPICS = 1024;
const FIRST_RETRY_MS = 100;
const MAX_RETRY_MS = 3000;
const NO_HOME_MS = 10000;
const CONNECT_MS = 5000;
const PROOF_LIFETIME_S = 60;
const MAX_LEVELS = 400;
const NAME = /^[a-z][a-z0-9-]{0,15}\.[A-Za-z0-9][A-Za-z0-9_-]{0,63}$/;
const MAX_PATTERN_CHARS = 128;
const MAX_RATE_HZ = 1000;
const MAX_RADIUS = 1e9;

/** A door does not show what is asked for, or an input was not applied; `code` is stable. */
export class Refused extends Error {
  constructor(code, sentence) {
    super(`${code}: ${sentence}`);
    this.code = code;
    /** For people, without the code. */
    this.sentence = sentence;
  }
}

/** Throws `Refused`, `bad_subscription`, for what no door takes to be watched: a door would end the connection for it. */
export function checkWatched({ entity = "", owner = "", pattern = "", area = null, rate_hz = 1000 }) {
  const check = (isGood, sentence) => {
    if (!isGood) throw new Refused("bad_subscription", sentence);
  };
  const isOne = [entity, owner, pattern, area].filter((wanted) => wanted !== "" && wanted !== null).length === 1;
  check(isOne, "watch one of: entity, owner, pattern, an area (centre or around, and radius)");
  const { centre = null, around = "", radius = null } = area ?? {};
  for (const [argument, name] of Object.entries({ entity, owner, around })) {
    check(name === "" || NAME.test(name), `${argument} is a name like alpha.robot-1, not ${name}`);
  }
  const isPattern = typeof pattern === "string" && [...pattern].length <= MAX_PATTERN_CHARS;
  check(isPattern, `pattern is a text of at most ${MAX_PATTERN_CHARS} characters`);
  const isRate = typeof rate_hz === "number" && rate_hz > 0 && rate_hz <= MAX_RATE_HZ;
  check(isRate, `rateHz is above 0 and at most ${MAX_RATE_HZ}, not ${rate_hz}`);
  if (area === null) return;
  check((centre === null) !== (around === ""), "an area has a centre, or an entity around which it is: one of the two");
  const isRadius = typeof radius === "number" && radius >= 0 && radius <= MAX_RADIUS;
  check(radius !== null, "an area has a radius: how far it reaches from its middle, in each direction");
  check(isRadius, `radius is from 0 to ${MAX_RADIUS}, not ${radius}`);
  if (centre === null) return;
  const isCentre = Array.isArray(centre) && centre.length >= 1 && centre.length <= 3 && centre.every(Number.isFinite);
  check(isCentre, `centre is one to three finite numbers, as the world's positions are, not ${centre}`);
}

// --- CBOR (RFC 8949) --------------------------------------------------------------------------------------------------

/** The value of these bytes; throws unless they are one whole value. Maps whose keys are texts are objects, others `Map`s. */
export function decode(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  let at = 0;
  const texts = new TextDecoder("utf-8", { fatal: true });

  function take(count) {
    if (at + count > bytes.length) throw new Error("CBOR that ends too early");
    at += count;
    return at - count;
  }

  function argument(info) {
    if (info < 24) return info;
    if (info === 24) return view.getUint8(take(1));
    if (info === 25) return view.getUint16(take(2));
    if (info === 26) return view.getUint32(take(4));
    if (info !== 27) throw new Error("CBOR of no length that is known");
    const large = view.getBigUint64(take(8));
    return large <= BigInt(Number.MAX_SAFE_INTEGER) ? Number(large) : large;
  }

  function length(info) {
    const count = argument(info);
    if (typeof count !== "number" || count > bytes.length - at) throw new Error("CBOR that ends too early");
    return count;
  }

  function item(levels) {
    if (levels > MAX_LEVELS) throw new Error("CBOR that is nested too deep");
    const head = view.getUint8(take(1));
    const info = head & 31;
    switch (head >> 5) {
      case 0:
        return argument(info);
      case 1: {
        const number = argument(info);
        return typeof number === "bigint" ? -1n - number : -1 - number;
      }
      case 2: {
        const count = length(info);
        const from = take(count);
        return bytes.slice(from, from + count);
      }
      case 3: {
        const count = length(info);
        const from = take(count);
        return texts.decode(bytes.subarray(from, from + count));
      }
      case 4: {
        const members = [];
        for (let left = length(info); left > 0; left -= 1) members.push(item(levels + 1));
        return members;
      }
      case 5:
        return map(length(info), levels + 1);
      case 6:
        return tagged(argument(info), item(levels + 1));
      default:
        return simple(info);
    }
  }

  function map(count, levels) {
    const pairs = [];
    for (let left = count; left > 0; left -= 1) pairs.push([item(levels), item(levels)]);
    if (!pairs.every(([key]) => typeof key === "string")) return new Map(pairs);
    // Not `Object.fromEntries` of a plain object: "__proto__" is a key as any other.
    const made = Object.create(null);
    for (const [key, value] of pairs) made[key] = value;
    return made;
  }

  function tagged(tag, value) {
    if ((tag !== 2 && tag !== 3) || !(value instanceof Uint8Array)) return value;
    const number = BigInt(`0x${hex(value) || "0"}`);
    return tag === 2 ? number : -1n - number;
  }

  function simple(info) {
    switch (info) {
      case 20:
        return false;
      case 21:
        return true;
      case 22:
        return null;
      case 23:
        return undefined;
      case 25:
        return half(view.getUint16(take(2)));
      case 26:
        return view.getFloat32(take(4));
      case 27:
        return view.getFloat64(take(8));
      default:
        throw new Error("CBOR of an unknown simple value");
    }
  }

  const value = item(0);
  if (at !== bytes.length) throw new Error("bytes after CBOR");
  return value;
}

function half(bits) {
  const sign = bits >> 15 ? -1 : 1;
  const exponent = (bits >> 10) & 31;
  const fraction = bits & 1023;
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return exponent ? sign * 2 ** (exponent - 25) * (1024 + fraction) : sign * 2 ** -24 * fraction;
}

/** The bytes of a value of null, booleans, numbers, texts, bytes, arrays and objects. */
export function encode(value) {
  const out = [];

  function head(major, count) {
    if (count < 24) out.push((major << 5) | count);
    else if (count < 256) out.push((major << 5) | 24, count);
    else if (count < 65536) out.push((major << 5) | 25, count >> 8, count & 255);
    else if (count < 2 ** 32) out.push((major << 5) | 26, ...big(count, 4));
    else out.push((major << 5) | 27, ...big(count, 8));
  }

  function big(count, size) {
    const view = new DataView(new ArrayBuffer(8));
    view.setBigUint64(0, BigInt(count));
    return new Uint8Array(view.buffer).subarray(8 - size);
  }

  function put(one) {
    if (one === null || one === undefined) out.push(0xf6);
    else if (typeof one === "boolean") out.push(one ? 0xf5 : 0xf4);
    else if (typeof one === "number" && Number.isSafeInteger(one) && !Object.is(one, -0)) {
      if (one < 0) head(1, -1 - one);
      else head(0, one);
    } else if (typeof one === "number") {
      const view = new DataView(new ArrayBuffer(8));
      view.setFloat64(0, one);
      out.push(0xfb, ...new Uint8Array(view.buffer));
    } else if (typeof one === "string") {
      const bytes = new TextEncoder().encode(one);
      head(3, bytes.length);
      out.push(...bytes);
    } else if (one instanceof Uint8Array) {
      head(2, one.length);
      out.push(...one);
    } else if (Array.isArray(one)) {
      head(4, one.length);
      one.forEach(put);
    } else {
      const keys = Object.keys(one);
      head(5, keys.length);
      for (const key of keys) {
        put(key);
        put(one[key]);
      }
    }
  }

  put(value);
  return new Uint8Array(out);
}

function hex(bytes) {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

// --- what is shown ----------------------------------------------------------------------------------------------------

/** The value after a patch; `value` stays as it is. Throws for a patch that is none of this value. */
export function patched(value, patch) {
  if (Array.isArray(patch) && patch.length === 1) return patch[0];
  if (Array.isArray(value) && isMap(patch)) {
    const items = value.slice();
    for (const [index, part] of entries(patch)) {
      if (!Number.isInteger(index) || index < 0 || index >= items.length) throw new Error("a patch of no place");
      items[index] = patched(items[index], part);
    }
    return items;
  }
  if (isMap(value) && isMap(patch)) {
    const members = new Map(entries(value));
    for (const [key, part] of entries(patch)) {
      if (Array.isArray(part) && part.length === 0 && members.has(key)) members.delete(key);
      else if (members.has(key) || (Array.isArray(part) && part.length === 1)) members.set(key, patched(members.get(key), part));
      else throw new Error("a patch of no member");
    }
    if (value instanceof Map) return members;
    const made = Object.create(null);
    for (const [key, member] of members) made[key] = member;
    return made;
  }
  throw new Error("no patch of this value");
}

function isMap(value) {
  return typeof value === "object" && value !== null && !Array.isArray(value) && !(value instanceof Uint8Array);
}

function entries(map) {
  return map instanceof Map ? [...map.entries()] : Object.entries(map);
}

/** Number, ticks and patch of each entity in `deltas`: ticks, shape and a flat row for those that changed alike. */
function* unfolded(deltas) {
  if (deltas.length % 3 !== 0) throw new Error("changes have three members each");
  for (let at = 0; at < deltas.length; at += 3) {
    const [ticks, shape, row] = deltas.slice(at, at + 3);
    const members = 1 + leaves(shape);
    if (!Array.isArray(row) || row.length % members !== 0) throw new Error("changes of a shape have as many values each");
    for (let from = 0; from < row.length; from += members) {
      yield [row[from], ticks, filled(shape, row.slice(from + 1, from + members).values())];
    }
  }
}

/** How many values a patch of this shape has: a patch with 0 in place of each `[value]`. */
function leaves(shape) {
  if (shape === 0) return 1;
  if (Array.isArray(shape) && shape.length === 0) return 0;
  if (!isMap(shape)) throw new Error("no shape of a patch");
  return entries(shape).reduce((count, [, part]) => count + leaves(part), 0);
}

function filled(shape, values) {
  if (shape === 0) return [values.next().value];
  return Array.isArray(shape) ? shape : new Map(entries(shape).map(([key, part]) => [key, filled(part, values)]));
}

/**
 * What one door shows by one connection: frames in, entities by name out. What is held of topics by an earlier connection
 * is shown only once a frame continues it.
 */
export class Mirror {
  constructor(held = new Map()) {
    /** By topic, what it showed with the last frame, and with the last base. */
    this.heldTopics = held;
    this.bases = new Map();
    this.topics = new Map();
    this.frames = new Map();
    this.entities = new Map();
    this.shownBy = new Map();
  }

  /** The mirror of the next connection to the same run of the same server. */
  successor() {
    if (this.topics.size === 0) return new Mirror(new Map(this.heldTopics));
    const held = [...this.topics].slice(0, MAX_HELD_TOPICS).map(([topic, here]) => {
      const [base, atBase] = this.bases.get(topic) ?? [0, new Map()];
      return [topic, { frame: this.frames.get(topic), here, base, atBase }];
    });
    return new Mirror(new Map(held));
  }

  /** What is held, as the door is told it: topic, last frame, last base. */
  get held() {
    return [...this.heldTopics].map(([topic, { frame, base }]) => [topic, frame, base]);
  }

  /** Take a frame: the entities that changed, and the names of those that its topic shows no more. */
  take(frame) {
    const [kind, topic, base, number, round, deltas, fulls, gone] = frame;
    if (kind !== FRAME || !Array.isArray(deltas) || !Array.isArray(fulls) || !Array.isArray(gone)) {
      throw new Error("no frame of states");
    }
    const before = this.topics.get(topic) ?? new Map();
    const known = this.frames.get(topic) ?? 0;
    const held = base === 0 ? undefined : this.heldTopics.get(topic);
    this.heldTopics.delete(topic);
    // Two subscriptions that share a topic are each told: what is known is passed over, and of what one of them missed,
    // which comes in full, the other may have a part.
    if (!held && base !== 0 && number <= known) return { changed: [], left: [] };
    if (!held && (base > known || (base !== 0 && base < known && deltas.length))) {
      throw new Error("a frame that follows another one than is known");
    }
    const here = held ? continued(held, base) : base === 0 ? new Map() : before;
    let changed = [];
    for (const [id, ticks, patch] of unfolded(deltas)) {
      const shown = here.get(id);
      if (shown === undefined) throw new Error("a change of an entity that was not shown");
      const entity = { ...shown, tick: shown.tick + ticks, round, state: patched(shown.state, patch) };
      here.set(id, entity);
      changed.push(entity);
    }
    for (const [id, name, sort, epoch, sub, tick, owner, state] of fulls) {
      const entity = { name, kind: sort, epoch, sub, tick, owner, state, round };
      here.set(id, entity);
      changed.push(entity);
    }
    const left = base === 0 ? [...before].filter(([id]) => !here.has(id)).map(([, entity]) => entity.name) : [];
    for (const id of gone) {
      if (here.has(id)) left.push(here.get(id).name);
      here.delete(id);
    }
    if (held) {
      // All of it is shown again.
      for (const [id, entity] of here) here.set(id, { ...entity, round });
      changed = [...here.values()];
    }
    this.topics.set(topic, here);
    this.frames.set(topic, number);
    if (number % BASE_EVERY === 0) this.bases.set(topic, [number, new Map(here)]);
    for (const name of left) this.shownBy.get(name)?.delete(topic);
    for (const entity of changed) {
      this.entities.set(entity.name, entity);
      if (!this.shownBy.has(entity.name)) this.shownBy.set(entity.name, new Set());
      this.shownBy.get(entity.name).add(topic);
    }
    this.#forget(left);
    return { changed, left };
  }

  /** A topic is not watched any more: the names of the entities that it showed. */
  close(topic) {
    const left = [...(this.topics.get(topic) ?? new Map()).values()].map((entity) => entity.name);
    for (const known of [this.topics, this.frames, this.bases, this.heldTopics]) known.delete(topic);
    for (const name of left) this.shownBy.get(name)?.delete(topic);
    this.#forget(left);
    return left;
  }

  /** Whether one of these topics shows an entity. */
  isShown(name, topics) {
    return topics.some((topic) => this.shownBy.get(name)?.has(topic) ?? false);
  }

  #forget(names) {
    for (const name of names) {
      if (this.shownBy.get(name)?.size) continue;
      this.shownBy.delete(name);
      this.entities.delete(name);
    }
  }
}

/** What was shown with the frame that is continued. */
function continued({ frame, here, base, atBase }, from) {
  if (from === frame) return new Map(here);
  if (from === base) return new Map(atBase);
  throw new Error("a frame that follows another one than is known");
}

// --- when it was ------------------------------------------------------------------------------------------------------

const CLOCK_SAMPLES = 64;

/** When the rounds of a server's ticks are, by a clock of this page: what came quickest of late was delayed least. */
export class TickClock {
  constructor(tickHz = 20) {
    this.periodMs = 1000 / tickHz;
    this.heardLately = [];
  }

  /** A frame of this round came now. */
  heard(round, nowMs) {
    this.heardLately.push(nowMs - round * this.periodMs);
    if (this.heardLately.length > CLOCK_SAMPLES) this.heardLately.shift();
  }

  /** When a round was, in milliseconds; NaN as long as nothing was heard. */
  timeOf(round) {
    return this.heardLately.length ? Math.min(...this.heardLately) + round * this.periodMs : NaN;
  }

  /** In which round the server is, with its fraction. */
  roundAt(nowMs) {
    return (nowMs - this.timeOf(0)) / this.periodMs;
  }

  /** By how much the latest frame of late was later than the quickest. */
  get latenessMs() {
    return this.heardLately.length ? Math.max(...this.heardLately) - Math.min(...this.heardLately) : 0;
  }
}

// --- who a player is --------------------------------------------------------------------------------------------------

/** New keys of a player: their private halves cannot be read by anybody, also not by this page. */
export async function makeKeys() {
  const signing = await crypto.subtle.generateKey({ name: "ECDSA", namedCurve: "P-256" }, false, ["sign", "verify"]);
  const agreement = await crypto.subtle.generateKey({ name: "ECDH", namedCurve: "P-256" }, false, ["deriveBits"]);
  const [sig, enc] = await Promise.all([publicJwk(signing, "sig"), publicJwk(agreement, "enc")]);
  return { signing, agreement, kid: sig.kid, jwks: [sig, enc] };
}

const KEYS_STORE = "keys";

/**
 * The keys of a player that this browser keeps (IndexedDB, of this page's origin), made anew if it has none. They can
 * be used here and copied nowhere; who clears the site's data has lost them.
 */
export async function loadKeys(player) {
  const store = await openStore();
  try {
    const found = await asPromise(store.transaction(KEYS_STORE).objectStore(KEYS_STORE).get(player));
    if (found) return found;
    const made = await makeKeys();
    const change = store.transaction(KEYS_STORE, "readwrite").objectStore(KEYS_STORE);
    // Another tab may have made some meanwhile: the first ones stay.
    const other = await asPromise(change.get(player));
    if (!other) await asPromise(change.put(made, player));
    return other ?? made;
  } finally {
    store.close();
  }
}

function openStore() {
  const request = indexedDB.open("batonpass", 1);
  request.onupgradeneeded = () => request.result.createObjectStore(KEYS_STORE);
  return asPromise(request);
}

function asPromise(request) {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

async function publicJwk(pair, use) {
  const { kty, crv, x, y } = await crypto.subtle.exportKey("jwk", pair.publicKey);
  // RFC 7638: the members in the order of their names, and no spaces.
  const canonical = new TextEncoder().encode(JSON.stringify({ crv, kty, x, y }));
  const kid = base64url(new Uint8Array(await crypto.subtle.digest("SHA-256", canonical)));
  return { kty, crv, x, y, use, kid };
}

function base64url(bytes) {
  let text = "";
  for (const byte of bytes) text += String.fromCharCode(byte);
  return btoa(text).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}

/** A signed statement (compact JWS, ES256) of a player, as the door and homeservers take it. */
export async function sign(statement, player, keys) {
  const header = { alg: "ES256", typ: "batonpass-statement", kid: keys.kid, iss: player };
  const part = (value) => base64url(new TextEncoder().encode(JSON.stringify(value)));
  const text = `${part(header)}.${part(statement)}`;
  const algorithm = { name: "ECDSA", hash: "SHA-256" };
  const signature = await crypto.subtle.sign(algorithm, keys.signing.privateKey, new TextEncoder().encode(text));
  return `${text}.${base64url(new Uint8Array(signature))}`;
}

// --- the connection ---------------------------------------------------------------------------------------------------

/** What a client says first: a session, or a signature of the challenge; nothing of an observer. */
export async function helloOf({ server, challenge, versions }, player, keys, session) {
  const version = versionFor(versions);
  if (!player) return { type: "hello", version };
  if (session?.length) return { type: "hello", version, player, token: session };
  return { type: "hello", version, player, proof: await proofOf(server, challenge, player, keys) };
}

/** The newest version that both ends speak; the newest of this end, if there is none: the door says that it is not. */
function versionFor(versions = [VERSION]) {
  const known = versions.filter((each) => each <= VERSION);
  return known.length ? Math.max(...known) : VERSION;
}

/** The signature of a challenge. */
export function proofOf(server, challenge, player, keys) {
  const expires_at_s = Math.floor(Date.now() / 1000) + PROOF_LIFETIME_S;
  return sign({ action: "enter", server, challenge: hex(challenge), expires_at_s }, player, keys);
}

/**
 * A connection that is opened anew whenever it ends, until `close`.
 *
 * `find` says where to, anew each time: a URL, or a `Door` that leads home (`openHome`). `hello` answers the challenge. `onopen` hears the welcome, `onmessage` what
 * comes then, and `onclosed` the code with which the other end refused, or "closed", and whether it was open.
 */
export class Connection {
  constructor({ subprotocol, find, hello, onopen, onmessage, onclosed }) {
    Object.assign(this, { subprotocol, find, hello, onopen, onmessage, onclosed });
    this.isOpen = false;
    this.isClosed = false;
    this.socket = null;
    /** What `find` said last. */
    this.place = "";
    this.retryMs = FIRST_RETRY_MS;
    this.#connect();
  }

  /** Send a message, if it is open; whether it is. */
  send(message) {
    if (this.isOpen) this.socket.send(encode(message));
    return this.isOpen;
  }

  close() {
    this.isClosed = true;
    this.isOpen = false;
    this.socket?.close();
  }

  /** End it without a word, as networks do; it is opened anew. */
  breakOff() {
    if (this.socket) this.#break(this.socket);
  }

  async #connect() {
    let url = "";
    try {
      url = await this.find();
    } catch {
      // Who knows where it is cannot be asked now.
    }
    if (this.isClosed) return;
    if (!url) {
      this.#lost("unknown_place");
      return;
    }
    this.place = url;
    const isUrl = typeof url === "string";
    const socket = isUrl ? new WebSocket(url.replace(/^http/, "ws"), this.subprotocol) : url.openHome();
    this.socket = socket;
    socket.binaryType = "arraybuffer";
    // What does not open, or says nothing at first, is tried anew: a host that is gone does not refuse.
    const patience = setTimeout(() => this.isOpen || this.#break(socket), CONNECT_MS);
    socket.onmessage = async ({ data }) => {
      try {
        await this.#take(socket, decode(new Uint8Array(data)));
      } catch (error) {
        console.error("the other end says what makes no sense:", error);
        this.#break(socket);
      }
    };
    socket.onclose = ({ reason }) => {
      clearTimeout(patience);
      if (socket === this.socket) this.#lost(reason);
    };
  }

  /** End a connection now, without waiting for the other end to agree. */
  #break(socket) {
    if (socket !== this.socket) return;
    socket.onclose = null;
    socket.onmessage = null;
    socket.close();
    this.#lost("");
  }

  #lost(reason) {
    const wasOpen = this.isOpen;
    this.isOpen = false;
    this.socket = null;
    if (wasOpen) this.retryMs = FIRST_RETRY_MS;
    this.onclosed(reason || "closed", wasOpen);
    if (this.isClosed) return;
    setTimeout(() => this.isClosed || this.#connect(), this.retryMs);
    this.retryMs = Math.min(2 * this.retryMs, MAX_RETRY_MS);
  }

  async #take(socket, message) {
    if (this.isOpen) {
      this.onmessage(message);
    } else if (message.type === "challenge") {
      const hello = await this.hello(message);
      if (socket === this.socket) socket.send(encode(hello));
    } else if (message.type === "welcome") {
      this.isOpen = true;
      this.onopen(message);
    } else {
      this.onmessage(message);
    }
  }
}

/** A conversation with a homeserver over a door that is open, used as a WebSocket of its own. */
class HomeChannel {
  constructor(say) {
    this.say = say;
    this.hasBegun = false;
    this.isOver = false;
    this.onmessage = null;
    this.onclose = null;
    say({ type: "home", data: new Uint8Array() });
  }

  send(data) {
    if (!this.isOver) this.say({ type: "home", data });
  }

  close() {
    if (this.isOver) return;
    this.say({ type: "home_over" });
    this.end("");
  }

  /** The door says this. Before it says that the conversation has begun, it speaks of one of before. */
  take({ type, data, code }) {
    if (type === "home_over") this.end(code);
    else if (data.length === 0) this.hasBegun = true;
    else if (this.hasBegun && !this.isOver) this.onmessage?.({ data });
  }

  end(reason) {
    if (this.isOver) return;
    this.isOver = true;
    this.onclose?.({ reason });
  }
}

/** One door, kept open until `close`. `url` may be a function that finds it, anew for each connection. */
export class Door {
  constructor(url, { player = "", keys = null, session = () => null } = {}) {
    this.player = player;
    this.keys = keys;
    this.server = "";
    this.onstate = () => {};
    this.onmessage = () => {};
    this.reconnections = 0;
    this.mirror = new Mirror();
    this.clock = new TickClock();
    this.watches = new Map();
    this.topicsOf = new Map();
    this.next = 1;
    this.version = 0;
    this.run = "";
    this.home = null;
    this.noHomeUntilMs = 0;
    this.connection = new Connection({
      subprotocol: SUBPROTOCOL,
      find: typeof url === "function" ? url : async () => url,
      hello: (challenge) => this.#hello(challenge, session),
      onopen: (welcome) => this.#opened(welcome),
      onmessage: (message) => this.#take(message),
      onclosed: (reason, wasOpen) => this.#lost(reason, wasOpen),
    });
  }

  get isOpen() {
    return this.connection.isOpen;
  }

  /** Watch what `asked` names (entity, owner, pattern or area, and rate_hz); a function that ends it. May throw `Refused`. */
  watch(asked, onchange, ongone = () => {}, onrefused = () => {}) {
    checkWatched(asked);
    const id = this.next++;
    this.watches.set(id, { asked, onchange, ongone, onrefused });
    if (this.isOpen) this.#ask(id);
    return () => {
      this.watches.delete(id);
      for (const topic of this.topicsOf.get(id) ?? []) this.#closeTopic(topic, id);
      this.topicsOf.delete(id);
      this.send({ type: "unsubscribe", id });
    };
  }

  /** Send a message, if the door is open; whether it is. */
  send(message) {
    return this.connection.send(message);
  }

  close() {
    this.connection.close();
  }

  /** End the connection without a word, as networks do. For tests of what outlives that. */
  breakOff() {
    this.connection.breakOff();
  }

  /** Whether homeservers may be reached over this door now. */
  get leadsHome() {
    return this.isOpen && this.version >= HOME_SINCE && performance.now() >= this.noHomeUntilMs;
  }

  /** Talk to a homeserver over this door, to the next one each time. For `Home`. */
  openHome() {
    this.home?.end("closed");
    this.home = new HomeChannel((message) => this.send(message));
    return this.home;
  }

  /** No homeserver was reached over it: it is not tried for a while. */
  leadsNowhere() {
    this.noHomeUntilMs = performance.now() + NO_HOME_MS;
  }

  #ask(id) {
    this.send({ type: "subscribe", id, ...this.watches.get(id).asked });
  }

  async #hello(challenge, session) {
    this.server = challenge.server;
    this.version = versionFor(challenge.versions);
    this.clock = new TickClock(challenge.tick_hz);
    // A session that was refused once is not tried again: the key proves more.
    this.session = this.refusesSession ? null : session();
    return await helloOf(challenge, this.player, this.keys, this.session);
  }

  #opened({ run = new Uint8Array() }) {
    this.refusesSession = false;
    this.#sayWhatIsHeld(hex(run));
    for (const id of this.watches.keys()) this.#ask(id);
    this.onstate("open");
  }

  /** Have the door go on from what it showed by the connection before; it has, if its server has not started anew. */
  #sayWhatIsHeld(run) {
    if (this.version < HAVE_SINCE || !run || run !== this.run) this.mirror = new Mirror();
    this.run = run;
    const { held } = this.mirror;
    for (let at = 0; at < held.length; at += MAX_HAVE) this.send({ type: "have", topics: held.slice(at, at + MAX_HAVE) });
  }

  #lost(reason, wasOpen) {
    this.mirror = this.mirror.successor();
    this.clock = new TickClock(1000 / this.clock.periodMs);
    this.topicsOf.clear();
    this.reconnections += wasOpen;
    this.home?.end("closed");
    this.home = null;
    if (reason === "bad_token") this.refusesSession = true;
    this.onstate(reason);
  }

  #take(message) {
    if (Array.isArray(message)) {
      this.#show(message);
    } else if (message.type === "topics") {
      this.#setTopics(message);
    } else if (message.type === "refused") {
      this.watches.get(message.id)?.onrefused(message);
    } else if (message.type === "home" || message.type === "home_over") {
      this.home?.take(message);
    } else {
      this.onmessage(message);
    }
  }

  #show(frame) {
    // It was under way when the last watch of its topic ended.
    if (![...this.topicsOf.values()].some((topics) => topics.includes(frame[1]))) return;
    // What is told to begin with may have been so for long.
    if (frame[2] || !this.clock.heardLately.length) this.clock.heard(frame[4], performance.now());
    const { changed, left } = this.mirror.take(frame);
    for (const [id, topics] of this.topicsOf) {
      if (!topics.includes(frame[1])) continue;
      const { onchange, ongone } = this.watches.get(id);
      changed.forEach((entity) => onchange(entity));
      left.filter((name) => !this.mirror.isShown(name, topics)).forEach((name) => ongone(name));
    }
  }

  #setTopics({ id, topics }) {
    if (!this.watches.has(id)) return;
    const former = this.topicsOf.get(id) ?? [];
    this.topicsOf.set(id, topics);
    for (const topic of former) if (!topics.includes(topic)) this.#closeTopic(topic, id);
  }

  #closeTopic(topic, id) {
    const isWanted = [...this.topicsOf].some(([other, topics]) => other !== id && topics.includes(topic));
    const names = isWanted
      ? [...(this.mirror.topics.get(topic) ?? new Map()).values()].map((entity) => entity.name)
      : this.mirror.close(topic);
    const topics = this.topicsOf.get(id) ?? [];
    const gone = names.filter((name) => !this.mirror.isShown(name, topics));
    gone.forEach((name) => this.watches.get(id)?.ongone(name));
  }
}

// === the client of an instance ========================================================================================

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

  /** `inputs` were durable, and all that had them are dead. They are not given again, and no number is used twice. */
  #lose(inputs) {
    this.lost += inputs;
    this.floor = this.acknowledged;
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
    /** With what a door refused to show it, a `Refused`; null: none did. */
    this.refused = null;
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
      if (this.refused) throw this.refused;
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

  refuse(server, { code, message }) {
    const isFirst = this.refused === null;
    this.refused = new Refused(code, `${server}: ${message}`);
    // A page that only draws `entities` would be empty for ever without a word.
    if (isFirst) console.error(`a watch is refused: ${this.refused.message}`);
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
// The former connection is read on for so long: the next homeserver may know less yet than that one has told.
const OVERLAP_MS = 1000;
// With other codes than these it is of no use to come again as the same.
const FOR_NOW = new Set(["closed", "too_many_connections", "home_unreachable", "too_slow", "unknown_place", "proof_expired", "bad_token"]);

/**
 * The homeservers of an instance: one connection, to whichever of them answers.
 *
 * At first it is a WebSocket of its own. As soon as a door is open that leads home, it goes over that.
 */
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
    /** Whose homeservers they are; empty until it was connected once. */
    this.instance = "";
    this.wantedWay = null;
    // While the way changes: the connection that is next, what it has told, and what the former one told meanwhile.
    this.coming = null;
    this.buffered = [];
    this.told = new Map();
    this.connection = this.#connect();
    this.timers = [setInterval(() => this.#learnMembers(), MEMBERS_MS)];
  }

  /** The door over which it goes; null for a WebSocket of its own. */
  get way() {
    return this.connection.place instanceof Door ? this.connection.place : null;
  }

  /** Go over this door from now on, soon, and nothing is lost by it; null: over none. For `Client`. */
  prefer(way) {
    this.wantedWay = way;
    if (!way || way === this.way || this.coming || !this.connection.isOpen) return;
    this.coming = this.#connect();
  }

  /** The present connection goes wherever a homeserver is reached, one that is to be the next one over a door alone. */
  #connect() {
    const isPresent = () => made === this.connection;
    const find = async () => {
      await null;
      if (this.wantedWay?.leadsHome) return this.wantedWay;
      return isPresent() ? this.urls[0] + HOME_PATH : "";
    };
    const made = new Connection({
      subprotocol: HOME_SUBPROTOCOL,
      find,
      hello: (challenge) => this.#hello(challenge),
      onopen: (welcome) => (isPresent() ? this.#opened(welcome) : this.#entered(made, welcome)),
      onmessage: (message) => {
        if (isPresent() || message.type === "answer") this.#take(message);
        else if (made === this.coming) this.buffered.push(message);
      },
      onclosed: (reason, wasOpen) => {
        if (!wasOpen && !made.isClosed && made.place instanceof Door) made.place.leadsNowhere();
        if (isPresent()) this.#lost(reason);
        else if (made === this.coming) this.#comesNot();
      },
    });
    return made;
  }

  /** The next connection is there: soon the former one is not needed any more. */
  #entered(made, welcome) {
    if (made !== this.coming) return;
    this.welcome = welcome;
    if (this.followed.length) made.send({ type: "follow", entities: this.followed });
    this.buffered.push({ ...welcome, type: "session" });
    setTimeout(() => made === this.coming && made.isOpen && this.#change(made), OVERLAP_MS);
  }

  #change(made) {
    const former = this.connection;
    this.connection = made;
    this.coming = null;
    // What was asked over it is answered over it.
    setTimeout(() => former.close(), this.answers.size ? REQUEST_MS : 0);
    for (const message of this.buffered.splice(0)) this.#take(message);
    this.told.clear();
    for (const { resolve } of this.waiters.splice(0)) resolve();
  }

  #comesNot() {
    const { coming } = this;
    this.coming = null;
    this.buffered = [];
    this.told.clear();
    coming.close();
  }

  /** Wait until a homeserver has let this player in. */
  async ready() {
    if (!this.connection.isOpen) await this.#open(performance.now() + REQUEST_MS);
  }

  close() {
    this.timers.forEach(clearInterval);
    clearTimeout(this.renewal);
    this.coming?.close();
    this.connection.close();
    this.#failAll(new HomeFailure("unreachable", "this client was closed"));
  }

  /** A request of REST, of those that a player may make (docs/reference/players-door.md); the JSON of the answer. */
  async ask(method, target, body = null) {
    const untilMs = performance.now() + REQUEST_MS;
    if (!this.connection.isOpen) await this.#open(untilMs);
    const id = this.next++;
    const { connection } = this;
    const bytes = body === null ? new Uint8Array() : new TextEncoder().encode(JSON.stringify(body));
    const { status, body: said } = await new Promise((resolve, reject) => {
      const late = () => {
        this.answers.delete(id);
        // It may hang for good: another one is asked from now on.
        connection.breakOff();
        reject(new HomeFailure("unreachable", `${method} ${target} was not answered`));
      };
      const timer = setTimeout(late, Math.max(0, untilMs - performance.now()));
      this.answers.set(id, { resolve, reject, timer });
      connection.send({ type: "ask", id, method, target, body: bytes });
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
    for (const each of [this.connection, this.coming]) each?.send({ type: "follow", entities: this.followed });
  }

  async #hello(challenge) {
    this.instance = challenge.server.split(".")[0];
    if (this.invitation !== null && !this.session) {
      const proof = await proofOf(challenge.server, challenge.challenge, this.player, this.keys);
      const { player, invitation } = this;
      return { type: "enrol", version: versionFor(challenge.versions), player, keys: this.keys.jwks, invitation, proof };
    }
    return await helloOf(challenge, this.player, this.keys, this.session);
  }

  #opened(welcome) {
    this.welcome = welcome;
    this.failure = null;
    // It is redeemed: from now on the keys are enough.
    this.invitation = null;
    this.#take({ ...welcome, type: "session" });
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
        if (!this.#isRepeated(message)) this.onevent(message);
    }
  }

  /** Whether the former connection has told it, or what came after it, since the next one was there. */
  #isRepeated({ type, revision, entity, transfer, question }) {
    const subjects = { entity: entity?.id, gone: entity, transfer: transfer?.id, question: question?.transfer_id };
    const subject = `${type === "gone" ? "entity" : type} ${subjects[type]}`;
    if (this.coming === null) return this.told.get(subject) >= revision;
    this.told.set(subject, revision);
    return false;
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
    if (!this.way) this.urls.push(this.urls.shift());
    const isForNow = this.way !== null || FOR_NOW.has(reason);
    const failure = isForNow ? new HomeFailure("unreachable", reason) : this.failure ?? new HomeFailure(reason, "");
    for (const id of [...this.answers.keys()]) this.#answered(id, ({ reject }) => reject(failure));
    if (isForNow) return;
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
  async watch({ entity = "", owner = "", pattern = "", centre = null, around = "", radius = null, rateHz = 1000 }) {
    const hasArea = centre !== null || around !== "" || radius !== null;
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

  /** Have home be reached over a door that is open anyhow; the present one while something is wanted there. */
  #findWayHome() {
    const { instance, way } = this.home;
    const ways = [...this.links.values()].filter(({ server, door }) => door.leadsHome && server.split(".")[0] === instance);
    const steered = new Set([...this.steered.values()].map(({ stream }) => stream.target));
    const wanted = ways.filter(({ server, stops }) => stops.size || steered.has(server));
    const doors = (wanted.length ? wanted : ways).map(({ door }) => door);
    this.home.prefer(doors.find((door) => door === way) ?? doors[0] ?? null);
  }

  #doorIs(link, state) {
    const { server } = link;
    const now = performance.now();
    if (!this.isClosed) this.#findWayHome();
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
      (refusal) => watch.refuse(server, refusal),
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
    this.#findWayHome();
    const wanted = new Set([...this.steered.values()].map(({ stream }) => stream.target));
    for (const link of [...this.links.values()]) {
      if (link.stops.size || wanted.has(link.server) || link.door === this.home.way) link.wantedAtMs = now;
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
