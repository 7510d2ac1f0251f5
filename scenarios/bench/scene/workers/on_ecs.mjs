// `@dcl/ecs` on node: node on_ecs.mjs PYTHON ENVIRONMENT WORK SECONDS, and one line of JSON, as every worker.
import { execFileSync } from "node:child_process";
import { createRequire } from "node:module";
import { join } from "node:path";

const [python, environment, work, seconds] = process.argv.slice(2);
const require = createRequire(join(environment, "package.json"));
const tell = (answer) => process.stdout.write(JSON.stringify(answer) + "\n");

// What another worker of the same work gets.
const chunksOf = (stream, count) => {
  const args = ["-m", "batonpass.scenarios.bench.scene.workers.streams", stream];
  const bytes = new Uint8Array(execFileSync(python, args, { maxBuffer: 2 ** 28 }));
  const size = bytes.length / count;
  return Array.from({ length: count }, (_, at) => bytes.slice(at * size, (at + 1) * size));
};

const cpuSeconds = (since) => {
  const used = process.cpuUsage(since);
  return (used.user + used.system) / 1e6;
};

const engineWith = (type) => {
  const { Engine } = require("@dcl/ecs/dist-cjs");
  const components = require("@dcl/ecs/dist-cjs/components");
  const engine = Engine();
  const transform = components.Transform(engine);
  const transport = { type, filter: () => true, send: async () => {} };
  engine.addTransport(transport);
  return { engine, transform, transport };
};

const count = (iterable) => {
  let found = 0;
  for (const _ of iterable) found += 1;
  return found;
};

const pass = async (chunks, entities, type) => {
  const { engine, transform, transport } = engineWith(type);
  let used = 0;
  for (const [at, chunk] of chunks.entries()) {
    const before = process.cpuUsage();
    transport.onmessage(chunk);
    await engine.update(1 / 30);
    if (at > 0 || type === undefined) used += cpuSeconds(before);
  }
  if (count(engine.getEntitiesWith(transform)) !== entities) throw new Error("not all were applied");
  return used;
};

const apply = async () => {
  const chunks = chunksOf("apply", 20);
  const messages = chunks.length * 10_000;
  await pass(chunks, 10_000);
  let [done, took] = [0, 0];
  while (took < Number(seconds)) {
    took += await pass(chunks, 10_000);
    done += messages;
  }
  return done / took;
};

// Of 10,000 entities a chunk takes minutes: a message is measured of the first few.
const network = async (entities, measured) => {
  const chunks = chunksOf(`network-${entities}`, 6);
  const { engine, transport } = engineWith("network");
  const { NetworkEntity } = require("@dcl/ecs/dist-cjs/components");
  const names = NetworkEntity(engine);
  for (let entity = 512; entity < 512 + entities; entity += 1) {
    names.createOrReplace(engine.addEntity(), { networkId: 77, entityId: entity });
  }
  let [done, took] = [0, 0];
  for (const chunk of chunks) {
    const size = chunk.length / entities;
    const part = chunk.slice((entities - measured) * size);
    const before = process.cpuUsage();
    transport.onmessage(part);
    await engine.update(1 / 30);
    if (done > 0 || chunk !== chunks[0]) {
      took += cpuSeconds(before);
      done += measured;
    }
  }
  return took / done;
};

if (work === "version") {
  tell({ version: require("@dcl/ecs/package.json").version });
} else if (work === "apply") {
  tell({ figure: await apply() });
} else {
  const few = await network(100, 100);
  tell({ figure: (await network(10_000, 100)) / few });
}
