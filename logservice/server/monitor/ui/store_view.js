// One store: #/store/NAME.

import { ask, query } from "./api.js";
import { bars, Chart } from "./chart.js";
import { $, facts, link, make, part, pill, progress, put, table, withCode } from "./dom.js";
import { bytes, clock, micros, number, quantiles, span } from "./format.js";
import { TITLES, lineOf } from "./histories.js";
import { LIST_OF_LOGS, PAUSES, disk, heard, storeState, troubles } from "./stores.js";

const FIGURES = ["appends_per_s", "append_p99_s", "bytes_written_per_s", "read_bytes_per_s", "disk_used_bytes", "loop_turn_s", "lag_entries", "leaders"];
const HISTORY_MS = 10000;
const SOON_S = 30 * 86400;
const VERY_SOON_S = 7 * 86400;
const OUTCOMES_SHOWN = 20;

let name = "";
let charts = null;
let asked = 0;

function head({ row, status, highest_version: highest, used_version: used }, cluster) {
  const state = storeState(row);
  const title = make("div", null, "bar");
  title.append(make("h2", `Store ${row.store}`), pill(state.text, state.kind), link("its logs", `?filter=${encodeURIComponent(row.store)}`));
  const room = disk(row);
  const found = [title, ...troubles(row).map((text) => withCode(text, "p", "alarm", state.kind === "good" ? "warn" : state.kind))];
  if (room) found.push(room);
  found.push(facts([
    ["clients reach it at", row.client_address],
    ["stores reach it at", row.peer_address],
    ["this page at", row.admin_address],
    ["machine", row.host],
    ["zone", row.zone],
    ["labels", Object.entries(row.labels).map(([key, text]) => `${key}=${text}`).join(" ")],
    ["program", row.version],
    ["cluster version", highest ? `knows up to ${highest}, directories written for ${used}` : "", "what the program knows, and what older programs can still read"],
    ["up", row.answers ? span(row.uptime_s) : ""],
    ["heard by HAKeeper", heard(row, cluster)],
    ["leads", `${number(row.leaders)} of ${number(row.replicas)}`],
    ["log", bytes(row.disk_used_bytes)],
    ["disk free", bytes(row.disk_free_bytes)],
    ["clock", row.answers ? `${(row.clock_offset_us / 1e6).toFixed(2)} s off ${cluster.asked_store}` : ""],
    ["pauses", row.answers ? `${number(row.loop_stalls)}, longest ${micros(row.longest_loop_turn_us)}` : "", PAUSES],
    ["clients connected", status && status.client_connections.open !== undefined ? `${number(status.client_connections.open)}, ${number(status.client_connections.half_open)} without a call so far` : ""],
    ["stores connected", status && status.transport.connections !== undefined ? number(status.transport.connections) : ""],
    ["list of logs", row.directory_age_s < 0 ? "" : `${span(row.directory_age_s)} old`, LIST_OF_LOGS],
  ]));
  return found;
}

function directories(status) {
  return table(
    [{ label: "directory", wide: true }, { label: "log", num: true }, { label: "free", num: true }, { label: "segments", num: true }, { label: "durable write p50 / p99", num: true }, { label: "scrubbed", num: true }, { label: "keys" }, { label: "oldest segment stays for", wide: true }],
    status.directories.map((one) => {
      if (one.failed) return [one.path, "", "", "", "", "", "", pill(one.failed, "bad")];
      const at = one.logdb;
      const keys = Object.entries(one.key_bytes).map(([key, size]) => `${key} ${bytes(size)}`).join(", ");
      const scrubbed = one.scrub.pass_bytes ? `${Math.round((100 * one.scrub.pass_bytes_done) / one.scrub.pass_bytes)} %` : "";
      return [one.path, bytes(at.segment_bytes || 0), bytes(at.free_bytes || 0), number(at.segment_files || 0), (quantiles(one.durable_write_seconds) || ["–"]).join(" / "), scrubbed, keys, one.oldest_reason];
    }),
    "none is open",
  );
}

function certificates(status, now) {
  return table(
    [{ label: "port" }, { label: "expires" }, { label: "left" }],
    Object.entries(status.certificates).map(([plane, end]) => {
      const left = end - now / 1e6;
      const level = left < VERY_SOON_S ? "bad" : left < SOON_S ? "warn" : "good";
      return [plane, clock(end * 1e6, true), pill(left < 0 ? "expired" : span(left), level)];
    }),
    "none: this store speaks plaintext",
  );
}

