// Runs of `@dcl/ecs`: node ecs_runs.mjs ENVIRONMENT, a run as JSON on its input, what it sent as JSON on its output.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";

const require = createRequire(join(process.argv[2], "package.json"));
const { Engine } = require("@dcl/ecs/dist-cjs");
const { componentNumberFromName } = require("@dcl/ecs/dist-cjs/components/component-number");

const hex = (bytes) => Buffer.from(bytes).toString("hex");
const bytes = (text) => new Uint8Array(Buffer.from(text, "hex"));

// Values are their bytes, in an object that can be changed in its place.
const raw = {
  serialize: (value, builder) => builder.writeBuffer(value.data, false),
  deserialize: (reader) => {
    const at = reader.incrementReadOffset(reader.remainingBytes());
    return { data: reader.buffer().slice(at) };
  },
  create: () => ({ data: new Uint8Array() }),
  extend: (value) => value,
};

const run = async ({ components, set, maxValues, peers, ticks }) => {
  const engine = Engine();
  const byNumber = new Map();
  for (const name of components) {
    byNumber.set(componentNumberFromName(name), engine.defineComponentFromSchema(name, raw));
  }
  const options = { maxElements: maxValues, timestampFunction: (value) => value.data[0] ?? 0 };
  const sets = engine.defineValueSetComponentFromSchema(set, raw, options);
  const sent = peers.map(() => "");
  const transports = peers.map((type, at) => ({
    type,
    filter: () => true,
    send: async (message) => {
      sent[at] = Array.isArray(message) ? message.map(hex) : hex(message);
    },
  }));
  transports.forEach((transport) => engine.addTransport(transport));
  const log = [];
  for (const ops of ticks) {
    const results = [];
    for (const [op, ...rest] of ops) {
      const component = byNumber.get(rest[1]);
      switch (op) {
        case "receive": transports[rest[0]].onmessage(bytes(rest[1])); break;
        case "create": results.push(engine.addEntity()); break;
        case "remove": results.push(engine.removeEntity(rest[0])); break;
        case "put": component.createOrReplace(rest[0], { data: bytes(rest[2]) }); break;
        case "mutate": {
          const value = component.getMutableOrNull(rest[0]);
          if (value !== null) value.data = bytes(rest[2]);
          results.push(value !== null);
          break;
        }
        case "delete": results.push(component.deleteFrom(rest[0]) !== null); break;
        case "append": sets.addValue(rest[0], { data: bytes(rest[2]) }); break;
        default: throw new Error(op);
      }
    }
    await engine.update(1 / 30);
    log.push({ results, sent: [...sent] });
  }
  const values = [...byNumber].map(([number, component]) => [
    number,
    [...component.iterator()].map(([entity, value]) => [entity, hex(value.data)]),
  ]);
  const appended = [...sets.iterator()].map(([entity, row]) => [entity, [...row].map((value) => hex(value.data))]);
  const states = Object.fromEntries(
    [...values.flatMap(([, rows]) => rows), ...appended].map(([entity]) => [entity, engine.getEntityState(entity)]),
  );
  return { log, values, appended, states };
};

console.log(JSON.stringify(await run(JSON.parse(readFileSync(0, "utf8")))));
