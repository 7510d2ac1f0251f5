// Transfers as they go, and one entity or one transfer in detail: in a sentence, on lanes, and message by message.

import { buttons, mayAct } from "./acts.js";
import { ask, byId, el, fillRow, keyed, makeRow, paced, say, svg } from "./dom.js";

const KEPT = 50;
const AGAIN_MS = 500;
const NS_PER_MS = 1e6;
const LANE = 42;
const [LEFT, RIGHT, WIDTH] = [80, 16, 520];

const phaseOf = ({ phase, reason }) => (reason ? `${phase}: ${reason}` : phase);
const link = (kind, id, text = id) => el("a", { href: `#${kind}/${id}` }, text);

export class TransferList {
  constructor(failed, passed) {
    this.failed = failed;
    this.passed = passed;
    this.rows = new Map();
    this.again = paced(() => this.load(), AGAIN_MS);
  }

  async load() {
    try {
      const found = await ask("transfers", { limit: KEPT });
      this.rows = new Map(found.reverse().map((row) => [row.transfer_id, row]));
      this.#show();
    } catch (error) {
      this.failed(error);
    }
  }

  changed({ transfers, more }) {
    for (const row of transfers) {
      const before = this.rows.get(row.transfer_id)?.phase;
      if (["committed", "done"].includes(row.phase) && !["committed", "done"].includes(before)) this.passed(row);
      this.rows.set(row.transfer_id, row);
    }
    while (this.rows.size > KEPT) this.rows.delete(this.rows.keys().next().value);
    say(byId("rate"), more ? `${more} more changes in the last moment than are shown here` : "");
    this.#show();
  }

  #show() {
    const newest = [...this.rows.values()].reverse();
    keyed(byId("transfer-rows"), newest, ({ transfer_id: id }) => id, () => makeRow(5), (row, one) =>
      fillRow(row, [
        [one.transfer_id.slice(0, 12), `#transfer/${one.transfer_id}`],
        [one.entity, `#entity/${one.entity}`],
        one.source || "…",
        one.target,
        phaseOf(one),
      ]),
    );
  }
}

const pairs = (rows) => el("dl", {}, ...rows.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))));

export class Detail {
  constructor() {
    this.shown = null;
    this.servers = [];
    this.again = paced(() => this.load(), AGAIN_MS);
  }

  /** The servers to which an entity may be moved. */
  offer(servers) {
    this.servers = servers.map(({ name }) => name);
  }

  /** Show what the address of the page names: `entity/ID`, `transfer/ID`, or nothing. */
  async open(kind, id) {
    const isNew = this.shown?.id !== id;
    this.shown = ["entity", "transfer"].includes(kind) && id ? { kind, id } : null;
    byId("detail").hidden = this.shown === null;
    if (this.shown === null) return;
    await this.load();
    if (isNew) byId("detail-title").focus();
  }

  async load() {
    if (this.shown === null) return;
    const { kind, id } = this.shown;
    try {
      const made = await (kind === "entity" ? entity(id, this.servers) : transfer(id));
      if (this.shown?.id !== id) return;
      say(byId("detail-title"), `${kind === "entity" ? "Entity" : "Transfer"} ${id}`);
      const wasOpen = byId("detail-body").querySelector("details[open]") !== null;
      // What somebody is choosing stays as it is.
      if (byId("detail-body").querySelector("select:focus, select.chosen") && byId("detail").dataset.shown === id) return;
      byId("detail").dataset.shown = id;
      byId("detail-body").replaceChildren(...made.filter((each) => each !== null));
      byId("detail-body").querySelector("details")?.toggleAttribute("open", wasOpen);
    } catch (error) {
      say(byId("detail-title"), id);
      byId("detail-body").replaceChildren(el("p", {}, error.message));
    }
  }

  changed({ entities = [], transfers = [] }) {
    const { id } = this.shown ?? {};
    if (entities.includes(id) || transfers.some((one) => one.transfer_id === id || one.entity === id)) this.again();
  }
}

