/** The page of the game: draws what the driver holds, and turns keys and touches into events. No part of the simulation. */

import { StreamClient } from "./events.js";
import { Boat, Fireflies, Firefly, HEIGHT, Pond, UNIT, WIDTH } from "./fireflies.js";

const STEER_MS = 100;
const ARRIVED = 40; // units
const FULL_SPEED = 240; // units from the aim
const COLOURS = ["#ffb35c", "#74caff"];
const NAMES = ["Orange", "Blue"];
const KEYS = {
  ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1],
  KeyA: [-1, 0], KeyD: [1, 0], KeyW: [0, -1], KeyS: [0, 1],
};
const STATES = {
  connecting: ["connecting …", ""], websocket: ["connected", "good"], polling: ["connected, polling", "good"],
  lost: ["server not reached, trying on", "bad"], refused: ["refused", "bad"], failed: ["failed", "bad"], stopped: ["left", "bad"],
};

const element = (id) => document.getElementById(id);
const scene = element("scene");
const drawing = scene.getContext("2d");
const isCalm = matchMedia("(prefers-reduced-motion: reduce)").matches;
const settings = new URLSearchParams(location.search);

const game = new Fireflies({ trace: settings.has("trace") });
const client = new StreamClient({
  server: new URL(".", location.href),
  stream: settings.get("stream") || "fireflies",
  privateId: privateId(),
  driver: game,
  useWebSocket: !settings.has("poll"),
});

/** Of this tab: it stays the same player when the page is loaded again. */
function privateId() {
  let id = sessionStorage.getItem("private id");
  if (!id) {
    id = Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
    sessionStorage.setItem("private id", id);
  }
  return id;
}

// ------------------------------------------------------------------------------------------------------ steering

const pressed = new Set();
let aim = null; // where the boat is to go, in units
let steered = "0 0";
let steeredAt = 0;

