// A client of the players' door (docs/reference/players-door.md) for browsers and node: one module, no build step, no dependencies.
//
//   const door = new Door("ws://127.0.0.1:7300", { player, keys });   // without both: an observer
//   const stop = door.watch({ pattern: "alpha.ball-*", rate_hz: 10 }, (entity) => …, (name) => …);
//   door.send({ type: "input", … });
//   door.close();
//
// A connection that ends is opened anew by itself, and what is watched is asked for again. `door.onstate` hears
// "open", "closed" and a code with which the door refused.

const SUBPROTOCOL = "batonpass.door.1";
const VERSION = 1;
const FRAME = 1;
const FIRST_RETRY_MS = 100;
const MAX_RETRY_MS = 3000;
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
  const { centre = null, around = "", radius = 0 } = area ?? {};
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
  check(isRadius, `radius is from 0 to ${MAX_RADIUS}, not ${radius}`);
  if (centre === null) return;
  const isCentre = Array.isArray(centre) && centre.length >= 1 && centre.length <= 3 && centre.every(Number.isFinite);
  check(isCentre, `centre is one to three finite numbers, as the world's positions are, not ${centre}`);
}

// --- CBOR (RFC 8949) --------------------------------------------------------------------------------------------------

/** The value of these bytes; throws for what is not whole. Maps whose keys are texts are objects, others `Map`s. */
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

/** What one door shows: frames in, entities by name out. */
export class Mirror {
  constructor() {
    this.topics = new Map();
    this.frames = new Map();
    this.entities = new Map();
    this.shownBy = new Map();
  }

  /** Take a frame: the entities that changed, and the names of those that its topic shows no more. */
  take(frame) {
    const [kind, topic, base, number, round, deltas, fulls, gone] = frame;
    if (kind !== FRAME || !Array.isArray(deltas) || !Array.isArray(fulls) || !Array.isArray(gone)) {
      throw new Error("no frame of states");
    }
    const before = this.topics.get(topic) ?? new Map();
    const known = this.frames.get(topic) ?? 0;
    // Two subscriptions that share a topic are each told: what is known is passed over, and of what one of them missed,
    // which comes in full, the other may have a part.
    if (base !== 0 && number <= known) return { changed: [], left: [] };
    if (base > known || (base !== 0 && base < known && deltas.length)) {
      throw new Error("a frame that follows another one than is known");
    }
    const here = base === 0 ? new Map() : before;
    const changed = [];
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
    this.topics.set(topic, here);
    this.frames.set(topic, number);
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
    this.topics.delete(topic);
    this.frames.delete(topic);
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
export async function helloOf({ server, challenge }, player, keys, session) {
  if (!player) return { type: "hello", version: VERSION };
  if (session?.length) return { type: "hello", version: VERSION, player, token: session };
  return { type: "hello", version: VERSION, player, proof: await proofOf(server, challenge, player, keys) };
}

/** The signature of a challenge. */
export function proofOf(server, challenge, player, keys) {
  const expires_at_s = Math.floor(Date.now() / 1000) + PROOF_LIFETIME_S;
  return sign({ action: "enter", server, challenge: hex(challenge), expires_at_s }, player, keys);
}

/**
 * A connection that is opened anew whenever it ends, until `close`.
 *
 * `find` says where to, anew each time; `hello` answers the challenge. `onopen` hears the welcome, `onmessage` what
 * comes then, and `onclosed` the code with which the other end refused, or "closed", and whether it was open.
 */
export class Connection {
  constructor({ subprotocol, find, hello, onopen, onmessage, onclosed }) {
    Object.assign(this, { subprotocol, find, hello, onopen, onmessage, onclosed });
    this.isOpen = false;
    this.isClosed = false;
    this.socket = null;
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
    const socket = new WebSocket(url.replace(/^http/, "ws"), this.subprotocol);
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
    this.connection = new Connection({
      subprotocol: SUBPROTOCOL,
      find: typeof url === "function" ? url : async () => url,
      hello: (challenge) => this.#hello(challenge, session),
      onopen: () => this.#opened(),
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

  #ask(id) {
    this.send({ type: "subscribe", id, ...this.watches.get(id).asked });
  }

  async #hello(challenge, session) {
    this.server = challenge.server;
    this.clock = new TickClock(challenge.tick_hz);
    // A session that was refused once is not tried again: the key proves more.
    this.session = this.refusesSession ? null : session();
    return await helloOf(challenge, this.player, this.keys, this.session);
  }

  #opened() {
    this.refusesSession = false;
    for (const id of this.watches.keys()) this.#ask(id);
    this.onstate("open");
  }

  #lost(reason, wasOpen) {
    this.mirror = new Mirror();
    this.clock = new TickClock(1000 / this.clock.periodMs);
    this.topicsOf.clear();
    this.reconnections += wasOpen;
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
