// The dashboard: an instance as one of its homeservers sees it. What it changes, it changes in `acts.js`.

import { actDone, buttons, mayAct, showActs } from "./acts.js";
import { Charts } from "./charts.js";
import { ask, byId, say } from "./dom.js";
import { EntityList } from "./entities.js";
import { listen } from "./live.js";
import { ClusterMap } from "./map.js";
import { SpaceMap } from "./space.js";
import { SupervisionTree } from "./supervision.js";
import { Synchronisation } from "./sync.js";
import { Detail, TransferList } from "./transfers.js";
import { TreeOutline } from "./tree.js";

const STATES = { connecting: ["unknown", "connecting"], open: ["ok", "live"], lost: ["down", "not connected"] };

let state = "connecting";
let paused = false;
let missed = 0;
let total = null;

function complain(text) {
  byId("notice").hidden = false;
  say(byId("notice"), text);
}

function failed(error) {
  const closed = error.status === 401 || error.status === 403;
  complain(closed ? "This homeserver lets nobody look on without its client token (dashboard in its configuration)." : error.message);
}

const map = new ClusterMap();
const entities = new EntityList(failed);
const transfers = new TransferList(failed, (row) => map.pass(row));
const detail = new Detail();
const tree = new TreeOutline();
const supervision = new SupervisionTree();
const polled = [supervision, new Charts(), new SpaceMap(), new Synchronisation()];

function showState() {
  const isPaused = paused && state === "open";
  const [look, text] = isPaused ? ["warning", missed ? `paused, ${missed} changes` : "paused"] : STATES[state];
  byId("state").className = `pill ${look}`;
  say(byId("state"), text);
}

function showMap(shown) {
  map.show(shown);
  entities.offer(shown.servers);
  detail.offer(shown.servers);
  supervision.offer(shown);
  showAlarm(shown.log_went_back);
  if (total !== shown.entities) entities.again();
  total = shown.entities;
}

function showAlarm(why) {
  if (Boolean(why) === byId("map-acts").childElementCount > 0) return;
  const act = { what: `Accept that what is missing in this log is lost: ${why}`, right: "operator", method: "DELETE", path: "cluster/log-alarm" };
  byId("map-acts").replaceChildren(...(why && mayAct() ? [buttons(["Accept the loss", () => act])] : []));
}

async function readAll() {
  byId("notice").hidden = true;
  // Before what has buttons, which are there where this page may act.
  await ask("acts", { limit: 50 }).then(showActs).catch(failed);
  byId("tree").hidden = !mayAct();
  await Promise.all([ask("map").then(showMap), entities.load(), transfers.load(), detail.load()]).catch(failed);
}

function told(kind, data) {
  if (kind === "state") {
    state = data;
    // What has happened until now nobody has told.
    if (state === "open") readAll();
    if (state === "lost") complain("This homeserver does not answer: what is shown is how it was.");
  } else if (paused) {
    missed += 1;
  } else if (kind === "map") {
    showMap(data);
  } else if (kind === "entities") {
    entities.changed(data);
    detail.changed(data);
  } else if (kind === "transfers") {
    transfers.changed(data);
    detail.changed(data);
  } else if (kind === "acts") {
    actDone(data);
  } else {
    readAll();
  }
  showState();
}

function follow() {
  const [kind, id, ...more] = location.hash.slice(1).split("/");
  if (kind === "tree") return tree.open([id, ...more].filter(Boolean).map(decodeURIComponent));
  if (kind === "supervision") return id && supervision.open(id, more[0]);
  // Another name is that of a place of the page.
  return kind && !id ? undefined : detail.open(kind, id);
}

byId("pause").addEventListener("click", () => {
  paused = !paused;
  byId("pause").setAttribute("aria-pressed", paused);
  tree.hold(paused);
  for (const each of polled) each.seen.hold(paused);
  if (!paused && missed) readAll();
  missed = 0;
  showState();
});
addEventListener("hashchange", follow);
listen(told);
follow();
// Should there be no stream, the lists are there all the same.
readAll();
