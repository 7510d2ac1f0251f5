// The page of a renderer: asks for what is there again and again, and draws it.

const AGAIN_MS = 200;
const ground = document.getElementById("ground");
const chosen = document.getElementById("scene");
const rows = document.querySelector("#graph tbody");
const state = document.getElementById("state");
const summary = document.getElementById("summary");

async function asked(path) {
  const answer = await fetch(path, { cache: "no-store" });
  if (!answer.ok) throw new Error(`${path}: ${answer.status}`);
  return answer.json();
}

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name);
}

function draw(overview) {
  const places = [...overview.scenes.filter((one) => !one.is_global).map((one) => [one.x, one.z]), ...overview.players];
  const margin = 16;
  const left = Math.min(...places.map(([x]) => x)) - margin;
  const top = Math.min(...places.map(([, z]) => z)) - margin;
  const size = Math.max(...places.map(([x, z]) => Math.max(x - left, z - top))) + margin || 1;
  const scale = ground.width / size;
  const pen = ground.getContext("2d");
  pen.clearRect(0, 0, ground.width, ground.height);
  const shown = overview.scenes.findIndex((one) => one.name === chosen.value);
  const [dot, other, player] = ["--dot", "--other", "--player"].map(colour);
  for (const [scene, x, z] of overview.points) {
    const half = scene === shown ? 4 : 2;
    pen.fillStyle = scene === shown ? dot : other;
    pen.fillRect((x - left) * scale - half, (z - top) * scale - half, 2 * half, 2 * half);
  }
  pen.strokeStyle = player;
  pen.lineWidth = 3;
  for (const [x, z] of overview.players) {
    const [at, down] = [(x - left) * scale, (z - top) * scale];
    pen.beginPath();
    pen.moveTo(at - 7, down - 7);
    pen.lineTo(at + 7, down + 7);
    pen.moveTo(at + 7, down - 7);
    pen.lineTo(at - 7, down + 7);
    pen.stroke();
  }
}

function offer(names) {
  const before = chosen.value;
  if ([...chosen.options].map((one) => one.value).join("\n") === names.join("\n")) return;
  chosen.replaceChildren(...names.map((name) => new Option(name, name)));
  if (names.includes(before)) chosen.value = before;
}

// Parents come before what is below them; an entity in a circle stands at the root.
function tree(entities) {
  const below = new Map();
  const known = new Set(entities.map((one) => one.entity));
  for (const one of entities) {
    const parent = known.has(one.parent) && one.parent !== one.entity ? one.parent : null;
    below.set(parent, [...(below.get(parent) ?? []), one]);
  }
  const ordered = [];
  const seen = new Set();
  function walk(parent, depth) {
    for (const one of below.get(parent) ?? []) {
      if (seen.has(one.entity)) continue;
      seen.add(one.entity);
      ordered.push([one, depth]);
      walk(one.entity, depth + 1);
    }
  }
  walk(null, 0);
  for (const one of entities) if (!seen.has(one.entity)) ordered.push([one, 0]);
  return ordered;
}

function cell(text) {
  const made = document.createElement("td");
  made.textContent = text;
  return made;
}

function list(graph) {
  const lines = [];
  for (const [one, depth] of tree(graph.entities)) {
    one.components.forEach((component, at) => {
      const line = document.createElement("tr");
      line.dataset.entity = one.entity;
      const place = one.place === null ? "" : one.place.map((number) => number.toFixed(2)).join(", ");
      const name = component.name || String(component.component);
      line.append(
        cell(at ? "" : `${"\u2007\u2007".repeat(depth)}${one.entity}`),
        cell(at ? "" : place),
        cell(`${name} (${component.bytes} B)`),
        cell(component.writer),
        cell(component.tick),
        cell(component.authority),
        cell(component.timestamp),
        cell(at ? "" : (one.owner ?? "everybody")),
      );
      lines.push(line);
    });
  }
  rows.replaceChildren(...lines);
  summary.textContent = `${graph.entities.length} of ${graph.all_entities} entities, tick ${graph.tick}`;
}

async function look() {
  try {
    const overview = await asked("/scenes");
    offer(overview.scenes.map((one) => one.name));
    draw(overview);
    state.textContent = `frame ${overview.frame}, ${overview.scenes.length} scenes, ${overview.players.length} players`;
    if (chosen.value) list(await asked(`/scenes/${encodeURIComponent(chosen.value)}`));
  } catch {
    state.textContent = "the renderer does not answer";
  }
  setTimeout(look, AGAIN_MS);
}

look();
