// The messages by which a hand-over went from server to server, as the old authority has reported them.

const element = (id) => document.getElementById(id);
const NS_PER_MS = 1e6;

function cells(texts) {
  const row = document.createElement("tr");
  row.append(
    ...texts.map((text) => {
      const cell = document.createElement("td");
      cell.textContent = text;
      return cell;
    }),
  );
  return row;
}

/** Show the last one of these transfers that moved the entity; whether its hops are known yet. */
export function showHops(transfers) {
  const last = transfers.find(({ epoch, source, target, result }) => epoch > 0 && source !== target && result !== "refused");
  const trace = last?.trace;
  element("rows").replaceChildren();
  element("marks").textContent = "";
  if (!last) {
    element("summary").textContent = "Drive over a border first.";
    return false;
  }
  if (!trace) {
    element("summary").textContent = `${last.source} to ${last.target}: its hops are being reported.`;
    return last.result === "done";
  }
  const frozen = trace.marks.find(([, label]) => label === "frozen")?.[2] ?? trace.hops[0][4];
  const ms = (at) => `${((at - frozen) / NS_PER_MS).toFixed(1)} ms`;
  const count = last.hops === null ? "repeated messages" : `${last.hops} hops`;
  const total = last.timings_ms?.total;
  element("summary").textContent = `${last.source} to ${last.target}: ${count}${total ? `, frozen for ${total.toFixed(1)} ms` : ""}.`;
  element("rows").replaceChildren(
    ...trace.hops.map(([number, kind, from, to, sent, received, bytes]) =>
      cells([number, kind, from, to, ms(sent), `${((received - sent) / NS_PER_MS).toFixed(1)} ms`, bytes]),
    ),
  );
  const marks = [...trace.marks].sort((one, other) => one[2] - other[2]);
  element("marks").textContent = marks.map(([server, label, at]) => `${label} at ${server} after ${ms(at)}`).join(", ");
  return true;
}
