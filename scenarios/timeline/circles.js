// Draws what the server says, and tells it what a visitor throws. The simulation is in the server.

const FASTEST = 2000;
// A drag across the whole ring in world units, by this, is the velocity in world units per millisecond.
const DRAG_MS = 400;
const ago = document.getElementById("ago");
const said = document.getElementById("said");

class View {
  constructor(id, agoMs) {
    this.canvas = document.getElementById(id);
    this.agoMs = agoMs;
    this.shown = null;
    this.drag = null;
    this.canvas.addEventListener("pointerdown", (event) => this.begin(event));
    this.canvas.addEventListener("pointermove", (event) => this.move(event));
    this.canvas.addEventListener("pointerup", (event) => this.end(event));
    this.canvas.addEventListener("pointercancel", () => (this.drag = null));
  }

  async ask() {
    const answer = await fetch(`circles?ago_ms=${this.agoMs()}`);
    if (!answer.ok) throw new Error((await answer.json()).message);
    this.shown = await answer.json();
    this.draw();
  }

  place(event) {
    const box = this.canvas.getBoundingClientRect();
    const ring = this.shown.ring;
    return [((event.clientX - box.left) / box.width) * 2 * ring - ring, ((event.clientY - box.top) / box.height) * 2 * ring - ring];
  }

  begin(event) {
    if (!this.shown) return;
    const [x, y] = this.place(event);
    const distances = this.shown.circles.map(([cx, cy, radius], one) => ({ one, over: Math.hypot(x - cx, y - cy) - radius }));
    const nearest = distances.reduce((best, next) => (next.over < best.over ? next : best));
    if (nearest.over > 60000) return;
    // The circle flies on while it is dragged; it is thrown where it was taken.
    this.drag = { one: nearest.one, from: [x, y], to: [x, y], atMs: this.shown.at_ms };
    this.canvas.setPointerCapture(event.pointerId);
  }

  move(event) {
    if (this.drag) this.drag.to = this.place(event);
  }

  async end(event) {
    if (!this.drag) return;
    const { one, from, atMs } = this.drag;
    const to = this.place(event);
    this.drag = null;
    const [x, y] = [0, 1].map((axis) => Math.max(-FASTEST, Math.min(FASTEST, Math.round((to[axis] - from[axis]) / DRAG_MS))));
    const agoMs = Math.max(0, Math.min(10000, this.shown.now_ms - atMs));
    const body = JSON.stringify({ one, x, y, ago_ms: agoMs });
    try {
      const answer = await fetch("throws", { method: "POST", headers: { "content-type": "application/json" }, body });
      const told = await answer.json();
      said.textContent = answer.ok
        ? `circle ${one} was thrown ${(agoMs / 1000).toFixed(1)} s ago: ${told.executed} events executed, ${told.later} are later`
        : told.message;
    } catch (error) {
      said.textContent = `circle ${one} was perhaps not thrown: ${error.message}`;
    }
  }

  draw() {
    const pen = this.canvas.getContext("2d");
    const scale = this.canvas.width / 2 / this.shown.ring;
    pen.setTransform(1, 0, 0, 1, 0, 0);
    pen.clearRect(0, 0, this.canvas.width, this.canvas.height);
    pen.setTransform(scale, 0, 0, scale, this.canvas.width / 2, this.canvas.height / 2);
    this.shown.circles.forEach(([x, y, radius], one) => {
      pen.beginPath();
      pen.arc(x, y, radius, 0, 2 * Math.PI);
      pen.fillStyle = `hsl(${one * 47} 70% 60%)`;
      pen.fill();
    });
    if (this.drag) {
      pen.beginPath();
      pen.moveTo(...this.drag.from);
      pen.lineTo(...this.drag.to);
      pen.lineWidth = 2 / scale;
      pen.strokeStyle = "#fff";
      pen.stroke();
    }
  }
}

const views = [new View("past", () => ago.value), new View("present", () => 0)];
ago.addEventListener("input", () => (document.getElementById("ago-text").textContent = `${(ago.value / 1000).toFixed(1)} s`));

let isLost = false;
for (;;) {
  try {
    await Promise.all(views.map((view) => view.ask()));
    if (isLost) said.textContent = "the server answers again";
    isLost = false;
    await new Promise(requestAnimationFrame);
  } catch (error) {
    isLost = true;
    said.textContent = `the server gives no circles: ${error.message}`;
    await new Promise((resolve) => setTimeout(resolve, 1000));
  }
}
