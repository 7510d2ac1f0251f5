// The list of entities: searched and paged by the server, and never in the way of who picks a filter.

import { ask, byId, fillRow, keyed, makeRow, paced, say } from "./dom.js";
import { count } from "./map.js";

const PAGE = 50;
const TYPING_MS = 200;
const AGAIN_MS = 1000;

export class EntityList {
  constructor(failed) {
    this.failed = failed;
    this.starts = [""];
    this.page = null;
    this.asked = 0;
    this.again = paced(() => this.load(), AGAIN_MS);
    const fresh = paced(() => this.#from([""]), TYPING_MS);
    byId("filter").addEventListener("submit", (event) => event.preventDefault());
    for (const id of ["search", "server", "standing"]) byId(id).addEventListener("input", fresh);
    byId("next").addEventListener("click", () => this.page?.after && this.#from([...this.starts, this.page.after]));
    byId("previous").addEventListener("click", () => this.#from(this.starts.slice(0, -1)));
  }

  #from(starts) {
    this.starts = starts.length ? starts : [""];
    return this.load();
  }

  /** The servers that may be chosen; what is chosen stays. */
  offer(servers) {
    const select = byId("server");
    const known = new Set([...select.options].map(({ value }) => value));
    for (const { name } of servers) if (!known.has(name)) select.add(new Option(name, name));
  }

  async load() {
    const asked = (this.asked += 1);
    const query = { search: byId("search").value, server: byId("server").value, standing: byId("standing").value };
    try {
      const page = await ask("entities", { ...query, limit: PAGE, after: this.starts.at(-1) });
      // A later question has been answered, or will be.
      if (asked === this.asked) this.#show(page);
    } catch (error) {
      this.failed(error);
    }
  }

  #show(page) {
    this.page = page;
    keyed(byId("entity-rows"), page.entities, ({ id }) => id, () => makeRow(5), (row, { id, kind, authority, owner, standing }) =>
      fillRow(row, [[id, `#entity/${id}`], kind, authority || "nobody", owner || "nobody", standing]),
    );
    byId("previous").disabled = this.starts.length === 1;
    byId("next").disabled = page.after === null;
    const first = (this.starts.length - 1) * PAGE;
    const shown = page.entities.length ? `${count(first + 1)} to ${count(first + page.entities.length)}` : "none";
    const filtered = ["search", "server", "standing"].some((id) => byId(id).value);
    say(byId("where"), filtered ? `${shown} of those that fit; ${count(page.total)} in all` : `${shown} of ${count(page.total)}`);
  }

  /** Entities have changed: read the page again if they may be on it. */
  changed({ entities, more }) {
    const shown = new Set(this.page?.entities.map(({ id }) => id));
    if (more || shown.size < PAGE || entities.some((id) => shown.has(id))) this.again();
  }
}
