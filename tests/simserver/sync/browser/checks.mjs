// What the follower and the client of a stream do, against a server that is played here. Each check throws if it fails.

import assert from "node:assert/strict";

import { SimDriver, SimEntity, SimError, StreamClient, StreamFollower, hex, sha256 } from "../../../../simserver/sync/browser/events.js";

class Counter extends SimEntity {
  heard = 0;

  simTick() {
    this.heard += 1;
  }
}

class Counting extends SimDriver {
  static kinds = [Counter];

  onReset() {
    this.spawn(Counter);
  }

  onClientEvent() {
    for (const counter of this.entities(Counter)) counter.heard += 100;
  }
}

const ONE = "1".repeat(32);
const OTHER = "2".repeat(32);
const first = { T: 1, Type: "_a", Origin: "_", Body: ONE };
const reply = (T, more = {}) => ({ T, Events: [], States: [], ProxyId: "1", Incarnation: ONE, Acked: 0, Oldest: 0, ...more });
const types = (request) => (request.Events ?? []).map((event) => `${event.Type} ${event.Id}`);

/** A follower that has had its first answer. */
function following(T = 3, more = {}) {
  const driver = new Counting();
  const follower = new StreamFollower(driver);
  follower.receive(reply(T, { Events: [first], ...more }));
  return { driver, follower };
}

/** What a game is refused that does this in a tick, in check mode. */
function refusedFor(act) {
  class Careless extends Counting {
    onTick() {
      act();
    }
  }
  try {
    new Careless({ check: true }).step([first]);
  } catch (error) {
    assert.ok(error instanceof SimError, error.stack);
    return error.message.split(" differs")[0];
  }
  return "nothing";
}

const base64 = (bytes) => Buffer.from(bytes).toString("base64");

/** A trusted snapshot of the game after `ticks`. */
function snapshotAt(ticks, Incarnation = ONE) {
  const driver = new Counting();
  driver.step([first]);
  while (driver.tick < ticks) driver.step([]);
  const State = base64(driver.save());
  return { T: ticks, Incarnation, State, Hash: driver.hash, Votes: [{ ProxyId: "1" }, { ProxyId: "2" }] };
}

/** The answers that `fetch` gives in turn; what it was asked is kept. A function answers by itself. */
function playServer(answers) {
  const asked = [];
  globalThis.fetch = async (address, { method = "GET", body } = {}) => {
    const { host, pathname: path } = new URL(address);
    asked.push({ method, host, path, body: body && JSON.parse(body) });
    if (path.endsWith("/snapshot")) return new Response(JSON.stringify({ code: "no_snapshot", message: "none" }), { status: 404 });
    if (method === "DELETE") return new Response("{}");
    const answer = answers.shift();
    if (answer === undefined) return new Promise(() => {});
    if (answer instanceof Error) throw answer;
    const response = new Response(JSON.stringify(answer.reply ?? answer), { status: answer.status ?? 200 });
    // As of a fetch that followed a redirection.
    if (answer.from) Object.defineProperties(response, { url: { value: answer.from }, redirected: { value: true } });
    return response;
  };
  return asked;
}

/** WebSockets that open at once; what they were sent is kept, and `say` lets the server speak on one. */
function playSockets() {
  const sockets = [];
  globalThis.WebSocket = class {
    readyState = 1;
    sent = [];

    constructor(address) {
      this.address = String(address);
      sockets.push(this);
      setTimeout(() => this.onopen());
    }

    send(text) {
      this.sent.push(JSON.parse(text));
    }

    say(answer) {
      this.onmessage?.({ data: JSON.stringify(answer) });
    }

    close() {}
  };
  return sockets;
}

const client = (driver, more = {}) =>
  new StreamClient({ server: "http://stream.test/", stream: "a game", privateId: "me", driver, useWebSocket: false, ...more });

