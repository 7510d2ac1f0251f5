// What a page asks for again and again, it asks for only while somebody can see it.

// Of its time a homeserver spends at most a twentieth for one part of a page.
const REST = 20;

/** Call `load` at once and every `everyMs` while a section is on the screen; at most one at a time. */
export class WhileSeen {
  constructor(section, load, everyMs) {
    this.load = load;
    this.everyMs = everyMs;
    this.seen = false;
    this.still = false;
    this.timer = null;
    this.running = false;
    this.wanted = false;
    new IntersectionObserver((entries) => {
      this.seen = entries.at(-1).isIntersecting;
      this.now();
    }).observe(section);
    document.addEventListener("visibilitychange", () => this.now());
  }

  /** While it stands still, nothing is asked for. */
  hold(still) {
    this.still = still;
    this.now();
  }

  /** Ask now, if it can be seen: it is about something else, say. */
  async now() {
    clearTimeout(this.timer);
    this.wanted = true;
    if (this.running) return;
    this.running = true;
    let tookMs = 0;
    while (this.wanted && this.seen && !this.still && !document.hidden) {
      this.wanted = false;
      const began = performance.now();
      await this.load();
      tookMs = performance.now() - began;
    }
    this.running = false;
    if (this.seen && !this.still && !document.hidden) {
      this.timer = setTimeout(() => this.now(), Math.max(this.everyMs, REST * tookMs));
    }
  }
}
