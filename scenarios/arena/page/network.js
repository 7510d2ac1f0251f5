// This page's own connections made worse on purpose, and what comes over them. Nothing of it is known to any server.
//
// A WebSocket loses no message: what a network loses is sent again, and what is behind it waits for it. So loss is
// delay here, of which the order is kept. A cut ends the connections, and what was under way is gone.

import { decode } from "./client.js";

const AGAIN_MS = 200;
const SHOWN = 12;
const SHOW_MS = 500;

const settings = { delayMs: 0, loss: 0 };
const sockets = new Set();
const seen = { messages: 0, bytes: 0, underWay: 0, last: [] };

/** One direction of a connection. */
class Lane {
  constructor() {
    this.waiting = [];
    this.freeAtMs = 0;
  }

  /** Do it once it would have come through; in the order in which it was given. */
  pass(action) {
    let waitsMs = settings.delayMs;
    for (let againMs = AGAIN_MS; Math.random() < settings.loss; againMs *= 2) waitsMs += againMs;
    this.freeAtMs = Math.max(this.freeAtMs, performance.now() + waitsMs);
    if (!waitsMs && !this.waiting.length) {
      action();
      return;
    }
    seen.underWay += 1;
    this.waiting.push({ action, atMs: this.freeAtMs });
    if (this.waiting.length === 1) this.#later();
  }

  // One timer for all: several would not go off in their order.
  #later() {
    setTimeout(() => {
      const now = performance.now();
      while (this.waiting.length && this.waiting[0].atMs <= now) {
        seen.underWay -= 1;
        try {
          this.waiting[0].action();
        } finally {
          // Only now: what is given meanwhile is behind it.
          this.waiting.shift();
        }
      }
      if (this.waiting.length) this.#later();
    }, this.waiting[0].atMs - performance.now());
  }
}

class UnsteadySocket extends WebSocket {
  constructor(...given) {
    super(...given);
    this.lanes = [new Lane(), new Lane()];
    this.taken = null;
    this.isOver = false;
    sockets.add(this);
    this.addEventListener("close", () => {
      this.isOver = true;
      sockets.delete(this);
    });
    this.addEventListener("message", (event) => {
      note(this, event.data);
      this.lanes[1].pass(() => this.isOver || this.taken?.(event));
    });
  }

  set onmessage(handler) {
    this.taken = handler;
  }

  get onmessage() {
    return this.taken;
  }

  send(data) {
    this.lanes[0].pass(() => this.isOver || this.readyState !== WebSocket.OPEN || super.send(data));
  }

  cut() {
    this.isOver = true;
    this.close();
  }
}

function note(socket, data) {
  seen.messages += 1;
  seen.bytes += data.byteLength;
  seen.last.unshift({ at: new Date(), place: new URL(socket.url).host, data });
  seen.last.length = Math.min(seen.last.length, SHOWN);
}

const element = (id) => document.getElementById(id);

export function cutAll() {
  for (const socket of sockets) socket.cut();
}

/** From now on all connections of this page are like that, and its controls say how. */
export function makeUnsteady() {
  globalThis.WebSocket = UnsteadySocket;
  const follow = () => {
    settings.delayMs = Number(element("delay").value);
    settings.loss = Number(element("loss").value) / 100;
    element("delay-shown").textContent = `${settings.delayMs} ms`;
    element("loss-shown").textContent = `${element("loss").value} %`;
  };
  for (const id of ["delay", "loss"]) element(id).addEventListener("input", follow);
  follow();
  element("cut").addEventListener("click", cutAll);
  let timer = null;
  element("cuts").addEventListener("input", ({ target }) => {
    clearInterval(timer);
    if (Number(target.value)) timer = setInterval(cutAll, 1000 * Number(target.value));
  });
  setInterval(show, SHOW_MS);
}

let before = { messages: 0, bytes: 0, atMs: performance.now() };

function show() {
  const now = { messages: seen.messages, bytes: seen.bytes, atMs: performance.now() };
  const perS = (what) => Math.round((1000 * (now[what] - before[what])) / (now.atMs - before.atMs));
  element("rates").textContent = `${perS("messages")} messages, ${perS("bytes").toLocaleString("en")} bytes a second`;
  element("under-way").textContent = String(seen.underWay);
  before = now;
  if (element("deltas").open) element("delta-rows").replaceChildren(...seen.last.map(row));
}

function row({ at, place, data }) {
  const message = decode(new Uint8Array(data));
  // A frame, as docs/reference/players-door.md has it; all else says its type.
  const [, topic, base, frame, , deltas, fulls, gone] = Array.isArray(message) ? message : [];
  const parts = [[(deltas?.length ?? 0) / 3, "groups of deltas"], [fulls?.length, "full states"], [gone?.length, "gone"]];
  const has = parts.filter(([some]) => some).map(([some, what]) => `${some} ${what}`);
  const follows = frame === undefined ? "" : base ? `${frame} on ${base}` : `${frame}, anew`;
  const type = frame === undefined ? message.type : `topic ${topic}`;
  const cells = [at.toLocaleTimeString("en-GB"), place, type, follows, has.join(", "), String(data.byteLength)];
  const made = document.createElement("tr");
  made.append(...cells.map((text) => Object.assign(document.createElement("td"), { textContent: text })));
  return made;
}
