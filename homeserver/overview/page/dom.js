// Making elements, keeping rows, and asking the homeserver that this page is from.

const SVG = "http://www.w3.org/2000/svg";

export const byId = (id) => document.getElementById(id);

function fill(made, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined && value !== false) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

/** An element with attributes and children; texts become text, never markup. */
export const el = (tag, attributes = {}, ...children) => fill(document.createElement(tag), attributes, children);

export const svg = (tag, attributes = {}, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

/** Set a text only where it differs: what is read aloud, or selected, is left alone. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Have `parent` show these items, each by an element of its own that stays while its key does, focus and all. */
export function keyed(parent, items, keyOf, make, update) {
  const before = new Map([...parent.children].map((child) => [child.dataset.key, child]));
  let place = parent.firstElementChild;
  for (const item of items) {
    const key = String(keyOf(item));
    const found = before.get(key) ?? make(item);
    found.dataset.key = key;
    before.delete(key);
    update(found, item);
    if (found === place) place = place.nextElementSibling;
    else parent.insertBefore(found, place);
  }
  for (const gone of before.values()) gone.remove();
}

/** A row of texts; a cell may be a link, as [text, href]. */
export function makeRow(count) {
  return el("tr", {}, ...Array.from({ length: count }, () => el("td")));
}

export function fillRow(row, cells) {
  cells.forEach((cell, at) => {
    const place = row.children[at];
    if (!Array.isArray(cell)) return say(place, cell);
    const [text, href] = cell;
    const link = place.querySelector("a") ?? place.appendChild(el("a"));
    link.setAttribute("href", href);
    return say(link, text);
  });
}

export class Refused extends Error {
  constructor(status, body) {
    super(body?.message ?? `the homeserver answers ${status}`);
    this.status = status;
    this.code = body?.code ?? "";
  }
}

/** The JSON of an answer; throws `Refused`. */
export async function ask(path, query = {}) {
  const given = Object.entries(query).filter(([, value]) => value !== "" && value !== null);
  const text = given.length ? `?${new URLSearchParams(given)}` : "";
  const answer = await fetch(`../v1/${path}${text}`, { cache: "no-store" });
  const body = await answer.json().catch(() => null);
  if (!answer.ok) throw new Refused(answer.status, body);
  return body;
}

/** Call `work` soon, and again later if it was asked for meanwhile: at most once in `everyMs`, one at a time. */
export function paced(work, everyMs) {
  let timer = null;
  let last = -Infinity;
  let running = false;
  let again = false;
  async function run() {
    timer = null;
    last = performance.now();
    running = true;
    try {
      await work();
    } finally {
      running = false;
      if (again) {
        again = false;
        wanted();
      }
    }
  }
  function wanted() {
    if (running) again = true;
    else timer ??= setTimeout(run, Math.max(0, last + everyMs - performance.now()));
  }
  return wanted;
}
