// The page of the admin port. Read-only: it asks /api/v1 of the store it came from and draws.
//
// Everything foreign (names, holders, messages) enters the document as text, never as markup.
// A refresh redraws what changes by itself and leaves alone what people type into and click on.
"use strict";

const PERIOD_MS = 2000;
const PAGE_ROWS = 25;
const PAGE_ROWS_NARROW = 10;
const SLOW_DURABLE_WRITE_US = 100000;
const SKEWED_CLOCK_US = 500000;
const TICKS_PER_S = 10;
const OLD_DIRECTORY_S = 30;
const SOON_GONE_S = 15;
const STANDS_STILL_S = 300;  // as HAKEEPER_REPLAY_STALL_TICKS
const FEED_KEPT = 1000;
const FEED_ROWS = 200;

const view = { key: "shard", up: true, page: 0, filter: "", troubled: false };
let data = null;
let before = null;
let rates = new Map();
// The cluster's events that this page has seen, the newest first; `shown` is what was there when a
// person stopped following.
const feed = { cluster: "", kept: [], shown: null, kind: "" };

const $ = (id) => document.getElementById(id);

// What makes one name look like another: controls, marks of direction, characters without width.
const UNSEEN = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu;

function plain(text) {
  return text.replace(UNSEEN, (found) => `\\u{${found.codePointAt(0).toString(16)}}`);
}

function make(tag, text, ...classes) {
  const element = document.createElement(tag);
  if (text !== undefined && text !== null) element.textContent = text;
  for (const name of classes) if (name) element.classList.add(name);
  return element;
}

function put(parent, children) {
  parent.replaceChildren(...children);
}

const number = (n) => Math.round(n).toLocaleString("en-US");

function bytes(n) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let unit = 0;
  while (n >= 1024 && unit < units.length - 1) { n /= 1024; unit += 1; }
  return `${n < 10 && unit ? n.toFixed(1) : Math.round(n)} ${units[unit]}`;
}

function micros(us) {
  if (!us) return "–";
  if (us < 1000) return `${us} µs`;
  return us < 1000000 ? `${(us / 1000).toFixed(us < 10000 ? 1 : 0)} ms` : `${(us / 1e6).toFixed(1)} s`;
}

