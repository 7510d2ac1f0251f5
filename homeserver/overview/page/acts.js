// What is done through this page: one request of the REST API each, which is shown, confirmed, and let in by its token.

import { byId, el, fillRow, keyed, makeRow, Refused, say } from "./dom.js";
import { sign } from "./client.js";

const SHOWN = 50;
const PROOF_S = 60;
const TOKENS = { operator: "Operator token", client: "Client token" };
// They are kept as long as the page, and nowhere else.
export const tokens = {};
const keys = {};
let allowed = false;
let acts = [];

/** A button for an act, as [text, act]; nothing where this homeserver lets its dashboard only look. */
export function buttons(...given) {
  if (!allowed) return null;
  return el("p", { class: "acts" }, ...given.map(([text, act]) => button(text, act)));
}

export function button(text, act) {
  const made = el("button", { type: "button", hidden: !allowed }, text);
  made.addEventListener("click", () => confirm(act()));
  return made;
}

export const mayAct = () => allowed;

/**
 * Ask for what an act takes, and do it.
 *
 * `what` is a sentence, `right` a token, `method`, `path` and `body` the request. With `statement`, `by` is a player
 * who signs it, and the body.
 */
function confirm({ what, right, method, path, body, by, statement }) {
  const dialog = byId("act");
  say(byId("act-what"), what);
  say(byId("act-request"), `${method} /v1/${path}${body ? ` ${JSON.stringify(body)}` : ""}`);
  say(byId("act-token-name"), TOKENS[right]);
  byId("act-token").value = tokens[right] ?? "";
  byId("act-key").hidden = !statement;
  byId("act-key-file").value = "";
  byId("act-key-file").required = Boolean(statement) && !keys[by];
  say(byId("act-key-name"), keys[by] ? `Signing key of ${by} (the one given before, or another)` : `Signing key of ${by}`);
  say(byId("act-error"), "");
  byId("act-form").onsubmit = async (event) => {
    event.preventDefault();
    byId("act-do").disabled = true;
    try {
      const token = byId("act-token").value.trim();
      if (statement) keys[by] = (await keysIn(byId("act-key-file").files[0])) ?? keys[by];
      const proof = statement && (await sign({ ...statement, expires_at_s: Date.now() / 1000 + PROOF_S }, by, keys[by]));
      await send(method, path, token, statement ? { ...body, by, proof } : body);
      // Another one is asked for next time, if this was wrong.
      tokens[right] = token;
      dialog.close();
      say(byId("done"), `Done: ${what}`);
    } catch (error) {
      say(byId("act-error"), error.message);
    } finally {
      byId("act-do").disabled = false;
    }
  };
  dialog.showModal();
}

async function send(method, path, token, body) {
  const headers = { authorization: `Bearer ${token}`, "baton-act": "dashboard" };
  if (body) headers["content-type"] = "application/json";
  const answer = await fetch(`../v1/${path}`, { method, headers, body: body && JSON.stringify(body) });
  if (!answer.ok) throw new Refused(answer.status, await answer.json().catch(() => null));
}

/** A player's signing key from a file, as `baton keys export --private` and key directories have it: PEM or JWK. */
async function keysIn(file) {
  if (!file) return null;
  const text = await file.text();
  const algorithm = { name: "ECDSA", namedCurve: "P-256" };
  const pem = text.match(/-----BEGIN PRIVATE KEY-----([^-]+)-----END/);
  try {
    const [form, bytes] = pem
      ? ["pkcs8", Uint8Array.from(atob(pem[1].replace(/\s/g, "")), (letter) => letter.charCodeAt(0))]
      : ["jwk", pick(JSON.parse(text), ["kty", "crv", "x", "y", "d"])];
    const key = await crypto.subtle.importKey(form, bytes, algorithm, true, ["sign"]);
    const { kty, crv, x, y } = await crypto.subtle.exportKey("jwk", key);
    const digest = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(JSON.stringify({ crv, kty, x, y })));
    const kid = btoa(String.fromCharCode(...new Uint8Array(digest))).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
    return { kid, signing: { privateKey: key } };
  } catch {
    throw new Error(`${file.name} has no P-256 signing key in PEM or JWK`);
  }
}

const pick = (from, names) => Object.fromEntries(names.map((name) => [name, from[name]]));

// --- what was done -----------------------------------------------------------------------------------------------------

export function showActs(page) {
  allowed = page.dashboard_acts;
  acts = page.acts.slice(0, SHOWN);
  showRows();
}

export function actDone(act) {
  acts = [act, ...acts].slice(0, SHOWN);
  showRows();
}

function showRows() {
  say(byId("acts-none"), acts.length ? "" : "Nothing was done here yet.");
  keyed(byId("act-rows"), acts, (act) => `${act.at_s} ${act.method} ${act.path}`, () => makeRow(4), (row, act) =>
    fillRow(row, [
      new Date(act.at_s * 1000).toISOString().slice(0, 19).replace("T", " "),
      `${act.right}${act.said.by ? `, ${act.said.by}` : ""}${act.dashboard ? "" : " (elsewhere)"}`,
      `${act.method} ${act.path} ${Object.entries(act.said).filter(([name]) => name !== "by").map((pair) => pair.join(" ")).join(", ")}`,
      act.status < 400 ? "done" : `refused (${act.status})`,
    ]),
  );
}

byId("act-cancel").addEventListener("click", () => byId("act").close());
// What was chosen has been done, or is no more: what is shown may change again.
byId("act").addEventListener("close", () => {
  for (const chosen of document.querySelectorAll("select.chosen")) chosen.classList.remove("chosen");
});