async function entity(id, servers) {
  const path = `entities/${encodeURIComponent(id)}`;
  const [record, why, moved] = await Promise.all([
    ask(path),
    ask(`${path}/why`),
    ask(`${path}/transfers`, { limit: 10 }),
  ]);
  const rows = [
    ["Standing", record.standing],
    ["Authority", record.authority || "nobody"],
    ["Fence", `epoch ${record.epoch}, sub-epoch ${record.sub}`],
    ["Owner", record.owner || "nobody"],
    ["Master", record.master],
    ["Rule", record.rule],
    ["Kind", record.kind],
    ["Delegated to", record.delegation.join(", ") || "nobody"],
    ["Parent", record.parent || "none"],
    ["Children", String(record.children.length)],
    ["Locks", Object.keys(record.locks).join(", ") || "none"],
  ];
  const cause = el("p", { class: why.runs ? "" : "remedy" }, why.runs ? `It runs. ${why.text}` : `It does not run: ${why.text}. ${why.remedy}`);
  const list = moved.map((one) =>
    el("li", {}, link("transfer", one.transfer_id), ` ${one.source || "…"} → ${one.target}, ${phaseOf(one)}`),
  );
  return [cause, entityActs(record, servers), pairs(rows), el("h3", {}, "Its transfers"), list.length ? el("ul", {}, ...list) : el("p", {}, "none are remembered")];
}

const RULES = ["ask", "allow", "deny"];

function entityActs(record, servers) {
  if (!mayAct()) return null;
  const path = `entities/${encodeURIComponent(record.id)}`;
  const others = servers.filter((name) => name !== record.authority);
  const [to, rule] = [choice("Server to move it to", others), choice("Rule of it", RULES.filter((one) => one !== record.rule))];
  const move = () => ({
    what: `Move ${record.id} to ${to.value}`,
    right: "client",
    method: "POST",
    path: `${path}/transfers`,
    body: { to: to.value, transfer_id: crypto.randomUUID() },
  });
  const setRule = () => ({
    what: `Set the rule of ${record.id} to ${rule.value}`,
    right: "client",
    method: "PATCH",
    path,
    body: { rule: rule.value },
    by: record.master,
    statement: {
      ...{ action: "rights", entity: record.id, rule: rule.value, owner: null, master: null },
      ...{ rule_rev: record.rule_rev, owner_rev: record.owner_rev, master_rev: record.master_rev },
    },
  });
  const remove = () => ({ what: `Delete ${record.id} for good: its id is not given again`, right: "operator", method: "DELETE", path });
  const row = buttons(["Move", move], ["Set the rule", setRule], ["Delete", remove]);
  row.firstElementChild.before(to);
  row.children[2].before(rule);
  return row;
}

function choice(label, values) {
  const made = el("select", { "aria-label": label }, ...values.map((value) => el("option", {}, value)));
  made.addEventListener("input", () => made.classList.add("chosen"));
  return made;
}

/** Of a transfer that waits for its master, or is a move that nobody has asked for in a player's name. */
async function transferActs(one) {
  if (!mayAct() || one.result !== "pending") return null;
  const path = `transfers/${encodeURIComponent(one.transfer_id)}`;
  if (one.phase === "asked") {
    const { master, master_rev } = await ask(`entities/${encodeURIComponent(one.entity)}`);
    const answer = (allow) => () => ({
      what: `${allow ? "Allow" : "Deny"} ${one.requester} to own ${one.entity}`,
      right: "client",
      method: "POST",
      path: `${path}/answer`,
      body: { allow, master_rev },
      by: master,
      statement: { action: "answer", transfer_id: one.transfer_id, allow, master_rev },
    });
    return buttons(["Allow", answer(true)], ["Deny", answer(false)]);
  }
  const back = { what: `Take back the move of ${one.entity} to ${one.target}`, right: "operator", method: "DELETE", path };
  return one.requester ? null : buttons(["Take it back", () => back]);
}

