// The whole cluster on one page: what is wrong, figures, stores, shards, what happened.

import { ask } from "./api.js";
import { $, link, make, put, withCode } from "./dom.js";
import { drawFeed, drawLists, listenFeed, takeFeed } from "./events.js";
import { bytes, micros, number, quantiles, span } from "./format.js";
import { Histories } from "./histories.js";
import { drawServices, drawTnShards } from "./services.js";
import { drawShards, filterShards, listenShards, shardQuery, shownShards } from "./shards.js";
import { SLOW_DURABLE_WRITE_US, drawStores } from "./stores.js";

const FINDINGS_SHOWN = 3;
const CHARTS = ["records_per_s", "append_p99_s", "bytes_written_per_s", "disk_used_bytes"];

let data = null;
let before = null;
let histories = null;

function alarms(cluster, leaderless) {
  const found = [];
  if (cluster.hakeeper_error) {
    const known = cluster.phase !== "unknown";
    const age = !known ? "nobody remembers its word"
      : cluster.hakeeper_age_s < 0 ? "its word shown here is old" : `its word shown here is ${span(cluster.hakeeper_age_s)} old`;
    found.push(["bad", `HAKeeper does not answer, nothing is repaired; ${age}. ${cluster.hakeeper_error}`]);
  }
  if (leaderless.length) {
    const ids = leaderless.join(", ");
    const left = cluster.shards_without_leader - leaderless.length;
    const more = left > 0 ? ` and ${left} more` : "";
    found.push(["bad", `Without a leader, no appends: shard ${ids}${more}`]);
  }
  for (const flag of cluster.flags.slice(0, 6)) found.push(["warn", flag]);
  if (cluster.next_version && !cluster.holding_back.length) {
    found.push(["warn", `The cluster is at version ${cluster.cluster_version}, and every store knows ${cluster.next_version}: logctl upgrade raise`]);
  }
  if (cluster.flags.length > 6) found.push(["warn", `and ${cluster.flags.length - 6} more: logctl repairs`]);
  return found.map(([kind, text]) => make("p", text, "alarm", kind));
}

function rate(key, value) {
  const old = before && before.values.get(key);
  const seconds = before ? (data.at - before.at) / 1000 : 0;
  const found = old === undefined || seconds <= 0 || value < old ? null : (value - old) / seconds;
  data.values.set(key, value);
  return found;
}

// p50 and p99 of what a histogram has counted since the refresh before; of all when there was none.
function latency(key, found) {
  const old = before && before.values.get(key);
  data.values.set(key, found.counts);
  let counts = old && old.length === found.counts.length ? found.counts.map((count, place) => count - old[place]) : found.counts;
  if (counts.some((count) => count < 0)) counts = found.counts;  // the store started anew
  return (quantiles({ bounds: found.bounds, counts }) || ["–"]).join(" / ");
}

function takeRates() {
  const rates = new Map();
  for (const store of data.stores) {
    rates.set(`bytes ${store.store}`, rate(`bytes ${store.store}`, store.bytes_written));
    rates.set(`durable writes ${store.store}`, rate(`durable writes ${store.store}`, store.durable_writes));
    rates.set(`append ${store.store}`, latency(`append ${store.store}`, store.append_seconds));
    rates.set(`read ${store.store}`, latency(`read ${store.store}`, store.read_seconds));
  }
  return rates;
}

function drawTop() {
  const { cluster, page, stores, rates } = data;
  put($("alarms"), alarms(cluster, page.without_leader));
  let written = 0;
  for (const store of stores) written += rates.get(`bytes ${store.store}`) || 0;
  const slowest = Math.max(0, ...stores.map((store) => store.durable_write_p99_us));
  const free = stores.filter((store) => store.disk_free_bytes).map((store) => store.disk_free_bytes);
  const tiles = [
    ["stores ready", `${cluster.stores_ready} / ${cluster.stores}`, cluster.stores_ready < cluster.stores],
    ["shards with a leader", `${cluster.shards - cluster.shards_without_leader} / ${cluster.shards}`, cluster.shards_without_leader > 0],
    ["short of replicas", number(cluster.shards_lacking_replicas), cluster.shards_lacking_replicas > 0],
    ["records/s", number(page.records_per_s), false],
    ["written/s, all copies", bytes(written), false],
    ["slowest durable write p99", micros(slowest), slowest > SLOW_DURABLE_WRITE_US],
    ["least disk free", free.length ? bytes(Math.min(...free)) : "–", false],
    ["under way", number(cluster.operators), false],
  ];
  const zones = new Set(stores.map((store) => store.zone).filter(Boolean));
  if (zones.size) {
    const up = new Set(stores.filter((store) => store.ready).map((store) => store.zone).filter(Boolean));
    tiles.splice(1, 0, ["zones with a ready store", `${up.size} / ${zones.size}`, up.size < zones.size]);
  }
  put($("tiles"), tiles.map(([label, value, trouble]) => {
    const tile = make("div", null, "tile", trouble && "trouble");
    tile.append(make("b", value), make("span", label, "quiet"));
    return tile;
  }));
}

// The worst of what the doctor says; the rest has a view of its own.
function drawFindings({ rows, found }) {
  $("findings-short").hidden = !rows.length;
  put($("findings-list"), rows.slice(0, FINDINGS_SHOWN).map((one) => {
    const item = make("li", null, `is-${one.severity}`);
    item.append(make("span", one.severity, "pill", ["broken", "danger"].includes(one.severity) ? "bad" : "warn"), " ", withCode(one.what, "span"));
    return item;
  }));
  const more = found - FINDINGS_SHOWN;
  const all = make("li");
  all.append(link(more > 0 ? `and ${more} more, with what to do` : "what to do", "findings"));
  $("findings-list").append(all);
}

function draw(findings) {
  drawTop();
  drawFindings(findings);
  drawStores(data);
  drawShards(data);
  drawLists(data);
  drawFeed(data);
  drawServices(data);
  drawTnShards(data);
}

export const overview = {
  name: "",
  container: "overview",

  open(parameters, sayLost) {
    if (!histories) {
      histories = new Histories($("histories"), CHARTS);
      listenShards(() => data && shownShards(data, sayLost));
      listenFeed(() => data && drawFeed(data));
    }
    if (parameters.has("filter")) filterShards(parameters.get("filter"));
  },

  async refresh({ cluster, findings }) {
    let asked = shardQuery();
    const parts = ["stores", asked, "operators", "services", "tn-shards", "events"];
    let [stores, page, operators, services, tnShards, events] = await Promise.all(parts.map(ask));
    while (asked !== shardQuery()) {  // a person chose something meanwhile
      asked = shardQuery();
      page = await ask(asked);
    }
    before = data;
    takeFeed(events, cluster.cluster);
    data = { cluster, stores, page, operators, services, tnShards, at: cluster.time_us / 1000, values: new Map() };
    // The store gives one picture to all who ask within a second: the same one says nothing new.
    if (before && data.at <= before.at) {
      data.values = before.values;
      data.rates = before.rates;
      before = null;
    } else {
      data.rates = takeRates();
    }
    draw(findings);
    await histories.refresh(stores);
  },
};