function span(seconds) {
  if (seconds < 90) return `${Math.round(seconds)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  return seconds < 172800 ? `${Math.round(seconds / 3600)} h` : `${Math.round(seconds / 86400)} d`;
}

// --- what is wrong -----------------------------------------------------------------------------

function isLost(replica) {
  return Boolean(replica.health) && replica.health !== "alive";
}

function storeState(store) {
  if (!store.answers && !store.alive) return { text: "down", kind: "bad" };
  if (!store.answers) return { text: "no answer", kind: "bad" };
  if (!store.ready) return { text: store.phase === "serving" ? "not ready" : store.phase, kind: "warn" };
  if (!store.alive) return { text: "not heard by HAKeeper", kind: "warn" };
  if (store.mode === "draining") return { text: store.members_left ? `draining, ${store.members_left} left` : "empty", kind: "warn" };
  if (store.mode === "read-only") return { text: "read-only", kind: "warn" };
  return { text: "ready", kind: "good" };
}

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

// --- rates -------------------------------------------------------------------------------------

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
  const all = counts.reduce((sum, count) => sum + count, 0);
  return all ? [0.5, 0.99].map((share) => micros(Math.round(1e6 * quantile(found.bounds, counts, share * all)))).join(" / ") : "–";
}

// As `logservice.histogram`: figures are spread over their bucket evenly.
function quantile(bounds, counts, wanted) {
  let below = 0;
  for (const [place, count] of counts.entries()) {
    if (count && below + count >= wanted) {
      if (place === bounds.length) return bounds[place - 1];
      const low = place ? bounds[place - 1] : 0;
      return low + ((bounds[place] - low) * (wanted - below)) / count;
    }
    below += count;
  }
  return 0;
}

function takeRates() {
  rates = new Map();
  for (const store of data.stores) {
    rates.set(`bytes ${store.store}`, rate(`bytes ${store.store}`, store.bytes_written));
    rates.set(`durable writes ${store.store}`, rate(`durable writes ${store.store}`, store.durable_writes));
    rates.set(`append ${store.store}`, latency(`append ${store.store}`, store.append_seconds));
    rates.set(`read ${store.store}`, latency(`read ${store.store}`, store.read_seconds));
  }
}

// --- drawing -----------------------------------------------------------------------------------

function drawTop() {
  const { cluster, page, stores } = data;
  $("cluster").textContent = cluster.cluster || "Log service";
  document.title = `${cluster.cluster} – log service`;
  const phase = $("phase");
  phase.hidden = false;
  const silent = Boolean(cluster.hakeeper_error);
  phase.textContent = silent ? "HAKeeper silent" : cluster.phase.replaceAll("_", " ");
  phase.className = `pill ${silent ? "bad" : cluster.phase === "running" ? "good" : "warn"}`;
  $("asked").textContent = `as seen by ${cluster.asked_store}`;
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

function heard(store) {
  if (store.heartbeat_age_ticks < 0) return data.cluster.hakeeper_error ? "unknown" : "never";
  const seconds = store.heartbeat_age_ticks / TICKS_PER_S;
  return `${seconds < 10 ? `${seconds.toFixed(1)} s` : span(seconds)} ago`;
}

function storeCard(store) {
  const state = storeState(store);
  const card = make("article", null, "card", state.kind === "good" ? "" : `${state.kind}-edge`);
  const title = make("h3", store.store);
  title.append(make("span", state.text, "pill", state.kind));
  card.append(title);
  const where = [store.zone && `zone ${store.zone}`, store.host !== store.store && store.host, store.client_address, store.version].filter(Boolean);
  card.append(make("p", where.join(" · "), "quiet"));
  const total = store.disk_used_bytes + store.disk_free_bytes;
  if (total) {
    const disk = make("div", null, "disk");
    disk.title = `${bytes(store.disk_used_bytes)} of log, ${bytes(store.disk_free_bytes)} free`;
    const low = store.reasons.some((reason) => reason.code === "disk_full");
    const filled = make("i", null, low && "low");
    filled.style.width = `${Math.max(0.5, (100 * store.disk_used_bytes) / total)}%`;
    disk.append(filled);
    card.append(disk);
  }
  const durableWrites = rates.get(`durable writes ${store.store}`);
  const written = rates.get(`bytes ${store.store}`);
  const facts = [
    ["log", bytes(store.disk_used_bytes)],
    ["disk free", bytes(store.disk_free_bytes)],
    ["leads", `${store.leaders} of ${store.replicas}`],
    ["append p50 / p99", rates.get(`append ${store.store}`) || "–"],
    ["read p50 / p99", rates.get(`read ${store.store}`) || "–"],
    ["durable write p50", micros(store.durable_write_p50_us)],
    ["durable write p99", micros(store.durable_write_p99_us)],
    ["durable writes/s", durableWrites === null || durableWrites === undefined ? "–" : number(durableWrites)],
    ["written/s", written === null || written === undefined ? "–" : bytes(written)],
    ["loop stalls", store.answers ? `${number(store.loop_stalls)}, longest ${micros(store.longest_loop_turn_us)}` : "–"],
    ["up", store.answers ? span(store.uptime_s) : "–"],
    ["heard", heard(store)],
    ["directory copy", store.directory_age_s < 0 ? "–" : `${span(store.directory_age_s)} old`],
  ];
  const list = make("dl");
  for (const [label, value] of facts) {
    const item = make("div");
    item.append(make("dt", label), make("dd", value));
    list.append(item);
  }
  card.append(list);
  const why = store.reasons.slice(0, 3).map((reason) =>
    `${reason.shard >= 0 ? `shard ${reason.shard}: ` : ""}${reason.code.replaceAll("_", " ")}: ${reason.detail}`);
  const more = store.reasons.length - 3;
  if (more > 0) why.push(`and ${more} more ${more > 1 ? "reasons" : "reason"}`);
  why.push(...store.alarms);
  if (!store.answers) why.push(store.error);
  if (store.mode_reason && store.mode !== "open") why.push(`${store.mode}: ${store.mode_reason}`);
  if (store.directory_age_s > OLD_DIRECTORY_S) why.push(`its copy of the directory of logs is ${span(store.directory_age_s)} old: hakeeper-silent.md`);
  if (store.answers && Math.abs(store.clock_offset_us) > SKEWED_CLOCK_US) why.push(`its clock is off by ${(store.clock_offset_us / 1e6).toFixed(1)} s`);
  for (const text of why) card.append(make("p", text, "why", state.kind === "good" ? "warn" : state.kind));
  return card;
}

function replicaChip(replica) {
  const lost = isLost(replica);
  const behind = replica.lag_entries > 1000;
  const chip = make("span", replica.store, "replica", replica.leader && "leads", lost && "lost", !lost && behind && "behind");
  const words = [replica.role, replica.zone && `zone ${replica.zone}`, replica.leader ? "leader" : "", replica.health, `applied index ${number(replica.applied_index)}`];
  if (replica.lag_entries >= 0) words.push(`${number(replica.lag_entries)} entries behind`);
  if (replica.lag_bytes > 0) words.push(`${(replica.lag_bytes / 2 ** 20).toFixed(1)} MiB to fetch`);
  if (replica.to_go_s > 0) words.push(`${span(replica.to_go_s)} to go`);
  chip.title = words.filter(Boolean).join(", ");
  if (replica.role === "witness") chip.append(" (witness)");
  if (replica.role === "learner") chip.append(replica.zone ? ` (learner, ${replica.zone})` : " (learner)");
  if (lost) chip.append(` ${replica.health}`);
  return chip;
}

function cell(label, content, ...classes) {
  const td = make("td", null, ...classes);
  td.dataset.label = label;
  if (content instanceof Node) td.append(content);
  else td.append(content);
  return td;
}

const USUAL_WEIGHT = 100;

function limitsOf(shard) {
  const words = [];
  if (shard.max_bytes_per_s) words.push(`${bytes(shard.max_bytes_per_s)}/s`);
  if (shard.max_records_per_s) words.push(`${number(shard.max_records_per_s)} records/s`);
  if (shard.weight && shard.weight !== USUAL_WEIGHT) words.push(`weight ${number(shard.weight)}`);
  const kept = [];
  if (shard.retention_age_s) kept.push(`${number(shard.retention_age_s)} s`);
  if (shard.retention_bytes) kept.push(bytes(shard.retention_bytes));
  if (shard.retention_records) kept.push(`${number(shard.retention_records)} records`);
  if (kept.length) words.push(`keeps ${kept.join(", ")}`);
  const limits = make("span", words.join(", ") || "–");
  if (shard.appends_delayed) limits.title = `${number(shard.appends_delayed)} appends waited or were refused for it`;
  return limits;
}

function shardRow({ row: shard, condition, records_per_s: perSecond }) {
  const row = make("tr");
  row.dataset.shard = shard.shard;
  const chips = document.createDocumentFragment();
  for (const replica of shard.replicas) chips.append(replicaChip(replica));
  const kept = shard.requested_truncation_lsn > shard.truncated_lsn;
  const truncation = make("span", number(shard.truncated_lsn));
  if (kept) {
    truncation.classList.add("pill", "warn");
    truncation.title = `${number(shard.requested_truncation_lsn)} was asked for; hold ${shard.hold_name} keeps ${number(shard.hold_lsn)} on`;
    truncation.append(" held");
  }
  const log = shard.shard !== 0;
  row.append(
    cell("shard", String(shard.shard), "num"),
    cell("", shard.name || "–", "name"),
    cell("", make("span", condition.text, "pill", condition.level)),
    cell("leader", shard.leader_store || "none"),
    cell("", chips, "wide"),
    cell("lag", shard.lag_entries < 0 ? "?" : number(shard.lag_entries), "num"),
    cell("records/s", !log || perSecond === null ? "–" : number(perSecond), "num"),
    cell("limits", limitsOf(shard)),
    cell("first", log ? number(shard.first_lsn) : "–", "num"),
    cell("applied", log ? number(shard.applied_lsn) : "–", "num"),
    cell("truncation", log ? truncation : "–", "num"),
    cell("writer", shard.writer_epoch ? `${shard.writer_holder || "released"} (${shard.writer_epoch})` : "–"),
  );
  row.children[1].title = shard.name;
  return row;
}

const perPage = () => matchMedia("(max-width: 720px)").matches ? PAGE_ROWS_NARROW : PAGE_ROWS;

function shardQuery() {
  const count = perPage();
  return `shards/page?${new URLSearchParams({
    filter: view.filter, troubled: Number(view.troubled), sort: view.key, descending: Number(!view.up), offset: view.page * count, count,
  })}`;
}

function drawShards() {
  const { rows: shown, matching, offset, shards } = data.page;
  const pages = Math.max(1, Math.ceil(matching / perPage()));
  view.page = Math.min(Math.floor(offset / perPage()), pages - 1);
  const body = $("shards").tBodies[0];
  if (shown.length) put(body, shown.map(shardRow));
  else {
    const none = make("td", shards ? "no shard matches" : "no shards yet", "empty", "wide");
    none.colSpan = 12;
    const row = make("tr");
    row.append(none);
    put(body, [row]);
  }
  for (const head of document.querySelectorAll("th[data-key]")) {
    if (head.dataset.key === view.key) head.setAttribute("aria-sort", view.up ? "ascending" : "descending");
    else head.removeAttribute("aria-sort");
  }
  $("shards-count").textContent = matching === shards ? number(matching) : `${number(matching)} of ${number(shards)}`;
  $("page").textContent = `page ${view.page + 1} of ${pages}`;
  $("previous").disabled = view.page === 0;
  $("next").disabled = view.page >= pages - 1;
  document.querySelector(".pages").classList.toggle("single", pages === 1);
}

function drawLists() {
  $("operators-count").textContent = data.operators.length ? number(data.operators.length) : "";
  const repairs = data.operators.map((one) => {
    const item = make("li", null, one.error && "is-warning");
    item.append(make("span", `shard ${one.shard}`, "from"));
    const from = one.from_store && one.from_store !== one.store ? ` from ${one.from_store}` : "";
    const where = one.store ? `${from}${from ? " to" : " on"} ${one.store}` : from;
    const left = one.entries_to_go > 0 ? `, ${number(one.entries_to_go)} entries to go` : "";
    const why = one.cause && one.cause !== "repair" ? ` (${one.cause})` : "";
    item.append(`${one.kind} replica ${one.replica}${where}${why}: ${one.step || "begins"}${left}, ${span(one.age_ticks / TICKS_PER_S)}`);
    if (one.error) item.append(make("p", one.error, "quiet"));
    return item;
  });
  put($("operators"), repairs.length ? repairs : [make("li", "nothing is under way", "quiet")]);
  const events = data.cluster.events.map((one) => {
    const item = make("li", null, `is-${one.level}`);
    const when = new Date(one.time_us / 1000);
    const time = make("time", when.toLocaleTimeString("en-GB"));
    time.dateTime = when.toISOString();
    time.title = when.toLocaleString();
    item.append(time, make("span", one.store, "from"), one.message);
    return item;
  });
  put($("events"), events.length ? events : [make("li", "none yet", "quiet")]);
}

// --- the cluster's events ------------------------------------------------------------------------

function takeFeed(rows, cluster) {
  if (feed.cluster !== cluster) Object.assign(feed, { cluster, kept: [], shown: null });
  const newest = feed.kept.length ? feed.kept[0].revision : 0;
  const fresh = rows.filter((one) => one.revision > newest);
  if (!fresh.length) return;
  const first = fresh[fresh.length - 1].revision;
  // This page was not there to see them, or its store did not answer for a while.
  const gap = newest && first > newest + 1 ? [{ revision: first - 1, missed: first - 1 - newest, after: newest }] : [];
  feed.kept = [...fresh, ...gap, ...feed.kept].slice(0, FEED_KEPT);
}

function feedItem(one) {
  if (one.missed) {
    return make("li", `${number(one.missed)} events came in between: logctl events --after ${one.after}`, "quiet");
  }
  const item = make("li", null, /down|halted|raised|gone/.test(one.kind) && "is-warning");
  const age = Math.max(0, data.cluster.tick - one.tick) / TICKS_PER_S;
  const when = make("time", `${span(age)} ago`);
  when.title = `revision ${one.revision}, tick ${one.tick}`;
  const about = [one.shard && `shard ${one.shard}`, one.replica && `replica ${one.replica}`, one.store].filter(Boolean).join(", ");
  item.dataset.revision = one.revision;
  item.append(when, make("span", one.kind, "from"), [about, one.text].filter(Boolean).join(": "));
  return item;
}

function drawFeed() {
  const rows = feed.shown || feed.kept;
  const kinds = [...new Set(feed.kept.map((one) => one.kind).filter(Boolean))].sort();
  if (feed.kind && !kinds.includes(feed.kind)) kinds.push(feed.kind);
  const choice = $("kind");
  if (choice.options.length !== kinds.length + 1) {
    put(choice, ["", ...kinds].map((kind) => {
      const option = make("option", kind || "every kind");
      option.value = kind;
      return option;
    }));
    choice.value = feed.kind;
  }
  const found = rows.filter((one) => !feed.kind || one.kind === feed.kind);
  const items = found.slice(0, FEED_ROWS).map(feedItem);
  if (found.length > FEED_ROWS) items.push(make("li", "older ones: logctl events", "quiet"));
  const none = data.cluster.cluster_version < 2 ? "from cluster version 2 on" : "none yet";
  put($("feed"), items.length ? items : [make("li", none, "quiet")]);
  const newer = feed.shown && feed.kept.length && feed.kept[0].revision - (feed.shown.length ? feed.shown[0].revision : 0);
  $("feed-count").textContent = newer ? `${number(newer)} newer` : "";
}

function replays(service) {
  if (!service.replays) return "–";
  const logs = service.replays === 1 ? "1 log" : `${number(service.replays)} logs`;
  if (service.not_held) return make("span", `${logs}, ${number(service.not_held)} not held`, "pill", "warn");
  const behind = service.behind_ticks / TICKS_PER_S;
  if (behind >= STANDS_STILL_S) return make("span", `${logs}, stands still for ${span(behind)}`, "pill", "warn");
  return make("span", logs, "pill", "good");
}

function drawServices() {
  const total = data.cluster.services;
  $("services-count").textContent = total ? number(total) : "";
  const rows = data.services.map((one) => {
    const row = make("tr");
    row.dataset.service = one.service;
    const left = one.expires_in_ticks / TICKS_PER_S;
    const labels = Object.entries(one.labels).map(([key, text]) => `${key}=${text}`).join(" ");
    row.append(
      cell("", make("b", one.service), "name"),
      cell("kind", one.kind || "–"),
      cell("state", one.work_state || "–"),
      cell("address", one.address || "–"),
      cell("expires in", make("span", span(left), "pill", left < SOON_GONE_S ? "warn" : "good")),
      cell("commands waiting", number(one.waiting), "num"),
      cell("replays", replays(one)),
      cell("labels", labels || "–", "name"),
      cell("belongs to", one.owner || "–", "name"),
    );
    return row;
  });
  const more = total - data.services.length;
  const note = more > 0 ? `and ${number(more)} more: logctl services` : rows.length ? "" : "no service is registered";
  if (note) {
    const last = make("td", note, "empty", "wide");
    last.colSpan = 9;
    const row = make("tr");
    row.append(last);
    rows.push(row);
  }
  put($("services").tBodies[0], rows);
}

// Which process serves which; the flags among the alarms say what has lasted for too long.
function drawTnShards() {
  $("tn").hidden = !data.tnShards.length;
  $("tn-count").textContent = number(data.tnShards.length);
  put($("tn-shards").tBodies[0], data.tnShards.map((one) => {
    const row = make("tr");
    row.dataset.tn = one.tn_shard;
    row.append(
      cell("TN shard", String(one.tn_shard), "num"),
      cell("log", one.log ? `${one.log} (${one.shard})` : String(one.shard), "name"),
      cell("standing", make("span", one.standing, "pill", one.standing === "served" ? "good" : "warn")),
      cell("service", one.service || "–"),
      cell("for", span(one.standing_ticks / TICKS_PER_S)),
      cell("replica", number(one.replica), "num"),
      cell("only for", one.identity || "–", "name"),
    );
    return row;
  }));
}

function draw() {
  drawTop();
  $("stores-count").textContent = number(data.stores.length);
  put($("stores"), data.stores.map(storeCard));
  drawShards();
  drawLists();
  drawFeed();
  drawServices();
  drawTnShards();
}

// --- asking ------------------------------------------------------------------------------------

async function ask(part) {
  const answer = await fetch(`/api/v1/${part}`, { cache: "no-store" });
  const body = JSON.parse(await answer.text(), (_, value) => typeof value === "string" ? plain(value) : value);
  if (!answer.ok) throw new Error(body.error || `HTTP ${answer.status}`);
  return body;
}

function sayLost(error) {
  $("live").textContent = `no answer: ${error.message}`;
  $("live").classList.add("lost");
}

// What a person chose is shown at once; a refresh that is under way sees the choice, too.
async function showShards() {
  if (!data) return;
  const query = shardQuery();
  try {
    const page = await ask(query);
    if (query !== shardQuery()) return;  // chosen again: that answer is drawn
    data.page = page;
    drawShards();
  } catch (error) {
    sayLost(error);
  }
}

async function refresh() {
  try {
    let query = shardQuery();
    const parts = ["cluster", "stores", query, "operators", "services", "tn-shards", "events"];
    let [cluster, stores, page, operators, services, tnShards, events] = await Promise.all(parts.map(ask));
    while (query !== shardQuery()) {  // a person chose something meanwhile
      query = shardQuery();
      page = await ask(query);
    }
    before = data && data.at ? data : null;
    takeFeed(events, cluster.cluster);
    data = { cluster, stores, page, operators, services, tnShards, at: cluster.time_us / 1000, values: new Map() };
    // The store gives one picture to all who ask within a second: the same one says nothing new.
    if (before && data.at <= before.at) { data.values = before.values; before = null; } else takeRates();
    draw();
    $("live").textContent = "live";
    $("live").classList.remove("lost");
  } catch (error) {
    sayLost(error);
  }
  document.documentElement.dataset.drawn = String(Number(document.documentElement.dataset.drawn || 0) + 1);
  setTimeout(refresh, document.hidden ? 5 * PERIOD_MS : PERIOD_MS);
}

function listen() {
  for (const head of document.querySelectorAll("th[data-key]")) {
    head.firstElementChild.addEventListener("click", () => {
      const again = view.key === head.dataset.key;
      view.up = again ? !view.up : !head.classList.contains("num") || head.dataset.key === "shard";
      view.key = head.dataset.key;
      view.page = 0;
      showShards();
    });
  }
  $("filter").addEventListener("input", (event) => {
    view.filter = event.target.value.trim().toLowerCase();
    view.page = 0;
    showShards();
  });
  $("troubled").addEventListener("change", (event) => {
    view.troubled = event.target.checked;
    view.page = 0;
    showShards();
  });
  $("kind").addEventListener("change", (event) => {
    feed.kind = event.target.value;
    if (data) drawFeed();
  });
  $("follow").addEventListener("change", (event) => {
    feed.shown = event.target.checked ? null : feed.kept;
    if (data) drawFeed();
  });
  $("previous").addEventListener("click", () => { view.page -= 1; showShards(); });
  $("next").addEventListener("click", () => { view.page += 1; showShards(); });
}

listen();
refresh();
