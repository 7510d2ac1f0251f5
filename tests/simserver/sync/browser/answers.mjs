// One process for all tests: answers a line of JSON, {ask, of}, with a line of JSON, {answer} or {refused}.

import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

import * as events from "../../../../simserver/sync/browser/events.js";
import { Fireflies } from "../../../../simserver/sync/browser/fireflies.js";
import { Bouncers } from "./bouncers.mjs";
import { checks } from "./checks.mjs";

const GAMES = { Bouncers, Fireflies };
const bytes = (hex) => Uint8Array.from(hex.match(/../g) ?? [], (pair) => parseInt(pair, 16));

/** A value that JSON cannot carry as it is: {bytes}, {double} and {map} stand for themselves. */
function revived(value) {
  if (Array.isArray(value)) return value.map(revived);
  if (value === null || typeof value !== "object") return value;
  if ("bytes" in value) return bytes(value.bytes);
  if ("double" in value) return new DataView(bytes(value.double).buffer).getFloat64(0);
  return Object.fromEntries(value.map.map(([key, item]) => [key, revived(item)]));
}

function drawn({ seed, below, between, chance }) {
  const random = events.Xoshiro128.seeded(seed);
  const times = (count, draw) => Array.from({ length: count }, draw);
  const items = times(20, (_, i) => i);
  return {
    seed,
    state: random.state,
    next: times(20, () => random.next()),
    below: below.map(([n]) => [n, times(6, () => random.below(n))]),
    between: between.map(([low, high]) => [low, high, times(6, () => random.between(low, high))]),
    chance: chance.map(([a, b]) => [a, b, times(10, () => random.chance(a, b))]),
    uniform: times(6, () => random.uniform()),
    shuffle: (random.shuffle(items), items),
    after: random.state,
  };
}

function played(order) {
  const { ticks, log, saves = [] } = order;
  const driver = new GAMES[order.game](order.options);
  const byTick = new Map();
  for (const [T, Type, Origin, Body] of log) byTick.set(T, [...(byTick.get(T) ?? []), { T, Type, Origin, Body }]);
  const hashes = [driver.hash];
  const states = {};
  for (let tick = 0; tick < ticks; tick++) {
    hashes.push(driver.step(byTick.get(tick + 1) ?? []));
    if (saves.includes(driver.tick)) states[driver.tick] = events.hex(driver.save());
  }
  return { hashes, states, driver };
}

const ANSWERS = {
  digest: (of) => events.hex(events.sha256(bytes(of))),
  encoded: (of) => events.hex(events.encode(revived(of))),
  recoded: (of) => events.hex(events.encode(events.decode(bytes(of)))),
  drawn,
  sine: () => Array.from({ length: 1024 }, (_, angle) => events.sine(angle)),
  played: (order) => ({ ...played(order), driver: undefined }),
  dumped: (order) => played(order).driver.dump(order.ticks),
  loaded: ({ game, state }) => {
    const driver = new GAMES[game]();
    driver.load(bytes(state));
    return driver.hash;
  },
  due: (rows) => rows.map((row) => events.framesDue(...row)),
  check: (name) => checks[name](),
};

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  for await (const line of createInterface({ input: process.stdin })) {
    const { ask, of } = JSON.parse(line);
    let reply;
    try {
      reply = { answer: await ANSWERS[ask](of) };
    } catch (error) {
      reply = { refused: error instanceof events.SimError ? error.message : error.stack, expected: error instanceof events.SimError };
    }
    console.log(JSON.stringify(reply));
  }
}
