// The cluster: a card for each server with its health and the reason, and entities as they pass between them.

import { button, mayAct } from "./acts.js";
import { byId, el, keyed, say, svg } from "./dom.js";

const number = new Intl.NumberFormat("en");
const MAX_DRAWN = 40;
const [WIDTH, HEIGHT] = [600, 208];
const STANDS = { ok: "is well", warning: "needs a look", down: "is down", unknown: "is not known" };

export const count = (value) => number.format(value);

function card() {
  return el(
    "li",
    {},
    el("div", { class: "head" }, el("span"), el("span")),
    el("div", { class: "figures" }),
    el("div", { class: "why" }),
  );
}

function fillCard(made, { name, health, why }, figures) {
  made.className = health;
  const [head, shown, reason] = made.children;
  say(head.children[0], name);
  head.children[1].className = `pill ${health}`;
  say(head.children[1], health);
  say(shown, figures);
  say(reason, why);
}

function serverCard() {
  const made = card();
  made.append(el("meter", { min: 0, max: 1, low: 0.6, high: 0.9, optimum: 0 }));
  made.append(button("", () => drain(made.server)));
  return made;
}

function fillServer(made, server) {
  const lease = server.lease === null ? "no lease" : `lease ${server.lease}, life ${server.incarnation}`;
  const load = `${count(server.entities)} entities, ${count(server.leaving)} leaving, ${Math.round(100 * server.tick_fraction)} % of its tick`;
  fillCard(made, server, `${load}; ${lease}`);
  const meter = made.querySelector("meter");
  meter.value = Math.min(1, server.tick_fraction);
  meter.setAttribute("aria-label", `load of ${server.name}`);
  made.server = server;
  const act = made.querySelector("button");
  act.hidden = !mayAct();
  say(act, server.draining ? "End the drain" : "Drain");
  act.setAttribute("aria-label", `${act.textContent} of ${server.name}`);
}

function drain({ name, draining }) {
  const what = draining ? `End the drain of ${name}: it takes entities again` : `Drain ${name}: all of its entities leave`;
  return { what, right: "operator", method: draining ? "DELETE" : "POST", path: `servers/${encodeURIComponent(name)}/drain` };
}

/** Where each server is drawn: on a flat ring. */
function places(servers) {
  return new Map(
    servers.map(({ name }, at) => {
      const angle = (2 * Math.PI * at) / servers.length - Math.PI;
      return [name, [WIDTH / 2 + (WIDTH / 2 - 80) * Math.cos(angle), HEIGHT / 2 + (HEIGHT / 2 - 34) * Math.sin(angle)]];
    }),
  );
}

export class ClusterMap {
  constructor() {
    this.flows = byId("flows");
    this.flows.setAttribute("viewBox", `0 0 ${WIDTH} ${HEIGHT}`);
    this.paths = svg("g");
    this.dots = svg("g");
    this.flows.append(this.paths, this.dots);
    this.places = new Map();
  }

  show(map) {
    say(byId("instance"), map.instance);
    const about = map.why ? `: ${map.why}` : "";
    const counted = `${count(map.entities)} entities, ${map.servers.length} simulation servers`;
    say(byId("summary"), `${map.instance} ${STANDS[map.health]}${about}. ${counted}; ${map.leader ?? "nobody"} leads in term ${map.term}. As ${map.told_by} sees it.`);
    keyed(byId("servers"), map.servers, ({ name }) => name, serverCard, fillServer);
    keyed(byId("members"), map.members, ({ name }) => name, card, (made, member) =>
      fillCard(made, member, member.leads ? "leads the log" : "follows the log"),
    );
    const others = map.others.map(({ name, hops }) => `${name} (H = ${hops})`);
    say(byId("others"), others.length ? `Other instances: ${others.join(", ")}` : "");
    this.#draw(map.servers);
  }

  #draw(servers) {
    // More do not fit; the cards have all of them.
    const drawn = servers.slice(0, 16);
    this.places = places(drawn);
    keyed(this.dots, drawn, ({ name }) => name, () => svg("g", {}, svg("circle", { r: 16 }), svg("text")), (made, server) => {
      const [x, y] = this.places.get(server.name);
      const [circle, text] = made.children;
      circle.setAttribute("class", server.health);
      made.setAttribute("transform", `translate(${x} ${y})`);
      text.setAttribute("y", y > HEIGHT / 2 ? -24 : 32);
      say(text, server.name);
    });
  }

  /** An entity passes from one server to another. */
  pass({ source, target }) {
    const [from, to] = [this.places.get(source), this.places.get(target)];
    if (!from || !to || source === target || this.paths.children.length >= MAX_DRAWN) return;
    const middle = [WIDTH / 2, HEIGHT / 2];
    const path = svg("path", { d: `M ${from} Q ${middle} ${to}` });
    path.addEventListener("animationend", () => path.remove());
    this.paths.append(path);
  }
}
