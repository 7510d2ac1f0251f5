// Where the player wants its robot to go: by keys, by the buttons, or by a finger or the mouse on the floor.

const KEYS = {
  ArrowUp: [0, -1], ArrowDown: [0, 1], ArrowLeft: [-1, 0], ArrowRight: [1, 0],
  KeyW: [0, -1], KeyS: [0, 1], KeyA: [-1, 0], KeyD: [1, 0],
};
const FULL = 127;
// Nearer to the finger than this it drives ever more slowly, and at last stands.
const SLOW_MM = 2500;
const NEAR_MM = 300;

export class Driver {
  constructor(canvas, buttons, view) {
    this.held = new Set();
    this.pressed = new Map();
    this.finger = null;
    addEventListener("keydown", (event) => this.#key(event, true));
    addEventListener("keyup", (event) => this.#key(event, false));
    addEventListener("blur", () => {
      this.held.clear();
      this.pressed.clear();
    });
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      this.finger = view.placeAt(event.clientX, event.clientY);
    });
    canvas.addEventListener("pointermove", (event) => {
      if (this.finger) this.finger = view.placeAt(event.clientX, event.clientY);
    });
    for (const end of ["pointerup", "pointercancel"]) {
      canvas.addEventListener(end, () => {
        this.finger = null;
      });
    }
    for (const button of buttons) this.#button(button);
  }

  /** The direction, from -127 to 127 on each axis; `place` is where the robot is. */
  direction(place) {
    const [x, y] = this.finger && place ? this.#towardsFinger(place) : this.#ofKeys();
    const length = Math.max(1, Math.hypot(x, y));
    return [Math.round((FULL * x) / length), Math.round((FULL * y) / length)];
  }

  /** Of a length of 1 far away, and of less nearby; in tenths, so that not each frame is another input. */
  #towardsFinger(place) {
    const way = [this.finger[0] - place[0], this.finger[1] - place[1]];
    const far = Math.hypot(...way);
    if (far < NEAR_MM) return [0, 0];
    const speed = Math.ceil(10 * Math.min(1, far / SLOW_MM)) / 10;
    return way.map((each) => Math.round((20 * each) / far) / 20).map((each) => speed * each);
  }

  #ofKeys() {
    const wanted = [...[...this.held].map((code) => KEYS[code]), ...this.pressed.values()];
    return [0, 1].map((axis) => Math.sign(wanted.reduce((sum, each) => sum + each[axis], 0)));
  }

  #key(event, isDown) {
    // What has keys of its own keeps them.
    const isTyped = event.ctrlKey || event.metaKey || event.altKey || event.target.closest?.("input, select");
    if (!(event.code in KEYS) || (isDown && isTyped)) return;
    // What scrolls is scrolled with the same keys.
    if (isDown && event.target.closest?.(".scrolls")) return;
    if (isDown) this.held.add(event.code);
    else this.held.delete(event.code);
    // Else the page would scroll.
    event.preventDefault();
  }

  #button(button) {
    const way = button.dataset.drive.split(",").map(Number);
    const press = (isDown) => {
      if (isDown) this.pressed.set(button, way);
      else this.pressed.delete(button);
      button.classList.toggle("held", isDown);
    };
    button.addEventListener("pointerdown", (event) => {
      button.setPointerCapture(event.pointerId);
      press(true);
    });
    for (const end of ["pointerup", "pointercancel", "blur"]) button.addEventListener(end, () => press(false));
    button.addEventListener("keydown", ({ key }) => {
      if (key === " " || key === "Enter") press(true);
    });
    button.addEventListener("keyup", () => press(false));
  }
}
