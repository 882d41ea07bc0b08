// The stores in short: one card each.

import { $, link, make, pill, put, withCode } from "./dom.js";
import { TICKS_PER_S, bytes, micros, number, span } from "./format.js";

export const SLOW_DURABLE_WRITE_US = 100000;
export const PAUSES = "how often the store did nothing else for a moment: while it computes, it hears neither clients nor stores";
export const LIST_OF_LOGS = "how old the store's own copy of the list of logs is; HAKeeper has the original";
const SKEWED_CLOCK_US = 500000;
const OLD_DIRECTORY_S = 30;

export function storeState(store) {
  if (!store.answers && !store.alive) return { text: "down", kind: "bad" };
  if (!store.answers) return { text: "no answer", kind: "bad" };
  if (!store.ready) return { text: store.phase === "serving" ? "not ready" : store.phase, kind: "warn" };
  if (!store.alive) return { text: "not heard by HAKeeper", kind: "warn" };
  if (store.mode === "draining") return { text: store.members_left ? `draining, ${store.members_left} left` : "empty", kind: "warn" };
  if (store.mode === "read-only") return { text: "read-only", kind: "warn" };
  return { text: "ready", kind: "good" };
}

export function heard(store, cluster) {
  if (store.heartbeat_age_ticks < 0) return cluster.hakeeper_error ? "unknown" : "never";
  const seconds = store.heartbeat_age_ticks / TICKS_PER_S;
  return `${seconds < 10 ? `${seconds.toFixed(1)} s` : span(seconds)} ago`;
}

// Why a store is not well, in words.
export function troubles(store) {
  const why = store.reasons.slice(0, 3).map((reason) =>
    `${reason.shard >= 0 ? `shard ${reason.shard}: ` : ""}${reason.code.replaceAll("_", " ")}: ${reason.detail}`);
  const more = store.reasons.length - 3;
  if (more > 0) why.push(`and ${more} more ${more > 1 ? "reasons" : "reason"}`);
  why.push(...store.alarms);
  if (!store.answers) why.push(store.error);
  if (store.mode_reason && store.mode !== "open") why.push(`${store.mode}: ${store.mode_reason}`);
  if (store.directory_age_s > OLD_DIRECTORY_S) why.push(`its list of logs is ${span(store.directory_age_s)} old: \`hakeeper-silent.md\``);
  if (store.answers && Math.abs(store.clock_offset_us) > SKEWED_CLOCK_US) why.push(`its clock is off by ${(store.clock_offset_us / 1e6).toFixed(1)} s`);
  return why;
}

export function disk(store) {
  const total = store.disk_used_bytes + store.disk_free_bytes;
  if (!total) return null;
  const found = make("div", null, "disk");
  found.title = `${bytes(store.disk_used_bytes)} of log, ${bytes(store.disk_free_bytes)} free`;
  const low = store.reasons.some((reason) => reason.code === "disk_full");
  const filled = make("i", null, low && "low");
  filled.style.width = `${Math.max(0.5, (100 * store.disk_used_bytes) / total)}%`;
  found.append(filled);
  return found;
}

// What a card shows in a narrow window, too; the store's page has the rest.
const MAIN = new Set(["log", "disk free", "leads", "append p50 / p99", "durable write p99", "up"]);

function storeCard(store, { cluster, rates }) {
  const state = storeState(store);
  const card = make("article", null, "card", state.kind === "good" ? "" : `${state.kind}-edge`);
  const title = make("h3");
  title.append(link(store.store, "store", store.store), pill(state.text, state.kind));
  card.append(title);
  const where = [store.zone && `zone ${store.zone}`, store.host !== store.store && store.host, store.client_address, store.version].filter(Boolean);
  card.append(make("p", where.join(" · "), "quiet"));
  const room = disk(store);
  if (room) card.append(room);
  const durableWrites = rates.get(`durable writes ${store.store}`);
  const written = rates.get(`bytes ${store.store}`);
  const shown = [
    ["log", bytes(store.disk_used_bytes)],
    ["disk free", bytes(store.disk_free_bytes)],
    ["leads", `${store.leaders} of ${store.replicas}`],
    ["append p50 / p99", rates.get(`append ${store.store}`) || "–"],
    ["read p50 / p99", rates.get(`read ${store.store}`) || "–"],
    ["durable write p50", micros(store.durable_write_p50_us)],
    ["durable write p99", micros(store.durable_write_p99_us)],
    ["durable writes/s", durableWrites === null || durableWrites === undefined ? "–" : number(durableWrites)],
    ["written/s", written === null || written === undefined ? "–" : bytes(written)],
    ["pauses", store.answers ? `${number(store.loop_stalls)}, longest ${micros(store.longest_loop_turn_us)}` : "–", PAUSES],
    ["up", store.answers ? span(store.uptime_s) : "–"],
    ["heard by HAKeeper", heard(store, cluster)],
    ["list of logs", store.directory_age_s < 0 ? "–" : `${span(store.directory_age_s)} old`, LIST_OF_LOGS],
  ];
  const list = make("dl");
  for (const [label, value, title] of shown) {
    const item = make("div", null, MAIN.has(label) ? "" : "more");
    if (title) item.title = title;
    item.append(make("dt", label), make("dd", value));
    list.append(item);
  }
  card.append(list);
  for (const text of troubles(store)) card.append(withCode(text, "p", "why", state.kind === "good" ? "warn" : state.kind));
  return card;
}

export function drawStores(data) {
  $("stores-count").textContent = number(data.stores.length);
  put($("stores"), data.stores.map((store) => storeCard(store, data)));
}
