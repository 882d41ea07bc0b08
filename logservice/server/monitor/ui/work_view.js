// What is under way, and how far it is: repairs and moves, stores that are drained, what people wished,
// members that catch up, the way to the next version.

import { ask } from "./api.js";
import { $, facts, link, make, part, pill, progress, put, table } from "./dom.js";
import { bytes, number, span, ticks } from "./format.js";

// The most that this page has seen left of each thing: nobody else remembers where it began.
const most = new Map();

function done(key, left) {
  const top = Math.max(most.get(key) || 0, left);
  most.set(key, top);
  return top ? 1 - left / top : 1;
}

function forget(keys) {
  for (const key of most.keys()) if (!keys.has(key)) most.delete(key);
}

function toGo(key, left, text, seconds) {
  if (left < 0) return "–";
  const time = seconds > 0 ? `, ${span(seconds)} to go` : "";
  return progress(done(key, left), left ? `${text}${time}` : "has everything");
}

function logOf(one) {
  return link(one.log ? `${one.log} (${one.shard})` : String(one.shard), "shard", one.shard);
}

function where(one) {
  const found = document.createDocumentFragment();
  if (one.from_store && one.from_store !== one.store) found.append(link(one.from_store, "store", one.from_store), " → ");
  if (one.store) found.append(link(one.store, "store", one.store));
  return found;
}

function operators(rows) {
  return table(
    [{ label: "shard" }, { label: "what" }, { label: "why" }, { label: "where" }, { label: "step", wide: true }, { label: "progress", wide: true }, { label: "for", num: true }],
    rows.map((one) => {
      const left = one.lag_bytes > 0 ? `${bytes(one.lag_bytes)} left` : `${number(one.entries_to_go)} entries left`;
      const step = make("span", `${one.cancelled ? "given up: " : ""}${one.step || "begins"}`);
      if (one.error) step.append(make("span", `: ${one.error}`, "trouble"));
      const share = one.lag_bytes > 0 ? one.lag_bytes : one.entries_to_go;
      return [logOf(one), `${one.kind} replica ${one.replica}`, one.cause, where(one), step, toGo(`operator ${one.operator}`, share, left, one.to_go_s), ticks(one.age_ticks)];
    }),
    "nothing is repaired or moved",
  );
}

function drain(one) {
  const left = one.members_left + one.leftovers;
  if (one.mode !== "draining") return one.repair_off_ticks ? `nothing of it is replaced for ${ticks(one.repair_off_ticks)}` : "–";
  if (one.empty) return pill("empty: it can be stopped", "good");
  const words = [`${number(one.members_left)} replicas`, one.leaders_left && `${number(one.leaders_left)} leaders`, one.leftovers && `${number(one.leftovers)} to remove`];
  return progress(done(`drain ${one.store}`, left), `${words.filter(Boolean).join(", ")} left`);
}

function drains(rows) {
  return table(
    [{ label: "store" }, { label: "mode" }, { label: "progress", wide: true }, { label: "reason", wide: true }],
    rows.map((one) => [link(one.store, "store", one.store), pill(one.mode || "open", one.mode === "open" ? "good" : "warn"), drain(one), [one.mode_reason, one.repair_off_reason].filter(Boolean).join("; ")]),
    "no store is drained, read-only or left alone",
  );
}

function upgrade(now) {
  const waits = now.versions.filter((one) => one.behind).map((one) => one.store);
  const next = !now.next_version ? "none: the cluster is at the newest that its programs know"
    : waits.length ? `${now.next_version}, which waits for ${waits.join(", ")}` : `${now.next_version}: every store knows it. logctl upgrade raise`;
  const programs = new Set(now.versions.map((one) => one.version).filter(Boolean));
  return [
    facts([["cluster version", String(now.cluster_version)], ["next", next], ["programs", [...programs].join(", ")]]),
    table(
      [{ label: "store" }, { label: "program" }, { label: "knows up to", num: true }, { label: "directories written for", num: true }, { label: "" }],
      now.versions.map((one) => [link(one.store, "store", one.store), one.version || "no answer", String(one.highest_version), String(one.used_version), one.behind ? pill("waited for", "warn") : ""]),
      "no store is known",
    ),
  ];
}

function draw(now) {
  const parts = [];
  if (!now.known) parts.push(make("p", "HAKeeper has not answered this store yet, so nobody says what is under way.", "alarm", "bad"));
  if (now.repair_off_ticks) parts.push(make("p", `Nothing is repaired for ${ticks(now.repair_off_ticks)}: ${now.repair_off_reason}`, "alarm", "warn"));
  parts.push(part("Repairs and moves", operators(now.operators), now.operators.length ? number(now.operators.length) : ""));
  parts.push(part("Stores that people changed", drains(now.drains)));
  parts.push(part("Wishes", table(
    [{ label: "wish", num: true }, { label: "errand" }, { label: "shard" }, { label: "from" }, { label: "to" }, { label: "step", wide: true }, { label: "reason", wide: true }, { label: "for", num: true }],
    now.wishes.map((one) => [String(one.wish), one.errand, one.shard ? link(String(one.shard), "shard", one.shard) : "", one.from_store, one.to_store, one.result ? `ended: ${one.result}` : one.step || "waits", one.reason, ticks(one.age_ticks)]),
    "nobody wished anything lately",
  )));
  parts.push(part("Members that catch up", table(
    [{ label: "shard" }, { label: "replica", num: true }, { label: "store" }, { label: "role" }, { label: "progress", wide: true }],
    now.catching_up.map((one) => [logOf(one), String(one.replica), link(one.store, "store", one.store), one.role, toGo(`member ${one.shard} ${one.replica}`, one.lag_bytes, `${number(one.lag_entries)} entries, ${bytes(one.lag_bytes)} left`, one.to_go_s)]),
    "every member is close to its leader",
  ), now.behind > now.catching_up.length ? `${number(now.catching_up.length)} of ${number(now.behind)}` : ""));
  parts.push(part("Versions", upgrade(now)));
  if (now.gone_stores.length) {
    parts.push(part("Stores that were forgotten", table(
      [{ label: "store" }, { label: "how" }, { label: "for", num: true }],
      now.gone_stores.map((one) => [one.store, one.lost ? "given up as lost" : "empty", ticks(one.age_ticks)]),
      "",
    )));
  }
  put($("work-parts"), parts);
  forget(new Set([
    ...now.operators.map((one) => `operator ${one.operator}`),
    ...now.drains.map((one) => `drain ${one.store}`),
    ...now.catching_up.map((one) => `member ${one.shard} ${one.replica}`),
  ]));
}

export const work = {
  container: "work",

  open() {},

  async refresh() {
    draw(await ask("work"));
  },
};
