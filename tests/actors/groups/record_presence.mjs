// Plays the scripts of phoenix_presence.txt (see test_presence_recorded.py) on the Presence of Phoenix's own client,
// and prints them with their transcripts:  npm install phoenix; node record_presence.mjs < scripts.txt
// What is after ": " in a line is ignored, so that the recording can be made again from itself. The differences are
// those that Phoenix's server sends: an update is one, in which the old metadata leave and the new ones join.
import {readFileSync} from "node:fs"
import {Presence} from "phoenix"

const said = (list) => list.map(meta => meta.n).sort((a, b) => a - b).join(",")

function play(script){
  let state = {}, server = {}, members = {}, next = 0
  const segments = []
  for(const step of script.split(" ")){
    const events = []
    const onJoin = (key, _, come) => events.push(`+${key}:${said(come.metas)}`)
    const onLeave = (key, _, gone) => events.push(`-${key}:${said(gone.metas)}`)
    const [what, who, key] = step
    const before = members[who]
    const diff = {joins: {}, leaves: {}}
    if(what === "t" && !before){
      members[who] = {key, meta: {phx_ref: `r${next}`, n: next++}}
      diff.joins[key] = {metas: [members[who].meta]}
    } else if(what === "u" && before){
      members[who] = {key: before.key, meta: {phx_ref: `r${next}`, phx_ref_prev: before.meta.phx_ref, n: next++}}
      diff.joins[before.key] = {metas: [members[who].meta]}
      diff.leaves[before.key] = {metas: [before.meta]}
    } else if(what === "x" && before){
      delete members[who]
      diff.leaves[before.key] = {metas: [before.meta]}
    }
    server = {}
    for(const {key, meta} of Object.values(members)) (server[key] = server[key] || {metas: []}).metas.push(meta)
    if(what === "s") state = Presence.syncState(state, structuredClone(server), onJoin, onLeave)
    else state = Presence.syncDiff(state, structuredClone(diff), onJoin, onLeave)
    const there = Presence.list(state, (key, {metas}) => `${key}=${said(metas)}`).sort()
    segments.push([...events, ...there].join(" "))
  }
  return segments.join(" | ")
}

for(const line of readFileSync(0, "utf8").split("\n").filter(Boolean)){
  const script = line.split(": ")[0]
  console.log(`${script}: ${play(script)}`)
}
