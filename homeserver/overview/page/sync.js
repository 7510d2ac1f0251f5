// The synchronisation systems that run: who takes part, how far they are, and what each has counted.

import { ask, byId, el, keyed, say } from "./dom.js";
import { count } from "./map.js";
import { WhileSeen } from "./seen.js";

const AGAIN_MS = 1000;
// What the position of a system is counted in.
const UNITS = { followers: "frame", scene: "tick", "event stream": "tick" };
const NOTHING = "No show, scene or event stream runs here. A timeline runs in its clients; what they share goes by an event stream.";

export class Synchronisation {
  constructor() {
    this.seen = new WhileSeen(byId("sync"), () => this.#load(), AGAIN_MS);
  }

  async #load() {
    try {
      this.#show(await ask("synchronisation"));
      say(byId("sync-error"), "");
    } catch (error) {
      say(byId("sync-error"), error.message);
    }
  }

  #show({ synchronised, more, silent }) {
    const counted = `${count(synchronised.length)} shown${more ? ` of ${count(synchronised.length + more)}` : ""}.`;
    const unsaid = silent.length ? ` Not told by ${silent.join(", ")}.` : "";
    say(byId("sync-about"), (synchronised.length ? counted : NOTHING) + unsaid);
    byId("sync-table").hidden = synchronised.length === 0;
    keyed(byId("sync-rows"), synchronised, ({ entity, server }) => `${entity} ${server}`, makeRow, fillRow);
  }
}

function makeRow() {
  const counted = el("details", {}, el("summary"), el("dl"));
  return el("tr", {}, el("td"), el("th", { scope: "row" }, el("a")), ...Array.from({ length: 4 }, () => el("td")), el("td", {}, counted));
}

function fillRow(row, { system, entity, server, role, members, position, lag, counters, parts }) {
  const [kind, name, where, who, at, behind, counted] = row.children;
  say(kind, system);
  name.firstChild.setAttribute("href", `#entity/${entity}`);
  say(name.firstChild, entity);
  say(where, `${server}, ${role}`);
  say(who, count(members));
  say(at, position === null ? "" : `${UNITS[system] ?? ""} ${count(position)}`);
  say(behind, lag === null ? "" : count(lag));
  const known = Object.entries(counters).filter(([, value]) => value);
  say(counted.querySelector("summary"), known.length ? known.slice(0, 2).map(words).join(", ") : "nothing yet");
  const heard = ({ heard_ms: ms }) => (ms === null ? "never heard" : `heard ${count(ms)} ms ago`);
  const nodes = parts.map((part) => [part.name, `${part.position === null ? "no frame" : `frame ${count(part.position)}`}, ${heard(part)}`]);
  const rows = [...Object.entries(counters).map(([what, value]) => [what.replaceAll("_", " "), count(value)]), ...nodes];
  keyed(counted.querySelector("dl"), rows, ([what]) => what, () => el("div", {}, el("dt"), el("dd")), (pair, [what, value]) => {
    say(pair.firstChild, what);
    say(pair.lastChild, value);
  });
}

const words = ([what, value]) => `${what.replaceAll("_", " ")} ${count(value)}`;
