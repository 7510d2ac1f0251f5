// Charts of the last hour: drawn by uPlot, and written out as tables for who does not see them.

import { ask, byId, el, keyed, say } from "./dom.js";
import { WhileSeen } from "./seen.js";

const AGAIN_MS = 5000;
const KEPT = 720;
const HEIGHT = 170;
const ROWS = 24;
const COLOURS = 8;

// What is drawn together, with its unit; `of` gives the lines by name.
const CHARTS = [
  { title: "Transfers", unit: "per second", of: ({ done_per_s, refused_per_s }) => ({ done: done_per_s, refused: refused_per_s }) },
  { title: "Latency of transfers", unit: "ms", of: ({ transfer_p50_ms, transfer_p99_ms }) => ({ p50: transfer_p50_ms, p99: transfer_p99_ms }) },
  { title: "Tick time", unit: "% of the tick period", of: ({ servers }) => ofServers(servers, "tick_fraction", 100) },
  { title: "Late ticks", unit: "per second", of: ({ servers }) => ofServers(servers, "late_ticks_per_s", 1) },
  { title: "Log", unit: "per second", of: ({ entries_per_s, proposals_per_s, syncs_per_s }) => ({ entries: entries_per_s, "commands from here": proposals_per_s, "syncs here": syncs_per_s }) },
  { title: "Latency of the log", unit: "ms", of: ({ proposal_p50_ms, proposal_p99_ms }) => ({ p50: proposal_p50_ms, p99: proposal_p99_ms }) },
  { title: "Latency of syncs", unit: "ms", of: ({ sync_p50_ms, sync_p99_ms }) => ({ p50: sync_p50_ms, p99: sync_p99_ms }) },
];

const ofServers = (servers, column, by) =>
  Object.fromEntries(servers.map((one) => [one.name, one[column].map((value) => (value === null ? null : value * by))]));

const shown = (value) => (value === null || value === undefined ? "–" : value >= 100 ? value.toFixed(0) : value >= 10 ? value.toFixed(1) : value.toFixed(2));
const clock = (atS) => new Date(1000 * atS).toLocaleTimeString("en-GB");

/** The library, once somebody looks. */
let library = null;
function uPlotLoaded() {
  library ??= new Promise((done, failed) => {
    const script = el("script", { src: "uPlot.iife.min.js" });
    script.onload = () => done(globalThis.uPlot);
    script.onerror = () => failed(new Error("the library for charts was not loaded"));
    document.head.append(script);
  });
  return library;
}

export class Charts {
  constructor() {
    this.samples = null;
    this.drawn = new Map();
    this.seen = new WhileSeen(byId("charts"), () => this.#load(), AGAIN_MS);
    const anew = () => this.#draw(true);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", anew);
    new ResizeObserver(() => this.#resize()).observe(byId("chart-list"));
  }

  async #load() {
    try {
      const [plot, more] = await Promise.all([uPlotLoaded(), ask("samples", { after: this.samples?.last ?? 0 })]);
      this.plot = plot;
      this.samples = joined(this.samples, more);
      say(byId("charts-error"), "");
      this.#draw(false);
    } catch (error) {
      say(byId("charts-error"), error.message);
    }
  }

  #draw(anew) {
    if (!this.samples || !this.plot) return;
    const { at_s: times, told_by: by, every_s: every } = this.samples;
    const s = times.length * every;
    say(byId("charts-about"), `The last ${s < 120 ? `${s} s` : `${Math.round(s / 60)} min`}, a point for every ${every} s, as ${by} counted it.`);
    keyed(byId("chart-list"), CHARTS, ({ title }) => title, makeChart, (figure, chart) => this.#one(figure, chart, anew));
  }

  #one(figure, chart, anew) {
    const { at_s: times } = this.samples;
    const lines = Object.entries(chart.of(this.samples));
    const names = lines.map(([name]) => name);
    const data = [times, ...lines.map(([, values]) => values)];
    const [, legend, canvas, more] = figure.children;
    const before = this.drawn.get(chart.title);
    const now = lines.map(([name, values]) => `${name} ${shown(values.at(-1))}`).join(", ");
    canvas.setAttribute("aria-label", `${chart.title}, ${chart.unit}: now ${now || "nothing"}; the numbers are in the table`);
    keyed(legend, lines, ([name]) => name, () => el("li", {}, el("i"), el("span")), (item, [name, values]) => {
      item.firstChild.className = `colour-${names.indexOf(name) % COLOURS}`;
      say(item.lastChild, `${name} ${shown(values.at(-1))}`);
    });
    if (before && !anew && before.names.join() === names.join()) {
      before.plot.setData(data);
    } else {
      before?.plot.destroy();
      this.drawn.set(chart.title, { names, plot: new this.plot(options(canvas, names), data, canvas) });
    }
    if (more.open) fillTable(more.querySelector("table"), chart, times, lines);
    more.ontoggle = () => more.open && fillTable(more.querySelector("table"), chart, times, lines);
  }

