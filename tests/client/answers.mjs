// Answers for tests of the browser's modules: lines of JSON in and out, bytes in hexadecimal digits.

import { createInterface } from "node:readline";
import { Home, InputStream, JitterBuffer, Watch } from "../../authority/browser/client.js";
import { checkWatched, decode, encode, Mirror, patched, TickClock } from "../../authority/browser/client.js";

const bytes = (hex) => Uint8Array.from(Buffer.from(hex, "hex"));
const hex = (value) => Buffer.from(encode(value)).toString("hex");

const steps = {
  add: (stream, now, data) => stream.add(bytes(data), now),
  send: (stream) => stream.nextToSend().map(([seq]) => seq),
  ack: (stream, now, message) => stream.acknowledgedAs(message, now),
  correct: (stream, now, message) => stream.corrected(message, "alpha.ada", now),
  learn: (stream, now, owner, rev) => stream.learnOwner(owner, rev, "alpha.ada"),
  again: (stream, now) => stream.isOverdue(now) && stream.startOver(now),
  ask: (stream, now) => stream.toAskWith(now)?.seq ?? null,
  follow: (stream, now, server, fence) => stream.follow(server, fence),
  retarget: (stream, now, server) => stream.retarget(server),
  end: (stream) => stream.ended(),
};

function streamFacts(stream) {
  const { sent, floor, acknowledged, durable, fence, inFlight, maxInFlight, target, owner, ownerRev, lost, givenAgain } = stream;
  const [waiting, kept, refused] = [stream.waiting, stream.kept, stream.refused].map((items) => items.map(([seq, data]) => [seq, Buffer.from(data).toString("hex")]));
  return { sent, floor, acknowledged, durable, fence, inFlight, maxInFlight, target, owner, ownerRev, lost, givenAgain, waiting, kept, refused };
}

function streamed({ begun, doing }) {
  const stream = new InputStream("alpha.one", "alpha.s1", 0);
  stream.isBegun = begun;
  stream.heardAtMs = 0;
  return doing.map(([what, now, ...rest]) => [steps[what](stream, now, ...rest) ?? null, streamFacts(stream)]);
}

function clocked({ tickHz, heard, at }) {
  const clock = new TickClock(tickHz);
  for (const [round, now] of heard) clock.heard(round, now);
  return { times: at.map((round) => clock.timeOf(round)), lateness: clock.latenessMs, round: clock.roundAt(heard[heard.length - 1][1]) };
}

/** An entity that goes one unit a tick, shown with delays: where it is drawn, at each moment that is asked for. */
function drawn({ samples, moments }) {
  const buffer = new JitterBuffer();
  let next = 0;
  return moments.map((now) => {
    for (; next < samples.length && samples[next].arrivesMs <= now; next += 1) {
      const { tick, atMs, latenessMs } = samples[next];
      buffer.add({ name: "one", tick, state: tick }, atMs, 50, latenessMs);
    }
    const found = buffer.at("one", now);
    if (found === null) return null;
    const { before, after, share } = found;
    return [before.state + share * (after.state - before.state), buffer.delayMs];
  });
}

/** Homeservers that answer with these statuses, or not at all (0), in turns; what is asked of them, and who answers. */
async function homes({ statuses, asks }) {
  const asked = [];
  globalThis.WebSocket = class {
    constructor(url) {
      this.host = new URL(url).host;
      this.says({ type: "challenge", server: "alpha.h1", challenge: new Uint8Array(32), versions: [1], tick_hz: 0 });
    }
    says(message) {
      setTimeout(() => this.onmessage?.({ data: encode(message).buffer }), 0);
    }
    send(data) {
      const message = decode(data);
      if (message.type === "hello") this.says({ type: "welcome", player: "", token: new Uint8Array(), token_s: 0 });
      if (message.type !== "ask") return;
      const rows = Object.keys(statuses).map((name) => ({ name, role: "homeserver", rest_url: `http://${name}` }));
      const status = message.target === "/v1/servers" ? 200 : statuses[this.host];
      if (message.target !== "/v1/servers") asked.push(this.host);
      const body = status === 200 ? rows : { code: "no_quorum", message: "no majority" };
      if (status) this.says({ type: "answer", id: message.id, status, body: new TextEncoder().encode(JSON.stringify(body)) });
    }
    close() {}
  };
  const home = new Home(`http://${Object.keys(statuses)[0]}`);
  await home.ready();
  // It has learnt of the others.
  while (home.urls.length < Object.keys(statuses).length) await new Promise((resolve) => setTimeout(resolve, 5));
  const found = [];
  for (let number = 0; number < asks; number += 1) found.push(await home.ask("GET", "/x").then(() => "answered", ({ code }) => code));
  home.close();
  return { asked, found };
}

/** What the console shows of a watch that these doors refuse and nobody reads, and the code that the watch has. */
function refusedUnread(refusals) {
  const shown = [];
  const { error } = console;
  console.error = (text) => shown.push(text);
  const watch = new Watch({}, () => {});
  const before = watch.refused;
  for (const [server, code, message] of refusals) watch.refuse(server, { code, message });
  console.error = error;
  return { before, shown, code: watch.refused.code };
}

const questions = {
  refusedUnread,
  homes,
  streamed,
  clocked,
  drawn,
  again: (data) => hex(decode(bytes(data))),
  watched: (asked) => {
    try {
      checkWatched(asked);
      return "";
    } catch (error) {
      return `${error.code}: ${error.sentence}`;
    }
  },
  patched: ([before, patch]) => hex(patched(decode(bytes(before)), decode(bytes(patch)))),
  // Without a frame, the connection has ended and there is another one.
  mirror: (frames) => {
    let mirror = new Mirror();
    const held = [];
    for (const frame of frames) {
      if (frame) mirror.take(decode(bytes(frame)));
      else mirror = mirror.successor();
      if (!frame) held.push(mirror.held);
    }
    const known = [...mirror.entities.values()].map(({ name, owner, epoch, sub, tick, state }) => [name, owner, epoch, sub, tick, hex(state)]);
    return [known, held];
  },
};

for await (const line of createInterface({ input: process.stdin })) {
  const { ask, of } = JSON.parse(line);
  let reply;
  try {
    reply = { answer: await questions[ask](of) };
  } catch (error) {
    reply = { refused: String(error.message), expected: error instanceof Error };
  }
  process.stdout.write(`${JSON.stringify(reply)}\n`);
}
