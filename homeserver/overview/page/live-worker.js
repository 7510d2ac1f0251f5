// One stream for all pages of this browser: it has six connections to a server, and each page would hold one.

const RETRY_MS = 1000;
const KINDS = ["map", "entities", "transfers", "acts", "reset"];
const ports = new Set();
let source = null;
let state = "connecting";
let map = null;

function tell(kind, data) {
  for (const port of ports) port.postMessage({ kind, data });
}

function become(next) {
  if (state === next) return;
  state = next;
  tell("state", state);
}

function open() {
  source = new EventSource("../v1/live");
  for (const kind of KINDS) {
    source.addEventListener(kind, ({ data }) => {
      const told = JSON.parse(data);
      if (kind === "map") map = told;
      tell(kind, told);
      // The first of a stream is the map, after which everything is told.
      become("open");
    });
  }
  source.onerror = () => {
    become("lost");
    if (source.readyState !== EventSource.CLOSED) return;
    // It was refused: the browser does not try again by itself.
    source = null;
    setTimeout(() => ports.size && !source && open(), RETRY_MS);
  };
}

export function join(port) {
  ports.add(port);
  if (state === "open") port.postMessage({ kind: "map", data: map });
  port.postMessage({ kind: "state", data: state });
  if (source === null) open();
}

export function leave(port) {
  ports.delete(port);
  if (ports.size > 0 || source === null) return;
  source.close();
  source = null;
  state = "connecting";
}

globalThis.onconnect = ({ ports: [port] }) => {
  port.onmessage = ({ data }) => data === "bye" && leave(port);
  join(port);
};
