// A room of Colyseus 0.18 on node: node on_colyseus.mjs PYTHON ENVIRONMENT WORK SECONDS, and one line of JSON.
//
// The server is this process. The load is another one, the same program that loads the others (`room_load`).
import { spawn } from "node:child_process";
import { createRequire } from "node:module";
import { join } from "node:path";

const [python, environment, work, seconds] = process.argv.slice(2);
const require = createRequire(join(environment, "package.json"));
const tell = (answer) => process.stdout.write(JSON.stringify(answer) + "\n");
const TICK_MS = 50;
const SIZE = 60_000;
const ROBOTS = 100;

const mark = () => "@" + String(process.hrtime.bigint()).padStart(20, "0");

const serve = async () => {
  const { Room, Server } = require("@colyseus/core");
  const { schema, t } = require("@colyseus/schema");
  const { WebSocketTransport } = require("@colyseus/ws-transport");

  const numbers = Object.fromEntries(["x", "y", "dx", "dy", "inputs"].map((name) => [name, t.number()]));
  const Robot = schema(numbers, "Robot");
  const State = schema({ at: t.string(), robots: t.map(Robot) }, "State");

  class Plane extends Room {
    onCreate() {
      this.autoDispose = false;
      // What a tick has changed is told at its end, not up to a tick later.
      this.patchRate = null;
      this.given = [];
      const state = new State();
      state.at = mark();
      for (let number = 0; number < ROBOTS; number += 1) {
        const robot = new Robot();
        robot.x = (number * 599) % SIZE;
        robot.y = (number * 7919) % SIZE;
        robot.dx = 37 + (number % 11);
        robot.dy = 41 + (number % 7);
        robot.inputs = 0;
        state.robots.set(`alpha.robot-${number}`, robot);
      }
      this.state = state;
      this.onMessage("steer", (client, number) => this.given.push([client, number]));
      this.setSimulationInterval(() => this.tick(), TICK_MS);
    }

    tick() {
      this.state.at = mark();
      for (const robot of this.state.robots.values()) {
        robot.x = (robot.x + robot.dx) % SIZE;
        robot.y = (robot.y + robot.dy) % SIZE;
      }
      const given = this.given;
      this.given = [];
      if (given.length) this.state.robots.get("alpha.robot-0").inputs += given.length;
      this.broadcastPatch();
      for (const [client, number] of given) client.send("ack", number);
    }
  }

  const server = new Server({ transport: new WebSocketTransport(), greet: false, gracefullyShutdown: false });
  server.define("plane", Plane);
  await server.listen(0, "127.0.0.1");
  return server.transport.server.address().port;
};

if (work === "version") {
  tell({ version: require("@colyseus/core/package.json").version });
  process.exit(0);
}
const port = await serve();
const module = "batonpass.scenarios.bench.clients.workers.room_load";
const load = spawn(python, ["-m", module, String(port), String(process.pid), work, seconds], {
  stdio: ["ignore", "inherit", "inherit"],
});
process.on("SIGTERM", () => load.kill());
load.on("exit", (code) => process.exit(code ?? 1));