async function transfer(id) {
  const one = await ask(`transfers/${encodeURIComponent(id)}`);
  const hops = one.hops === null ? "hops not counted yet" : `${one.hops} hops`;
  const rows = [
    ["Phase", phaseOf(one)],
    ["Result", one.result],
    ["Waits", one.waits || "for nothing"],
    ["Asked by", one.requester || "the system"],
    ["Fence", `epoch ${one.epoch}, sub-epoch ${one.sub}`],
    ["Mode", one.direct ? "direct" : (one.mode_taken ?? one.mode)],
    ...Object.entries(one.timings_ms ?? {}).map(([phase, ms]) => [phase, `${ms.toFixed(2)} ms`]),
  ];
  const sentence = el("p", {}, link("entity", one.entity), `: ${one.source || "…"} → ${one.target}, ${hops}.`);
  const acts = await transferActs(one);
  return one.trace === null ? [sentence, acts, pairs(rows)] : [sentence, acts, lanes(one.trace), pairs(rows), messages(one.trace)];
}

/** Each server is a lane, each message a line from the one to the other, from left to right in time. */
function lanes({ hops, marks }) {
  const times = [...hops.flatMap(([, , , , sent, received]) => [sent, received]), ...marks.map(([, , at]) => at)].filter((at) => at > 0);
  const servers = [...new Set([...hops.flatMap(([, , from, to]) => [from, to]), ...marks.map(([name]) => name)])];
  if (!times.length) return el("p", {}, "It has no times.");
  const [first, last] = [Math.min(...times), Math.max(...times)];
  const x = (at) => LEFT + ((at - first) / Math.max(1, last - first)) * (WIDTH - LEFT - RIGHT);
  const y = (name) => 24 + servers.indexOf(name) * LANE;
  const height = 24 + servers.length * LANE;
  const drawn = servers.flatMap((name) => [
    svg("text", { x: 0, y: y(name) + 4 }, name),
    svg("line", { x1: LEFT, x2: WIDTH - RIGHT, y1: y(name), y2: y(name) }),
  ]);
  for (const [, kind, from, to, sent, received] of hops) {
    drawn.push(svg("path", { d: `M ${x(sent)} ${y(from)} L ${x(received)} ${y(to)}` }));
    drawn.push(svg("text", { class: "soft", x: Math.min(x(sent) + 4, WIDTH - 80), y: (y(from) + y(to)) / 2 - 4 }, kind));
  }
  drawn.push(svg("text", { class: "soft", x: LEFT, y: height - 4 }, `${((last - first) / NS_PER_MS).toFixed(2)} ms in all`));
  const label = hops.map(([, kind, from, to]) => `${kind} from ${from} to ${to}`).join(", ");
  return svg("svg", { class: "lanes", viewBox: `0 0 ${WIDTH} ${height}`, role: "img", "aria-label": label || "no messages" }, ...drawn);
}

function messages({ hops, marks }) {
  const from = Math.min(...hops.map(([, , , , sent]) => sent), ...marks.map(([, , at]) => at));
  const ms = (at) => ((at - from) / NS_PER_MS).toFixed(2);
  const head = ["Hop", "Message", "From", "To", "Sent ms", "Under way ms", "Bytes"].map((text) => el("th", { scope: "col" }, text));
  const body = hops.map(([at, kind, source, target, sent, received, bytes]) =>
    el("tr", {}, ...[at, kind, source, target, ms(sent), ((received - sent) / NS_PER_MS).toFixed(2), bytes].map((text) => el("td", {}, String(text)))),
  );
  const shown = marks.map(([server, label, at]) => el("li", {}, `${ms(at)} ms: ${label} at ${server}`));
  const table = el("table", {}, el("thead", {}, el("tr", {}, ...head)), el("tbody", {}, ...body));
  return el(
    "details",
    {},
    el("summary", {}, "Message by message"),
    el("div", { class: "scrolls", tabindex: 0, role: "region", "aria-label": "Messages" }, table),
    el("ul", {}, ...shown),
  );
}