async function until(condition) {
  for (let i = 0; i < 2000; i++) {
    if (condition()) return;
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
  assert.fail(`not within 10 s: ${condition}`);
}

/** A thing whose tick is `act`, after one tick in the scene. */
function thing(act) {
  class Thing extends SimEntity {
    value = [1];

    simTick() {
      act(this);
    }
  }
  class Things extends SimDriver {
    static kinds = [Thing];

    onReset() {
      this.spawn(Thing);
    }
  }
  const driver = new Things();
  driver.step([first]);
  return { driver, entity: driver.entities()[0], Thing };
}

export const checks = {
  "outside of ticks nothing is written, spawned, removed or drawn"() {
    const { driver, entity, Thing } = thing(() => {});
    const acts = [() => (entity.value = 2), () => driver.spawn(Thing), () => driver.remove(entity), () => driver.random.next(), () => new Thing()];
    const before = driver.hash;
    for (const act of acts) assert.throws(act, SimError, String(act));
    driver.load(driver.save());
    assert.equal(driver.hash, before);
  },

  "a field is declared, and takes only what can be encoded"() {
    for (const act of [(one) => (one.speed = 1), (one) => (one.value = undefined), (one) => (one.value = NaN), (one) => delete one.value]) {
      assert.throws(() => thing(act).driver.step([]), SimError, String(act));
    }
    assert.throws(() => thing((one) => one.value.push(2)).driver.step([]), TypeError);
  },

  "a field never holds -0, which a snapshot would not give back"() {
    const { driver, entity } = thing((one) => (one.value = -0));
    driver.step([]);
    assert.ok(Object.is(entity.value, 0));
  },

  "what is spawned enters at the end of the tick, and what was removed leaves then"() {
    const seen = [];
    const { driver, entity, Thing } = thing((one) => {
      if (one.id > 1) return;
      one.sim.spawn(Thing, { value: [2] });
      one.sim.remove(one);
      seen.push(one.sim.entities().length);
    });
    driver.step([]);
    assert.deepEqual(seen, [1]);
    assert.deepEqual(driver.entities().map((one) => [one.id, one.value[0]]), [[2, 2]]);
    assert.equal(driver.entity(entity.id), undefined);
  },

  "an entity whose removal is asked for again while it leaves leaves once"() {
    const left = [];
    const { driver, Thing } = thing(() => {});
    Thing.prototype.simExit = function () {
      left.push(this.id);
      if (this.id === 1) this.sim.remove(2);
    };
    driver.onTick = (tick) => {
      if (tick === 1) driver.spawn(Thing);
      if (tick === 2) [1, 2].forEach((id) => driver.remove(id));
    };
    for (let tick = 0; tick < 3; tick += 1) driver.step([]);
    assert.deepEqual([left, driver.entities()], [[1, 2], []]);
    driver.load(driver.save());
  },

  "it asks nothing of its own before the first answer, which says the numbers that are taken"() {
    const driver = new Counting();
    const follower = new StreamFollower(driver);
    driver.sendEvent("jump");
    assert.deepEqual(follower.request(true), {});
    follower.receive(reply(2, { Events: [first], Acked: 7 }));
    assert.deepEqual(types(follower.request(true)), ["jump 8"]);
  },

  "an event is repeated until it is acknowledged, and keeps its number"() {
    const { driver, follower } = following();
    driver.sendEvent("jump");
    driver.sendEvent("duck");
    assert.deepEqual(types(follower.request(true)), ["jump 1", "duck 2"]);
    driver.sendEvent("roll");
    assert.deepEqual(types(follower.request(true)), ["jump 1", "duck 2", "roll 3"]);
    follower.receive(reply(4, { Acked: 2 }));
    assert.deepEqual(types(follower.request(true)), ["roll 3"]);
    assert.equal(follower.unacknowledged, 1);
  },

  "on one connection an event is sent once, and again on the next one"() {
    const { driver, follower } = following();
    driver.sendEvent("jump");
    assert.ok(follower.hasNews);
    assert.deepEqual(types(follower.request(false)), ["jump 1"]);
    assert.ok(!follower.hasNews);
    assert.deepEqual(types(follower.request(false)), []);
    assert.deepEqual(types(follower.request(true)), ["jump 1"]);
  },

  "a request has at most 16 events, and bytes that the server takes"() {
    const { driver, follower } = following();
    for (let i = 0; i < 40; i++) driver.sendEvent("jump");
    assert.equal(follower.request(true).Events.length, 16);
    follower.receive(reply(4, { Acked: 40 }));
    for (let i = 0; i < 5; i++) driver.sendEvent("say", "é".repeat(2500));
    assert.equal(follower.request(true).Events.length, 2);
    assert.throws(() => driver.sendEvent("say", "é".repeat(7000)), /at most 12288/);
  },

  "a thousand events wait at most"() {
    const { driver } = following();
    for (let i = 0; i < 1000; i++) driver.sendEvent("jump");
    assert.throws(() => driver.sendEvent("jump"), SimError);
  },

  "it never plays a tick that the server has not told of"() {
    const { driver, follower } = following(3);
    for (let i = 0; i < 10; i++) follower.play(1000);
    assert.equal(driver.tick, 3);
  },

  "an event acts at its tick, and its own sender's too, only when it comes back"() {
    const { driver, follower } = following(6, { Events: [first, { T: 4, Type: "jump", Origin: "1", Body: "" }] });
    driver.sendEvent("jump");
    const heard = [];
    while (driver.tick < 6) {
      follower.play(50);
      heard.push(driver.entities(Counter)[0].heard);
    }
    assert.deepEqual(heard, [0, 1, 2, 103, 104, 105]);
  },

  "a type of the server from another origin is data, also one that begins with a dollar sign"() {
    const heard = [];
    class Listening extends Counting {
      onReset = () => heard.push("reset");
      onConnect = () => heard.push("connect");
      onDisconnect = () => heard.push("disconnect");
      onClientEvent = (type, origin) => heard.push(`${type} of ${origin}`);
    }
    const types = ["_a", "_c", "_d", "$init", "$connect", "$disconnect"];
    new Listening().step(types.map((Type) => ({ T: 1, Type, Origin: "1", Body: "1" })));
    assert.deepEqual(heard, types.map((type) => `${type} of 1`));
  },

  "hashes are told with the next request, and again until it is answered"() {
    const { driver, follower } = following(2);
    while (driver.tick < 2) follower.play(50);
    const told = follower.request(true).Hashes;
    assert.deepEqual(told.map(([tick]) => tick), [1, 2]);
    assert.equal(told[1][1], driver.hash);
    assert.deepEqual(follower.request(true).Hashes, told);
    follower.receive(reply(3));
    assert.equal(follower.request(true).Hashes, undefined);
  },

  "of more hashes than a request has room for, those of checkpoints are told first"() {
    const { driver, follower } = following(110);
    while (driver.tick < 110) follower.play(50);
    const ticks = (body) => body.Hashes.map(([tick]) => tick);
    const upTo = (from, to) => Array.from({ length: to - from }, (_, at) => from + at).filter((tick) => tick % 20 !== 0);
    const first = [...upTo(1, 29), 20, 40, 60, 80, 100].sort((a, b) => a - b);
    assert.deepEqual(ticks(follower.request(true)), first);
  },

  "of a desync the ticks before it are told again, for one of them may be the first that differs"() {
    const { driver, follower } = following(60);
    while (driver.tick < 60) follower.play(50);
    for (let tick = 61; tick < 64; tick++) {
      follower.request(false);
      follower.receive(reply(tick));
    }
    assert.ok(!follower.hasNews);
    const Desync = { T: 60, Hashes: { a: ["1"], b: ["2"] } };
    follower.receive(reply(64, { Desync }));
    assert.ok(follower.hasNews);
    assert.ok(follower.isSearching, "no dump before these are told");
    const told = follower.request(false).Hashes;
    assert.deepEqual(told.map(([tick]) => tick), Array.from({ length: 19 }, (_, at) => 41 + at));
    assert.equal(told[0][1], driver.record(41).hash);
    follower.receive(reply(65, { Desync }));
    assert.ok(!follower.hasNews && !follower.isSearching);
  },

  "a reset begins anew, with the events of the new history"() {
    const { driver, follower } = following(9);
    while (driver.tick < 9) follower.play(50);
    const seed = { ...first, Body: OTHER };
    assert.equal(follower.receive(reply(2, { Incarnation: OTHER, Reset: true, Events: [seed] })), "reset");
    assert.equal(driver.tick, 0);
    while (driver.tick < 2) follower.play(50);
    const fresh = new Counting();
    fresh.step([seed]);
    fresh.step([]);
    assert.equal(driver.hash, fresh.hash);
  },

  "an answer of another incarnation, or below what is known, is not taken, and all is asked for again"() {
    for (const stale of [reply(20, { Incarnation: OTHER }), reply(2)]) {
      const { driver, follower } = following(9);
      driver.sendEvent("jump");
      follower.request(true);
      assert.equal(follower.receive(stale), "stale");
      assert.equal(follower.known, 0);
      assert.deepEqual(follower.request(true), {});
      assert.equal(follower.unacknowledged, 1);
    }
  },

  "what no stream answers is refused"() {
    const { follower } = following();
    const bad = [null, {}, "x", reply(-1), reply(1.5), reply(5, { Events: [{ T: 4 }] }), reply(5, { Acked: "1" }), reply(5, { Incarnation: 3 })];
    for (const answer of bad) assert.throws(() => follower.receive(answer), SimError, JSON.stringify(answer));
    assert.equal(follower.known, 3);
  },

  "it jumps by a snapshot of which the hash is right, and goes on from there"() {
    const { driver, follower } = following(5000);
    follower.jump(snapshotAt(4990));
    assert.equal(driver.tick, 4990);
    for (let i = 0; i < 20; i++) follower.play(50);
    assert.equal(driver.hash, hex(sha256(Buffer.from(snapshotAt(5000).State, "base64"))));
  },

  "a snapshot with another hash, of another stream, or without a vote is refused"() {
    const { driver, follower } = following(100);
    const good = snapshotAt(50);
    const bad = [{ ...good, Hash: "0".repeat(64) }, { ...good, Incarnation: OTHER }, { ...good, Votes: [] }, {}, null];
    for (const snapshot of bad) assert.throws(() => follower.jump(snapshot), SimError);
    assert.equal(driver.tick, 0);
  },

  "a snapshot that one client alone vouches for is taken only where the history was dropped"() {
    const { driver, follower } = following(100);
    const lone = { ...snapshotAt(50), Votes: [{ ProxyId: "1" }, { ProxyId: "1" }] };
    assert.equal(follower.jump(lone), false);
    assert.equal(driver.tick, 0);
    follower.beginsAnew = true;
    assert.equal(follower.jump(lone), true);
    assert.deepEqual([driver.tick, follower.known, follower.beginsAnew], [50, 50, false]);
  },

  "where the history was dropped it begins from the snapshot, also of another stream at a lower tick"() {
    const { driver, follower } = following(100);
    follower.beginsAnew = true;
    follower.jump(snapshotAt(50, OTHER));
    assert.deepEqual([driver.tick, follower.known, follower.incarnation], [50, 50, OTHER]);
    driver.sendEvent("jump");
    follower.receive(reply(60, { Incarnation: OTHER, Acked: 7 }));
    assert.deepEqual(types(follower.request(true)), ["jump 8"]);
  },

  "a snapshot is offered once the server has the hash of its tick, again a second later if refused, and ten times"() {
    const driver = new Counting();
    const follower = new StreamFollower(driver, { offerEvery: 20 });
    const come = (T, more = {}) => (follower.receive(reply(T, { Events: T > 30 ? [] : [first], ...more })), driver.tick < T && follower.play(1e9));
    for (let T = 1; T <= 30; T++) come(T);
    for (let i = 0; i < 40; i++) follower.play(50);
    assert.equal(follower.offerDue(), null, "public id 1 waits for a second, so that not all offer at once");
    for (let T = 31; T <= 40; T++) come(T);
    assert.equal(follower.offerDue(), null, "the server has not heard of the hash");
    follower.request(true);
    come(41);
    let tries = 0;
    for (let T = 42; T < 2000; T++) {
      const record = follower.offerDue();
      if (record?.tick === 20) {
        tries += 1;
        follower.offered(record, false);
        assert.equal(follower.offerDue(), null);
      }
      follower.request(true);
      come(T);
    }
    assert.equal(tries, 10);
    assert.ok(follower.offerDue().tick > 20);
    come(2000, { Snapshot: 2000 });
    assert.equal(follower.offerDue(), null, "another client has offered it");
    assert.throws(() => new StreamFollower(driver, { offerEvery: 30 }), SimError);
  },

  async "where it can sign, it offers snapshots that all others can verify"() {
    const driver = new Counting();
    const Snapshot = 0;
    const replies = Array.from({ length: 70 }, (_, at) => reply(at + 1, { Events: at ? [] : [first], Snapshot }));
    const asked = playServer(replies);
    const sockets = playSockets();
    const player = client(driver, { offerEvery: 20, useWebSocket: true });
    player.start();
    await until(() => sockets.length === 1 && sockets[0].sent.length === 1);
    const offers = () => asked.filter((one) => one.method === "PUT");
    for (let at = 0, now = performance.now(); offers().length === 0 && at < 70; at++) {
      sockets[0].say(replies[at]);
      player.play((now += 50));
      player.sendEvent("jump");
    }
    await until(() => offers().length > 0);
    player.stop();
    const [{ path, body }] = offers();
    assert.equal(path, "/a%20game/me/snapshot/20");
    assert.equal(body.Hash, hex(sha256(Buffer.from(body.State, "base64"))));
    const key = await crypto.subtle.importKey("raw", Buffer.from(body.Key, "base64"), "Ed25519", true, ["verify"]);
    const text = Buffer.from(`batonpass snapshot\n${ONE}\n20\n${body.Hash}`);
    assert.ok(await crypto.subtle.verify("Ed25519", key, Buffer.from(body.Signature, "base64"), text));
  },

  async "a poll that failed is repeated with what it told, and its event is acknowledged once"() {
    const driver = new Counting();
    const asked = playServer([reply(1, { Events: [first] }), new TypeError("no network"), { status: 502 }, reply(2, { Acked: 1 })]);
    const player = client(driver);
    player.start();
    await until(() => player.state === "polling");
    player.sendEvent("jump");
    await until(() => player.known === 2);
    player.stop();
    const polls = asked.filter((one) => one.method === "POST");
    assert.deepEqual(polls.map((one) => one.path), ["/a%20game/me/0", "/a%20game/me/1", "/a%20game/me/1", "/a%20game/me/1", "/a%20game/me/2"].slice(0, polls.length));
    assert.deepEqual(polls.slice(1, 4).map((one) => types(one.body)), [["jump 1"], ["jump 1"], ["jump 1"]]);
    assert.ok(polls.slice(1).every((one) => one.body.Wait > 0));
    assert.deepEqual(asked.at(-1), { method: "DELETE", host: "stream.test", path: "/a%20game/me", body: undefined });
  },

  async "events that are too many for now are held back, and nothing else is"() {
    const driver = new Counting();
    const refused = { status: 429, reply: { code: "too_many_events", message: "send fewer" } };
    const asked = playServer([reply(1, { Events: [first] }), refused, reply(2), reply(3), ...Array(20).fill(reply(3))]);
    const player = client(driver);
    player.start();
    await until(() => player.state === "polling");
    player.sendEvent("jump");
    const polls = () => asked.filter((one) => one.method === "POST").map((one) => types(one.body));
    await until(() => polls().length > 3 && polls().slice(3).some((events) => events.length > 0));
    player.stop();
    assert.deepEqual(polls().slice(0, 4), [[], ["jump 1"], [], []]);
    assert.equal(player.error, null);
  },

  async "a refusal that no repetition mends ends it with the server's sentence"() {
    playServer([{ status: 400, reply: { code: "bad_body", message: "the body is no JSON" } }]);
    const player = client(new Counting());
    await player.start();
    assert.equal(player.state, "refused");
    assert.equal(player.error.message, "the body is no JSON");
  },

  async "a game that fails says so and stops"() {
    class Failing extends Counting {
      onTick() {
        throw new Error("a fault of the game");
      }
    }
    playServer([reply(5, { Events: [first] })]);
    const player = client(new Failing());
    player.play(0);
    player.start();
    await until(() => player.known === 5);
    player.play(1000);
    assert.equal(player.state, "failed");
    assert.equal(player.error.message, "a fault of the game");
    player.stop();
  },

  async "without WebSockets it polls"() {
    let tried = 0;
    globalThis.WebSocket = class {
      constructor(address) {
        tried += 1;
        assert.equal(String(address), "ws://stream.test/a%20game/me/0");
        setTimeout(() => this.onclose());
      }

      close() {}
    };
    playServer([reply(1, { Events: [first] })]);
    const player = client(new Counting(), { useWebSocket: true });
    player.start();
    await until(() => player.state === "polling");
    player.stop();
    assert.equal(tried, 1);
  },

  async "a WebSocket that broke is opened again, and tells again what was not acknowledged"() {
    const sockets = playSockets();
    playServer([]);
    const player = client(new Counting(), { useWebSocket: true });
    player.start();
    await until(() => sockets.length === 1 && sockets[0].sent.length === 1);
    sockets[0].say(reply(3, { Events: [first] }));
    assert.equal(player.state, "websocket");
    player.sendEvent("jump");
    player.sendEvent("duck");
    assert.deepEqual(sockets[0].sent.slice(1).map(types), [["jump 1"], ["duck 2"]]);
    sockets[0].say(reply(4, { Acked: 1 }));
    sockets[0].onclose();
    await until(() => sockets.length === 2 && sockets[1].sent.length === 1);
    assert.equal(sockets[1].address, "ws://stream.test/a%20game/me/4");
    assert.deepEqual(types(sockets[1].sent[0]), ["duck 2"]);
    player.stop();
    assert.equal(player.state, "stopped");
  },

  "settings that mean nothing are refused"() {
    assert.throws(() => new Counting({ keptTicks: 0 }), /give 1 or more/);
    for (const offerEvery of [-20, 30, NaN]) assert.throws(() => new StreamFollower(new Counting(), { offerEvery }), /offerEvery is/);
    const game = new Counting({ keptTicks: 1 });
    game.step([first]);
    assert.equal(game.record(1).tick, 1);
  },

  async "events that are told early change nothing but that they are told"() {
    const sockets = playSockets();
    playServer([]);
    const player = client(new Counting(), { useWebSocket: true, early: true });
    const heard = [];
    player.addEventListener("early", ({ detail }) => heard.push(detail));
    player.start();
    await until(() => sockets.length === 1 && sockets[0].sent.length === 1);
    assert.deepEqual(sockets[0].sent[0], { Early: true });
    sockets[0].say(reply(3, { Events: [first] }));
    const event = { Type: "jump", Origin: "2", Body: "high" };
    sockets[0].say({ Early: [event] });
    assert.deepEqual(heard, [{ type: "jump", origin: "2", body: "high" }]);
    assert.equal(player.known, 3);
    sockets[0].say(reply(4, { Events: [{ T: 4, ...event }] }));
    assert.equal(player.known, 4);
    assert.equal(player.state, "websocket");
    player.stop();
  },

  async "where a WebSocket is sent on, it is opened at once, with what was not acknowledged"() {
    const sockets = playSockets();
    const asked = playServer([]);
    const player = client(new Counting(), { useWebSocket: true });
    player.start();
    await until(() => sockets.length === 1 && sockets[0].sent.length === 1);
    sockets[0].say(reply(3, { Events: [first] }));
    player.sendEvent("jump");
    sockets[0].say({ code: "elsewhere", message: "ask there", url: "http://other.test:99/home.a%20game" });
    await until(() => sockets.length === 2 && sockets[1].sent.length === 1);
    assert.equal(sockets[1].address, "ws://other.test:99/home.a%20game/me/3");
    assert.deepEqual(types(sockets[1].sent[0]), ["jump 1"]);
    sockets[1].say(reply(4, { Acked: 1 }));
    assert.equal(player.known, 4);
    assert.equal(player.error, null);
    player.stop();
    assert.deepEqual(asked.slice(-1), [{ method: "DELETE", host: "other.test:99", path: "/home.a%20game/me", body: undefined }]);
  },

  async "doors that always send it on are asked five times and then after a pause"() {
    const sockets = playSockets();
    playServer([]);
    const player = client(new Counting(), { useWebSocket: true, server: ["http://a.test", "http://b.test"] });
    player.start();
    const answered = new Set();
    await until(() => {
      const socket = sockets.at(-1);
      if (socket?.sent.length === 1 && !answered.has(socket)) {
        answered.add(socket);
        socket.say({ code: "elsewhere", message: "", url: `http://${socket.address.includes("a.test") ? "b" : "a"}.test/a` });
      }
      return player.error !== null;
    });
    player.stop();
    assert.equal(sockets.length, 5);
    assert.match(player.error.message, /always elsewhere/);
  },

  async "a door that does not answer, or has no server for the stream, is followed by the next one"() {
    const none = { status: 503, reply: { code: "unavailable", message: "ask again" } };
    const asked = playServer([reply(3, { Events: [first] }), new TypeError("refused"), none, reply(9)]);
    const player = client(new Counting(), { server: ["http://a.test", "http://b.test/", "http://c.test"] });
    player.start();
    await until(() => player.known === 9);
    player.stop();
    const polls = asked.filter((one) => one.method === "POST").map((one) => one.host + one.path);
    assert.deepEqual(polls.slice(0, 4), ["a.test/a%20game/me/0", "a.test/a%20game/me/3", "b.test/a%20game/me/3", "c.test/a%20game/me/3"]);
  },

  async "a WebSocket that a door lacks is tried again once a door does not answer polls"() {
    let tried = [];
    globalThis.WebSocket = class {
      constructor(address) {
        tried.push(new URL(address).host);
        setTimeout(() => this.onclose());
      }

      close() {}
    };
    playServer([new TypeError("refused"), reply(1, { Events: [first] })]);
    const player = client(new Counting(), { useWebSocket: true, server: ["http://a.test", "http://b.test"] });
    player.start();
    await until(() => player.known === 1);
    player.stop();
    assert.deepEqual(tried, ["a.test", "b.test"]);
  },

  async "where a poll was sent on, the next one goes at once"() {
    const asked = playServer([{ reply: reply(3, { Events: [first] }), from: "http://b.test/home.game/me/0" }, reply(4)]);
    const player = client(new Counting());
    player.start();
    await until(() => player.known === 4);
    player.stop();
    const polls = asked.filter((one) => one.method === "POST").map((one) => one.host + one.path);
    assert.deepEqual(polls.slice(0, 2), ["stream.test/a%20game/me/0", "b.test/home.game/me/3"]);
  },

  async "of a desync it shows the server its state once it has told the ticks before it, and says so to the page at once"() {
    const driver = new Counting();
    const Desync = { T: 2, Hashes: { a: ["1"], b: ["2"] } };
    const asked = playServer([]);
    const sockets = playSockets();
    const player = client(driver, { useWebSocket: true });
    let said = 0;
    player.addEventListener("desync", () => (said += 1));
    player.start();
    await until(() => sockets.length === 1 && sockets[0].sent.length === 1);
    sockets[0].say(reply(3, { Events: [first] }));
    while (driver.tick < 3) player.play(performance.now() + 1e6 * (driver.tick + 1));
    sockets[0].say(reply(4, { Desync }));
    const shown = () => asked.filter((one) => one.method === "PUT");
    assert.deepEqual([said, shown().length], [1, 0]);
    player.sendEvent("jump");
    for (const tick of [5, 6]) sockets[0].say(reply(tick, { Desync }));
    player.stop();
    assert.deepEqual([said, shown().map((one) => one.path)], [1, ["/a%20game/me/desync/2"]]);
  },

  "in check mode what machines do not agree on is refused by name"() {
    const acts = {
      random: () => Math.random(),
      pow: () => Math.pow(2, 0.5),
      Date: [() => Date(), () => new Date(), () => Date.now(), () => new Date(0).getHours()],
      performance: () => performance.now(),
      crypto: () => crypto.getRandomValues(new Uint8Array(1)),
      Intl: [() => new Intl.NumberFormat(), () => Intl.DateTimeFormat()],
      WeakRef: () => new WeakRef({}),
      toLocaleString: [() => (1.5).toLocaleString(), () => [1.5].toLocaleString(), () => 5n.toLocaleString(), () => ({}).toLocaleString()],
      localeCompare: () => "a".localeCompare("b"),
      toLocaleUpperCase: () => "i".toLocaleUpperCase(),
      toLocaleLowerCase: () => "I".toLocaleLowerCase(),
      nothing: [() => Math.sqrt(2), () => (1.5).toString() + "i".toUpperCase(), () => [3, 1].sort()],
    };
    for (const [name, each] of Object.entries(acts)) for (const act of [each].flat()) assert.equal(refusedFor(act), name, String(act));
    assert.equal(typeof Date.now() + Math.pow(2, 3) + "a".localeCompare("b"), "number8-1", "all is as it was");
  },

  "in check mode the operator of powers is refused, which cannot be replaced"() {
    class Powers extends Counter {
      simTick() {
        this.heard += 2 ** 3;
      }
    }
    class InText extends Counting {
      onReset() {
        this.said = `${`${2 ** 3}`}`;
      }
    }
    class Squaring extends Counting {
      static kinds = [Counter, Powers];
    }
    class Plain extends Counting {
      /** A comment ** with stars, */
      onTick() {
        const text = "**" + '"**' + `** \` **`; // and ** another
        return text.length * 2 * 3;
      }
    }
    assert.throws(() => new Squaring({ check: true }), /^SimError: \*\* in Powers differs/);
    assert.throws(() => new InText({ check: true }), /\*\* in InText differs/);
    new Squaring();
    new Plain({ check: true }).step([first]);
  },

  async "of a desync it shows the server its state, once"() {
    const driver = new Counting({ trace: true });
    const Desync = { T: 1, Hashes: { a: ["1"], b: ["2"] } };
    const asked = playServer([reply(3, { Events: [first] }), reply(4, { Desync }), {}, reply(5, { Desync })]);
    const player = client(driver);
    player.play(0);
    player.start();
    await until(() => player.known === 3);
    while (driver.tick < 3) player.play(performance.now() + 1e6 * (driver.tick + 1));
    await until(() => player.known === 5);
    player.stop();
    const shown = asked.filter((one) => one.method === "PUT");
    assert.deepEqual(shown.map((one) => one.path), ["/a%20game/me/desync/1"]);
    assert.equal(shown[0].body.tick, 1);
    assert.equal(shown[0].body.hash, driver.record(1).hash);
    assert.equal(player.desync.T, 1);
  },
};