  #resize() {
    for (const { plot } of this.drawn.values()) {
      const width = plot.root.parentElement.clientWidth;
      if (width && width !== plot.width) plot.setSize({ width, height: HEIGHT });
    }
  }
}

function joined(before, more) {
  // Another server's, or the same one's after a start.
  if (before === null || more.told_by !== before.told_by || more.last < before.last) return more;
  const missing = () => before.at_s.map(() => null);
  const add = (early, late) => [...early, ...late].slice(-KEPT);
  const columns = Object.keys(more).filter((name) => Array.isArray(more[name]) && name !== "servers");
  const names = [...new Set([...before.servers, ...more.servers].map(({ name }) => name))].sort();
  const pick = (servers, name) => servers.find((one) => one.name === name);
  const servers = names.map((name) => {
    const [early, late] = [pick(before.servers, name), pick(more.servers, name)];
    const part = (column) => add(early?.[column] ?? missing(), late?.[column] ?? more.at_s.map(() => null));
    return { name, tick_fraction: part("tick_fraction"), late_ticks_per_s: part("late_ticks_per_s") };
  });
  return { ...more, ...Object.fromEntries(columns.map((name) => [name, add(before[name], more[name])])), servers };
}

function makeChart({ title, unit }) {
  const table = el("div", { class: "scrolls", tabindex: 0, role: "region", "aria-label": `${title} as a table` }, el("table"));
  return el(
    "li",
    {},
    el("h3", {}, `${title} (${unit})`),
    el("ul", { class: "legend" }),
    el("div", { class: "chart", role: "img" }),
    el("details", {}, el("summary", {}, "Table"), table),
  );
}

function fillTable(table, { title, unit }, times, lines) {
  const from = Math.max(0, times.length - ROWS);
  const head = el("tr", {}, ...["Time", ...lines.map(([name]) => name)].map((name) => el("th", { scope: "col" }, name)));
  const rows = times.slice(from).map((at, number) => {
    const cells = lines.map(([, values]) => el("td", {}, shown(values[from + number])));
    return el("tr", {}, el("th", { scope: "row" }, clock(at)), ...cells);
  });
  table.replaceChildren(el("caption", {}, `${title}, ${unit}, newest first`), el("thead", {}, head), el("tbody", {}, ...rows.reverse()));
}

function options(place, names) {
  const style = getComputedStyle(document.documentElement);
  const colour = (name) => style.getPropertyValue(name).trim();
  const probe = el("i");
  place.append(probe);
  const stroke = names.map((_, at) => {
    probe.className = `colour-${at % COLOURS}`;
    return getComputedStyle(probe).backgroundColor;
  });
  probe.className = "soft-ink";
  const ink = getComputedStyle(probe).color;
  probe.remove();
  const axis = { stroke: ink, grid: { stroke: "rgb(128 128 128 / 0.25)", width: 1 }, ticks: { show: false }, font: "12px system-ui, sans-serif" };
  return {
    width: place.clientWidth || 300,
    height: HEIGHT,
    legend: { show: false },
    cursor: { show: false },
    select: { show: false },
    padding: [8, 8, 0, 0],
    scales: { y: { range: (_, __, high) => [0, high > 0 ? high * 1.1 : 1] } },
    axes: [
      { ...axis, space: 90, size: 28, values: "{HH}:{mm}:{ss}" },
      { ...axis, size: 48, values: (_, values) => values.map((value) => (value >= 1000 ? `${value / 1000}k` : String(Number(value.toPrecision(3))))) },
    ],
    series: [{}, ...names.map((label, at) => ({ label, stroke: stroke[at], width: 2, dash: at % 2 ? [6, 3] : undefined, spanGaps: false, points: { show: false } }))],
  };
}
