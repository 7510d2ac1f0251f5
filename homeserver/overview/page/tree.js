// The tree: what is below one of its nodes, searched and paged by the server, and asked for again while it is looked at.

import { tokens } from "./acts.js";
import { byId, el, keyed, paced, Refused, say } from "./dom.js";

const PAGE = 50;
const TYPING_MS = 200;
const AGAIN_MS = 1000;
// Of its time a homeserver spends at most a twentieth for one page.
const REST = 20;
const SHOWN_CHARACTERS = 80;

export class TreeOutline {
  constructor() {
    this.path = [];
    this.starts = [null];
    this.page = null;
    this.tag = "";
    this.timer = null;
    this.still = false;
    // Of very many nodes it can be told how names begin, and not what they have in them.
    this.begins = false;
    this.load = paced(() => this.#load(), TYPING_MS);
    byId("tree-form").addEventListener("submit", (event) => {
      event.preventDefault();
      tokens.client = byId("tree-token").value.trim();
      this.load();
    });
    for (const id of ["tree-search", "tree-deep"]) byId(id).addEventListener("input", () => this.#from([null]));
    byId("tree-next").addEventListener("click", () => this.page?.next && this.#from([...this.starts, this.page.next]));
    byId("tree-previous").addEventListener("click", () => this.#from(this.starts.slice(0, -1)));
    document.addEventListener("visibilitychange", this.load);
  }

  /** Show what is below a node, given by the names on the way to it. */
  open(path) {
    this.path = path;
    this.begins = false;
    byId("tree-search").value = "";
    this.#from([null]);
  }

  /** While it stands still, nothing is asked for. */
  hold(still) {
    this.still = still;
    this.load();
  }

  #from(starts) {
    this.starts = starts;
    this.tag = "";
    this.load();
  }

  async #load() {
    clearTimeout(this.timer);
    byId("tree-form").hidden = Boolean(tokens.client);
    if (!tokens.client || this.still || document.hidden) return;
    const began = performance.now();
    const asked = this.starts;
    try {
      const page = await this.#ask();
      say(byId("tree-error"), "");
      if (page && asked === this.starts) this.#show(page);
    } catch (error) {
      say(byId("tree-error"), error.message);
      if (error.status === 401 || error.status === 403) {
        delete tokens.client;
        byId("tree-form").hidden = false;
        return;
      }
    }
    this.timer = setTimeout(this.load, Math.max(AGAIN_MS, REST * (performance.now() - began)));
  }

  /** The nodes, or null if they are as they were. */
  async #ask() {
    const names = this.path.map(encodeURIComponent).join("/");
    const query = new URLSearchParams({ pattern: this.#pattern(), limit: PAGE, consistency: "low_latency" });
    if (this.starts.at(-1)) query.set("after", JSON.stringify(this.starts.at(-1)));
    const headers = { authorization: `Bearer ${tokens.client}`, "if-none-match": this.tag };
    const answer = await fetch(`../v1/tree${names && `/${names}`}?${query}`, { headers, cache: "no-store" });
    if (answer.status === 304) return null;
    if (!answer.ok) {
      const refused = new Refused(answer.status, await answer.json().catch(() => null));
      if (refused.code !== "too_much" || this.begins) throw refused;
      this.begins = true;
      return this.#ask();
    }
    this.tag = answer.headers.get("etag") ?? "";
    return answer.json();
  }

  #pattern() {
    const deep = byId("tree-deep").checked;
    const text = byId("tree-search").value;
    if (!text) return deep ? "**" : "*";
    const fits = this.begins ? ["prefix", text] : ["regex", text.replace(/[\\^$.|?*+()[\]{}]/g, "\\$&")];
    return JSON.stringify([[deep ? "if_path_matches" : "if_name_matches", ...fits]]);
  }

  #show(page) {
    this.page = page;
    say(byId("tree-search-name"), this.begins ? "Name begins with" : "Name has");
    const steps = ["tree", ...this.path].map((name, at) => el("a", { href: address(this.path.slice(0, at)) }, name));
    byId("tree-path").replaceChildren(...steps.flatMap((step, at) => (at ? [" / ", step] : [step])));
    keyed(byId("tree-rows"), page.nodes, ({ path }) => JSON.stringify(path), makeNode, (row, node) => fillNode(row, node, this.path.length));
    byId("tree-previous").disabled = this.starts.length === 1;
    byId("tree-next").disabled = page.next === null;
    say(byId("tree-where"), page.nodes.length ? `page ${this.starts.length}, revision ${page.revision}` : "no node fits");
  }
}

const address = (path) => `#tree${path.map((name) => `/${encodeURIComponent(name)}`).join("")}`;

function makeNode() {
  const shown = el("details", {}, el("summary"), el("pre"));
  return el("tr", {}, el("td", {}, el("a")), el("td"), el("td", {}, el("a")), el("td", {}, shown));
}

function fillNode(row, { path, data, has_data, child_list_length: below }, depth) {
  const [name, count, rights, shown] = row.children;
  say(name.firstChild, path.slice(depth).join(" / "));
  name.firstChild.setAttribute("href", address(path));
  say(count, below ? String(below) : "");
  const whose = has_data && path[0] === "entities" && path.length === 2;
  say(rights.firstChild, whose ? `${data.rule}, owner ${data.owner || "nobody"}, master ${data.master}, at ${data.authority || "nobody"}` : "");
  rights.firstChild.hidden = !whose;
  rights.firstChild.setAttribute("href", `#entity/${path[1]}`);
  const text = has_data ? JSON.stringify(data) : "";
  shown.firstChild.hidden = !has_data;
  say(shown.querySelector("summary"), text.length > SHOWN_CHARACTERS ? `${text.slice(0, SHOWN_CHARACTERS)}…` : text);
  say(shown.querySelector("pre"), has_data ? JSON.stringify(data, null, 2) : "");
}