addEventListener("keydown", (event) => {
  if (!KEYS[event.code] || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  aim = null;
  pressed.add(event.code);
});
addEventListener("keyup", (event) => pressed.delete(event.code));
addEventListener("blur", () => pressed.clear());
for (const kind of ["pointerdown", "pointermove"]) {
  scene.addEventListener(kind, (event) => {
    if (kind === "pointermove" && event.buttons === 0) return;
    if (kind === "pointerdown") scene.setPointerCapture(event.pointerId);
    const box = scene.getBoundingClientRect();
    aim = { x: ((event.clientX - box.left) / box.width) * WIDTH, y: ((event.clientY - box.top) / box.height) * HEIGHT };
  });
}

const ownBoat = () => game.entities(Boat).find((boat) => boat.owner === client.publicId);

/** From -8 to 8 in both directions: the keys that are pressed, or towards the aim. */
function wanted(boat) {
  let [x, y] = [0, 0];
  for (const code of pressed) [x, y] = [x + KEYS[code][0], y + KEYS[code][1]];
  let strength = 1;
  if (aim) {
    [x, y] = [aim.x - boat.x / UNIT, aim.y - boat.y / UNIT];
    const distance = Math.hypot(x, y);
    if (distance < ARRIVED) aim = null;
    strength = aim ? Math.min(1, distance / FULL_SPEED) : 0;
  }
  const length = Math.hypot(x, y) || 1;
  return [x, y].map((part) => Math.round((8 * strength * part) / length) + 0).join(" ");
}

function steer(now) {
  const boat = ownBoat();
  if (!boat || now - steeredAt < STEER_MS) return;
  const next = wanted(boat);
  if (next === steered && (next !== "0 0" || (boat.dx === 0 && boat.dy === 0))) return;
  if (next === steered && now - steeredAt < 1000) return; // it is on its way
  steered = next;
  steeredAt = now;
  client.sendEvent("steer", next);
}

// ------------------------------------------------------------------------------------------------------- drawing

let places = new Map(); // id -> where it was a tick ago, and is
let tickedAt = 0;

client.addEventListener("tick", () => {
  const next = new Map();
  for (const entity of [...game.entities(Firefly), ...game.entities(Boat)]) {
    const now = { x: entity.x / UNIT, y: entity.y / UNIT };
    next.set(entity.id, { was: places.get(entity.id)?.now ?? now, now });
  }
  places = next;
  tickedAt = performance.now();
  show();
});
client.addEventListener("state", show);
client.addEventListener("desync", show);

function place(entity, part) {
  const { was, now } = places.get(entity.id) ?? { was: { x: 0, y: 0 }, now: { x: 0, y: 0 } };
  return [was.x + (now.x - was.x) * part, was.y + (now.y - was.y) * part];
}

function draw(now) {
  const part = Math.min(1, (now - tickedAt) / 50);
  const water = drawing.createLinearGradient(0, 0, 0, HEIGHT);
  water.addColorStop(0, "#10243a");
  water.addColorStop(1, "#0b3140");
  drawing.fillStyle = water;
  drawing.fillRect(0, 0, WIDTH, HEIGHT);
  if (aim) {
    drawing.strokeStyle = "#ffffff80";
    drawing.lineWidth = 4;
    circle(aim.x, aim.y, 18);
    drawing.stroke();
  }
  for (const firefly of game.entities(Firefly)) drawFirefly(firefly, ...place(firefly, part), now);
  for (const boat of game.entities(Boat)) drawBoat(boat, ...place(boat, part));
}

function circle(x, y, radius) {
  drawing.beginPath();
  drawing.arc(x, y, radius, 0, 2 * Math.PI);
}

function drawFirefly(firefly, x, y, now) {
  const pulse = isCalm ? 1 : 1 + 0.15 * Math.sin(now / 300 + firefly.id);
  const radius = (firefly.gold ? 60 : 42) * pulse;
  const glow = drawing.createRadialGradient(x, y, 4, x, y, radius);
  glow.addColorStop(0, firefly.gold ? "#ffe28a" : "#d9ffb0");
  glow.addColorStop(1, "#00000000");
  drawing.fillStyle = glow;
  circle(x, y, radius);
  drawing.fill();
  drawing.fillStyle = firefly.gold ? "#ffd54a" : "#f2ffe0";
  circle(x, y, firefly.gold ? 16 : 11);
  drawing.fill();
}

function drawBoat(boat, x, y) {
  drawing.fillStyle = COLOURS[boat.seat];
  circle(x, y, 46);
  drawing.fill();
  if (boat.owner === client.publicId) {
    drawing.strokeStyle = "#ffffff";
    drawing.lineWidth = 7;
    drawing.stroke();
  }
  drawing.fillStyle = "#0a131f";
  drawing.font = "bold 52px system-ui, sans-serif";
  drawing.textAlign = "center";
  drawing.textBaseline = "middle";
  drawing.fillText(String(boat.score), x, y + 3);
}

function write(id, text) {
  const target = typeof id === "string" ? element(id) : id;
  if (target.textContent !== text) target.textContent = text;
}

function show() {
  const [pond] = game.entities(Pond);
  const [state, tone] = STATES[client.state];
  write("state", client.error && tone !== "good" ? `${state}: ${client.error.message}` : state);
  element("state").className = tone;
  write("tick", String(game.tick));
  write("lead", `${client.behind} ticks`);
  write("hash", game.hash.slice(0, 8));
  write("round", pond ? String(pond.round) : "–");
  write("clients", pond ? String(pond.seats.filter(Boolean).length + pond.waiting.length) : "–");
  document.querySelectorAll(".seat").forEach((seat, at) => {
    const owner = pond?.seats[at];
    const boat = game.entities(Boat).find((boat) => boat.seat === at);
    const name = !owner ? "free" : owner === client.publicId ? `${NAMES[at]}: you` : `${NAMES[at]}: player ${owner}`;
    write(seat.querySelector(".name"), name);
    write(seat.querySelector(".points"), String(boat?.score ?? 0));
  });
  const text = banner(pond);
  write("banner", text);
  element("banner").hidden = text === "";
}

function banner(pond) {
  if (client.desync) return `This client's state differs from others' since tick ${client.desync.T}: load the page again`;
  if (!pond) return "Waiting for the stream …";
  if (pond.winner >= 0) return pond.seats[pond.winner] === client.publicId ? "You win the round!" : `${NAMES[pond.winner]} wins the round`;
  if (pond.waiting.includes(client.publicId)) return "Both boats are taken: you watch until one is free";
  if (pond.seats.includes("")) return "For two: open this page in another window, or on another machine";
  return "";
}

function frame(now) {
  client.play(now);
  steer(now);
  draw(now);
  requestAnimationFrame(frame);
}

addEventListener("pagehide", (event) => {
  if (!event.persisted) client.stop();
});
show();
requestAnimationFrame(frame);
client.start();
