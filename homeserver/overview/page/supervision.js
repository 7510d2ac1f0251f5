// The supervision tree of a server: what runs, since when, what was started again, and why. Paged by the server.

import { ask, byId, el, keyed, say } from "./dom.js";
import { count } from "./map.js";
import { WhileSeen } from "./seen.js";

const PAGE = 50;
const AGAIN_MS = 2000;
const LOOKS = { running: "ok", starting: "unknown", suspended: "warning", exiting: "warning", restarting: "warning", stopped: "unknown" };

const age = (s) => (s < 120 ? `${Math.round(s)} s` : s < 7200 ? `${Math.round(s / 60)} min` : `${Math.round(s / 3600)} h`);
const address = (server, pid) => `#supervision/${server}${pid ? `/${pid}` : ""}`;

export class SupervisionTree {
  constructor() {
    this.server = "";
    this.under = null;
    this.first = 0;
    this.page = null;
    this.seen = new WhileSeen(byId("supervision"), () => this.#load(), AGAIN_MS);
    byId("supervised").addEventListener("input", ({ target }) => (location.hash = address(target.value)));
    byId("supervision-next").addEventListener("click", () => this.page?.next && this.#from(this.page.next));
    byId("supervision-previous").addEventListener("click", () => this.#from(Math.max(0, this.first - PAGE)));
  }

  /** The servers that may be chosen; what is chosen stays. */
  offer({ servers, members }) {
    const select = byId("supervised");
    const known = new Set([...select.options].map(({ value }) => value));
    for (const { name } of [...servers, ...members]) if (!known.has(name)) select.add(new Option(name, name));
    // The address may have named one before it was known which there are.
    this.server ||= select.value;
    select.value = this.server;
  }

  /** Show a server, and of that a supervisor by its pid, or all. */
  open(server, pid = null) {
    this.server = server;
    this.under = pid;
    byId("supervised").value = server;
    byId("supervision").scrollIntoView();
    this.#from(0);
  }

  #from(first) {
    this.first = first;
    this.seen.now();
  }

  async #load() {
    const { server, under, first } = this;
    if (!server) return;
    try {
      const page = await ask(`servers/${encodeURIComponent(server)}/supervision`, { under, first, limit: PAGE });
      if (server !== this.server || under !== this.under || first !== this.first) return;
      say(byId("supervision-error"), "");
      this.#show(page);
    } catch (error) {
      if (server !== this.server || under !== this.under) return;
      // It was started again, and has another pid.
      if (error.code === "unknown_actor") this.under = null;
      say(byId("supervision-error"), error.message);
    }
  }

  #show(page) {
    this.page = page;
    const steps = [...page.above, page.top].map(({ pid, id }) => el("a", { href: address(this.server, pid) }, id));
    byId("supervision-path").replaceChildren(...steps.flatMap((step, at) => (at ? [" / ", step] : [step])));
    const rows = this.first ? withRest(page) : [page.top, ...withRest(page)];
    keyed(byId("supervision-rows"), rows, ({ pid, key, id, depth }) => key ?? pid ?? `${depth} ${id}`, makeActor, (row, one) => fillActor(row, one, this.server));
    byId("supervision-previous").disabled = page.first === 0;
    byId("supervision-next").disabled = page.next === null;
    const direct = page.below.filter(({ depth }) => depth === 1).length;
    const shown = direct ? `${count(page.first + 1)} to ${count(page.first + direct)} of ${count(page.top.children)} below ${page.top.id}` : "nothing below it";
    const again = page.restarts === 1 ? "1 restart" : `${count(page.restarts)} restarts`;
    say(byId("supervision-where"), `${shown}; ${count(page.actors)} actors, ${again} in the last hour`);
  }
}

/** The rows below, and one where a supervisor has more children than are shown. */
function withRest({ below, top, first }) {
  const rows = [];
  const open = [{ one: top, shown: first, more: false }];
  const close = (depth) => {
    while (open.length > depth) {
      const { one, shown } = open.pop();
      if (open.length && one.children > shown) rows.push({ key: `more ${one.pid}`, rest: one.children - shown, pid: one.pid, depth: one.depth + 1 });
    }
  };
  for (const one of below) {
    close(one.depth);
    open.at(-1).shown += 1;
    rows.push(one);
    open.push({ one, shown: 0 });
  }
  close(1);
  return rows;
}

function makeActor() {
  return el("tr", {}, el("th", { scope: "row" }, el("a")), el("td", {}, el("span")), ...Array.from({ length: 5 }, () => el("td")));
}

function fillActor(row, one, server) {
  const [name, state, restarts, reason, waiting, since, module] = row.children;
  name.className = `level-${Math.min(one.depth, 6)}`;
  const isAbove = one.rest || one.children > 0;
  if (isAbove) name.firstChild.setAttribute("href", address(server, one.pid));
  else name.firstChild.removeAttribute("href");
  say(name.firstChild, one.rest ? `${count(one.rest)} more` : one.id);
  state.firstChild.className = one.rest ? "" : `pill ${LOOKS[one.state]}`;
  say(state.firstChild, one.rest ? "" : one.state);
  say(restarts, one.restarts ? count(one.restarts) : "");
  say(reason, one.reason ? `${one.reason}, ${age(one.restarted_s)} ago` : "");
  say(waiting, one.mailbox_limit ? `${count(one.waiting)} of ${count(one.mailbox_limit)}` : "");
  say(since, one.rest || one.pid === null ? "" : age(one.age_s));
  say(module, one.rest ? "" : one.kind === "supervisor" ? `supervisor of ${count(one.children)}` : one.module.split(".").pop() || (one.kind ?? ""));
}
