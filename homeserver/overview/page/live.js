// What happens, as this page is told: by the stream that all pages share, or, where there is none, by one of its own.

/** Call `told(kind, data)` for all that happens: `state`, `map`, `entities`, `transfers`, `acts`, `reset`. */
export function listen(told) {
  if (typeof SharedWorker === "undefined") return listenAlone(told);
  let port = null;
  const begin = () => {
    ({ port } = new SharedWorker("live-worker.js", { type: "module", name: "batonpass-live" }));
    port.onmessage = ({ data }) => told(data.kind, data.data);
    port.start();
  };
  begin();
  addEventListener("pagehide", () => port.postMessage("bye"));
  // A page that the browser has kept while another one was shown.
  addEventListener("pageshow", ({ persisted }) => persisted && begin());
}

/** A stream of its own while the page is seen. */
async function listenAlone(told) {
  const { join, leave } = await import("./live-worker.js");
  const port = { postMessage: ({ kind, data }) => told(kind, data) };
  const follow = () => (document.hidden ? leave(port) : join(port));
  document.addEventListener("visibilitychange", follow);
  follow();
}
