// Compare two transcript folders, connection by connection.
//   node compare.mjs GOLDEN_DIR OTHER_DIR [--only a,b] [--verbose] [--json]
// Order across connections is ignored, order within one is not. Key order is
// ignored; ids are renumbered per connection and direction; a content type is
// compared without case and spaces. Where the cut between replayed
// and live chunks falls is a matter of timing, so `replay` marks on chunk frames
// and the `replayComplete` frame are dropped before comparing; the position of
// frames other than chunks relative to chunks is kept, except for
// `cf_agent_message_updated` on a connection that was offered the stream: it is
// not held back as the chunks are, so it comes before or among them.
//
// A difference is named CONNECTION@LINE. When both sides have as many lines every
// line that differs is named, otherwise the first, as those behind it are shifted.
// With --json: one object, scene to [{at, want, got}], scenes that are the same left out.
import fs from "node:fs";
import path from "node:path";

const [golden, other, ...rest] = process.argv.slice(2);
const only = rest.includes("--only") ? new Set(rest[rest.indexOf("--only") + 1].split(",")) : null;
const verbose = rest.includes("--verbose");
const json = rest.includes("--json");

const canon = (v) =>
  Array.isArray(v)
    ? v.map(canon)
    : v && typeof v === "object"
      ? Object.fromEntries(Object.keys(v).sort().map((k) => [k, canon(v[k])]))
      : v;

function connections(file) {
  const byConn = new Map();
  const offered = new Map();
  for (const line of fs.readFileSync(file, "utf8").split("\n")) {
    if (!line) continue;
    const e = JSON.parse(line);
    if (!e.dir) continue;
    const { c, ms, ...entry } = e;
    const type = entry.frame?.type;
    if (type === "cf_agent_stream_resuming") offered.set(c, entry.frame.id);
    const apart = type === "cf_agent_message_updated" && offered.get(c);
    // What the client sent is compared apart: when it sent it is its own timing.
    const key = e.dir === "out" ? `${c} sent` : apart ? `${c} updates` : (c ?? e.dir);
    if (!byConn.has(key)) byConn.set(key, []);
    if (type === "cf_agent_use_chat_response") {
      const f = { ...entry.frame };
      if (f.replayComplete) continue;
      if (f.done && offered.get(c) === f.id) offered.delete(c);
      if (!f.done) delete f.replay;
      if (f.body && !f.error) {
        try {
          f.body = JSON.parse(f.body);
        } catch {}
      }
      entry.frame = f;
    }
    if (entry.headers?.["content-type"])
      entry.headers["content-type"] = entry.headers["content-type"].toLowerCase().replaceAll(" ", "");
    // An agent may repeat this one at any time.
    if (type === "cf_agent_mcp_servers" && byConn.get(key).some((x) => x.includes("cf_agent_mcp_servers"))) continue;
    byConn.get(key).push(JSON.stringify(canon(entry)));
  }
  for (const [key, entries] of byConn) {
    const seen = new Map();
    byConn.set(
      key,
      entries.map((s) =>
        s.replace(/\b(uuid|aid)-\d+\b/g, (m) => {
          if (!seen.has(m)) seen.set(m, `id-${seen.size + 1}`);
          return seen.get(m);
        })
      )
    );
  }
  return byConn;
}

function differences(a, b) {
  const found = [];
  for (const key of new Set([...a.keys(), ...b.keys()])) {
    const want = a.get(key) ?? [];
    const got = b.get(key) ?? [];
    const n = Math.max(want.length, got.length);
    for (let i = 0; i < n; i++)
      if (want[i] !== got[i]) {
        found.push({ at: `${key}@${i}`, want: want[i], got: got[i] });
        if (want.length !== got.length) break;
      }
  }
  return found;
}

const all = {};
for (const name of fs.readdirSync(golden).sort()) {
  if (!name.endsWith(".jsonl") || name.startsWith("hook-")) continue;
  const id = name.replace(".jsonl", "");
  if (only && !only.has(id)) continue;
  const theirs = path.join(other, name);
  const diffs = fs.existsSync(theirs)
    ? differences(connections(path.join(golden, name)), connections(theirs))
    : [{ at: "missing" }];
  if (diffs.length) all[id] = diffs;
  if (json) continue;
  if (diffs.length === 0) console.log(`same    ${id}`);
  else {
    console.log(`DIFFERS ${id} (${diffs.map((d) => d.at).join(", ")})`);
    if (verbose) for (const d of diffs) console.log(`   ${d.at}\n     want ${d.want}\n     got  ${d.got}`);
  }
}
if (json) console.log(JSON.stringify(all));
process.exitCode = Object.keys(all).length ? 1 : 0;