function latencies(status) {
  const rows = [
    ["append, whole", status.append_seconds],
    ...Object.entries(status.append_stage_seconds).map(([stage, one]) => [`append, ${stage.replaceAll("_", " ")}`, one]),
    ...Object.entries(status.read_seconds).map(([kind, one]) => [`read, ${kind.replaceAll("_", " ")}`, one]),
    ...Object.entries(status.rpc_seconds).map(([call, one]) => [call, one]),
  ].filter(([, one]) => quantiles(one));
  const count = (one) => one.counts.reduce((sum, next) => sum + next, 0);
  return table(
    [{ label: "what", wide: true }, { label: "p50", num: true }, { label: "p99", num: true }, { label: "how many", num: true }],
    rows.map(([what, one]) => [what, ...quantiles(one), number(count(one))]),
    "nothing was called yet",
  );
}

function memory(status) {
  const parts = Object.keys(status.memory).filter((key) => key.endsWith("/limit")).map((key) => key.slice(0, -6)).sort();
  return table(
    [{ label: "part" }, { label: "used of its limit", wide: true }, { label: "refused or cut", num: true }],
    parts.map((one) => {
      const used = status.memory[`${one}/used`] || 0;
      const limit = status.memory[`${one}/limit`];
      const refused = status.memory[`${one}/refused`];
      return [one.replaceAll("_", " "), progress(limit ? used / limit : 0, `${bytes(used)} of ${bytes(limit)}`), refused ? pill(number(refused), "warn") : refused === 0 ? "0" : ""];
    }),
    "not known",
  );
}

function outcomes(status) {
  const rows = Object.entries(status.rpcs).sort(([, one], [, other]) => other - one).slice(0, OUTCOMES_SHOWN);
  return table(
    [{ label: "call" }, { label: "ended" }, { label: "how often", num: true }],
    rows.map(([key, count]) => {
      const [call, outcome] = key.split("/");
      return [call, outcome === "OK" ? "OK" : pill(outcome, "warn"), number(count)];
    }),
    "nobody called",
  );
}

function events(status) {
  const list = make("ul", null, "list");
  list.tabIndex = 0;
  list.setAttribute("aria-label", "Events");
  const items = [...status.events].reverse().map((one) => {
    const item = make("li", null, `is-${one.level}`);
    item.append(make("time", clock(one.time_us, true)), make("span", one.event.replaceAll("_", " "), "from"), one.message);
    return item;
  });
  put(list, items.length ? items : [make("li", "none yet", "quiet")]);
  return list;
}

function draw(found, cluster) {
  const { status } = found;
  put($("store-head"), head(found, cluster));
  if (!status) {
    put($("store-parts"), [make("p", `${found.row.store} does not answer ${cluster.asked_store}; what HAKeeper last heard of it is above.`, "alarm", "bad")]);
    return;
  }
  const behind = found.row.admin_address ? make("p", `Everything it says of itself: /api/v1/store of ${found.row.admin_address}`, "quiet") : "";
  put($("store-parts"), [
    part("Data directories", directories(status)),
    part("Certificates", certificates(status, found.time_us)),
    ...twoColumns(
      part("How long things take", latencies(status), "since its start"),
      part("Appends by how long they took", bars(status.append_seconds, "Appends by how long they took"), "to the logs that it leads"),
    ),
    ...twoColumns(part("Memory", memory(status)), part("Calls of clients", outcomes(status), "since its start")),
    part("Events", events(status)),
    ...(behind ? [behind] : []),
  ]);
}

function twoColumns(one, other) {
  const found = make("div", null, "halves");
  found.append(one, other);
  return [found];
}

async function drawHistory(answers) {
  if (Date.now() - asked < HISTORY_MS || !answers) return;
  asked = Date.now();
  const series = await ask(`history?${query({ store: name })}`).catch(() => null);
  if (!series || series.store !== name) return;
  if (!charts) {
    charts = new Map(FIGURES.map((figure) => [figure, new Chart(TITLES[figure], series.units[figure] || "")]));
    put($("store-charts"), [...charts.values()].map((chart) => chart.root));
  }
  for (const [figure, chart] of charts) chart.show([lineOf(series, figure)]);
}

export const store = {
  container: "store",

  open(parameters, sayLost, argument) {
    if (argument === name) return;
    name = argument;
    charts = null;
    asked = 0;
    for (const id of ["store-head", "store-charts", "store-parts"]) put($(id), []);
  },

  async refresh({ cluster }) {
    const shown = name;
    let found;
    try {
      found = await ask(`stores/detail?${query({ store: shown })}`);
    } catch (error) {
      if (error.status !== 400) throw error;
      put($("store-head"), [make("p", `Nobody knows a store ${shown}.`, "alarm", "warn")]);
      return;
    }
    if (shown !== name) return;
    draw(found, cluster);
    await drawHistory(found.row.answers);
  },
};
