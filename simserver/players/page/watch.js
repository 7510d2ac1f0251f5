// The page of a simulation server's door: its entities, as they change. It looks on as an observer.

import { Door } from "./client.js";

// Of a table that people read.
const MAX_ROWS = 200;
const SHOWN_CHARS = 200;

const element = (id) => document.getElementById(id);
const rows = new Map();
let hidden = 0;
let stop = () => {};

const door = new Door(location.origin);
door.onstate = (state) => {
  element("state").textContent = state === "no_observers" ? "this server lets nobody look on" : state;
  element("state").classList.toggle("open", state === "open");
  element("server").textContent = door.server || "…";
  if (state !== "open") clear();
};

function clear() {
  rows.clear();
  hidden = 0;
  element("entities").replaceChildren();
  count();
}

function count() {
  const more = hidden ? `, of which ${MAX_ROWS} are shown` : "";
  element("count").textContent = `${rows.size + hidden} entities${more}`;
  element("none").hidden = !door.isOpen || rows.size > 0;
}

function plain(_key, value) {
  if (typeof value === "bigint") return value.toString();
  if (value instanceof Uint8Array) return `${value.length} bytes`;
  if (value instanceof Map) return [...value.entries()];
  return value;
}

function row(name) {
  const made = document.createElement("tr");
  made.append(...Array.from({ length: 6 }, () => document.createElement("td")));
  made.dataset.entity = name;
  // By name, so that rows do not jump about.
  const next = [...rows].filter(([other]) => other > name).sort(([one], [two]) => (one < two ? -1 : 1))[0];
  element("entities").insertBefore(made, next ? next[1] : null);
  rows.set(name, made);
  return made;
}

function show(entity) {
  if (!rows.has(entity.name) && rows.size >= MAX_ROWS) {
    hidden = door.mirror.entities.size - rows.size;
    count();
    return;
  }
  const isNew = !rows.has(entity.name);
  const cells = (rows.get(entity.name) ?? row(entity.name)).children;
  const state = JSON.stringify(entity.state, plain) ?? "";
  const texts = [entity.name, entity.kind, entity.owner || "nobody", `${entity.epoch}.${entity.sub}`, entity.tick, state.slice(0, SHOWN_CHARS)];
  texts.forEach((text, at) => {
    cells[at].textContent = text;
  });
  if (isNew) count();
}

function gone(name) {
  rows.get(name)?.remove();
  rows.delete(name);
  hidden = Math.max(0, door.mirror.entities.size - rows.size);
  count();
}

function watch() {
  stop();
  clear();
  const pattern = element("pattern").value.trim() || "*";
  const rate_hz = Math.max(1, Math.min(20, Number(element("rate").value) || 5));
  stop = door.watch({ pattern, rate_hz }, show, gone, ({ message }) => {
    element("count").textContent = message;
  });
}

element("filter").addEventListener("submit", (event) => event.preventDefault());
element("filter").addEventListener("change", watch);
watch();
