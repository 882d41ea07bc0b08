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

const view = { key: "shard", up: true, page: 0, filter: "", troubled: false };
let data = null;
let before = null;
let rates = new Map();

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

function stateOf(shard) {
  const lost = shard.replicas.filter((one) => one.health && one.health !== "alive").length;
  const alive = shard.replicas.length - lost;
  if (!shard.leader_store) return { rank: 0, text: "no leader", kind: "bad" };
  if (lost && alive * 2 <= shard.replicas.length) return { rank: 1, text: "no majority", kind: "bad" };
  if (lost) return { rank: 2, text: `${lost} replica${lost > 1 ? "s" : ""} down`, kind: "warn" };
  if (shard.stalled) return { rank: 3, text: "truncation stalled", kind: "warn" };
  if (alive < shard.wanted) return { rank: 4, text: `${alive} of ${shard.wanted} replicas`, kind: "warn" };
  if (shard.joint) return { rank: 5, text: "changing", kind: "warn" };
  return { rank: 9, text: "ok", kind: "good" };
}

function storeState(store) {
  if (!store.answers && !store.alive) return { text: "down", kind: "bad" };
  if (!store.answers) return { text: "no answer", kind: "bad" };
  if (!store.ready) return { text: store.phase === "serving" ? "not ready" : store.phase, kind: "warn" };
  if (!store.alive) return { text: "not heard by HAKeeper", kind: "warn" };
  return { text: "ready", kind: "good" };
}

function alarms(cluster, shards) {
  const found = [];
  if (cluster.hakeeper_error) {
    const known = cluster.phase !== "unknown";
    const age = !known ? "nobody remembers its word"
      : cluster.hakeeper_age_s < 0 ? "its word shown here is old" : `its word shown here is ${span(cluster.hakeeper_age_s)} old`;
    found.push(["bad", `HAKeeper does not answer, nothing is repaired; ${age}. ${cluster.hakeeper_error}`]);
  }
  const leaderless = shards.filter((shard) => !shard.leader_store);
  if (leaderless.length) {
    const ids = leaderless.slice(0, 8).map((shard) => shard.shard).join(", ");
    const more = leaderless.length > 8 ? ` and ${leaderless.length - 8} more` : "";
    found.push(["bad", `Without a leader, no appends: shard ${ids}${more}`]);
  }
  for (const flag of cluster.flags.slice(0, 6)) found.push(["warn", flag]);
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

function takeRates() {
  rates = new Map();
  for (const shard of data.shards) rates.set(`shard ${shard.shard}`, rate(`shard ${shard.shard}`, shard.applied_lsn));
  for (const store of data.stores) {
    rates.set(`bytes ${store.store}`, rate(`bytes ${store.store}`, store.bytes_written));
    rates.set(`durable writes ${store.store}`, rate(`durable writes ${store.store}`, store.durable_writes));
  }
}

// --- drawing -----------------------------------------------------------------------------------

function drawTop() {
  const { cluster, shards, stores } = data;
  $("cluster").textContent = cluster.cluster || "Log service";
  document.title = `${cluster.cluster} – log service`;
  const phase = $("phase");
  phase.hidden = false;
  const silent = Boolean(cluster.hakeeper_error);
  phase.textContent = silent ? "HAKeeper silent" : cluster.phase.replaceAll("_", " ");
  phase.className = `pill ${silent ? "bad" : cluster.phase === "running" ? "good" : "warn"}`;
  $("asked").textContent = `as seen by ${cluster.asked_store}`;
  put($("alarms"), alarms(cluster, shards));
  let records = 0;
  for (const shard of shards) records += rates.get(`shard ${shard.shard}`) || 0;
  let written = 0;
  for (const store of stores) written += rates.get(`bytes ${store.store}`) || 0;
  const slowest = Math.max(0, ...stores.map((store) => store.durable_write_p99_us));
  const free = stores.filter((store) => store.disk_free_bytes).map((store) => store.disk_free_bytes);
  const tiles = [
    ["stores ready", `${cluster.stores_ready} / ${cluster.stores}`, cluster.stores_ready < cluster.stores],
    ["shards with a leader", `${cluster.shards - cluster.shards_without_leader} / ${cluster.shards}`, cluster.shards_without_leader > 0],
    ["short of replicas", number(cluster.shards_lacking_replicas), cluster.shards_lacking_replicas > 0],
    ["records/s", number(records), false],
    ["written/s, all copies", bytes(written), false],
    ["slowest durable write p99", micros(slowest), slowest > SLOW_DURABLE_WRITE_US],
    ["least disk free", free.length ? bytes(Math.min(...free)) : "–", false],
    ["repairs", number(cluster.operators), false],
  ];
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
  const where = [store.host !== store.store && store.host, store.client_address, store.version].filter(Boolean);
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
    ["durable write p50", micros(store.durable_write_p50_us)],
    ["durable write p99", micros(store.durable_write_p99_us)],
    ["durable writes/s", durableWrites === null || durableWrites === undefined ? "–" : number(durableWrites)],
    ["written/s", written === null || written === undefined ? "–" : bytes(written)],
    ["up", store.answers ? span(store.uptime_s) : "–"],
    ["heard", heard(store)],
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
  if (store.answers && Math.abs(store.clock_offset_us) > SKEWED_CLOCK_US) why.push(`its clock is off by ${(store.clock_offset_us / 1e6).toFixed(1)} s`);
  for (const text of why) card.append(make("p", text, "why", state.kind === "good" ? "warn" : state.kind));
  return card;
}

function replicaChip(replica) {
  const lost = replica.health && replica.health !== "alive";
  const behind = replica.lag_entries > 1000;
  const chip = make("span", replica.store, "replica", replica.leader && "leads", lost && "lost", !lost && behind && "behind");
  const words = [replica.role, replica.leader ? "leader" : "", replica.health, `applied index ${number(replica.applied_index)}`];
  if (replica.lag_entries >= 0) words.push(`${number(replica.lag_entries)} entries behind`);
  chip.title = words.filter(Boolean).join(", ");
  if (replica.role === "learner") chip.append(" (learner)");
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

function shardRow(shard) {
  const row = make("tr");
  row.dataset.shard = shard.shard;
  const state = stateOf(shard);
  const chips = document.createDocumentFragment();
  for (const replica of shard.replicas) chips.append(replicaChip(replica));
  const perSecond = rates.get(`shard ${shard.shard}`);
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
    cell("", make("span", state.text, "pill", state.kind)),
    cell("leader", shard.leader_store || "none"),
    cell("", chips, "wide"),
    cell("lag", shard.lag_entries < 0 ? "?" : number(shard.lag_entries), "num"),
    cell("records/s", !log || perSecond === null || perSecond === undefined ? "–" : number(perSecond), "num"),
    cell("first", log ? number(shard.first_lsn) : "–", "num"),
    cell("applied", log ? number(shard.applied_lsn) : "–", "num"),
    cell("truncation", log ? truncation : "–", "num"),
    cell("writer", shard.writer_epoch ? `${shard.writer_holder || "released"} (${shard.writer_epoch})` : "–"),
  );
  row.children[1].title = shard.name;
  return row;
}

function wanted(shard) {
  if (view.troubled && stateOf(shard).rank === 9) return false;
  if (!view.filter) return true;
  const text = [shard.shard, shard.name, shard.leader_store, shard.writer_holder, stateOf(shard).text, ...shard.replicas.map((one) => one.store)];
  return text.join(" ").toLowerCase().includes(view.filter);
}

function sortValue(shard) {
  if (view.key === "state") return stateOf(shard).rank;
  if (view.key === "rate") return rates.get(`shard ${shard.shard}`) ?? -1;
  return shard[view.key];
}

function drawShards() {
  const rows = data.shards.filter(wanted);
  rows.sort((a, b) => {
    const [x, y] = [sortValue(a), sortValue(b)];
    const order = typeof x === "string" ? x.localeCompare(y, "en", { numeric: true }) : x - y;
    return (view.up ? order : -order) || a.shard - b.shard;
  });
  const perPage = matchMedia("(max-width: 720px)").matches ? PAGE_ROWS_NARROW : PAGE_ROWS;
  const pages = Math.max(1, Math.ceil(rows.length / perPage));
  view.page = Math.min(view.page, pages - 1);
  const shown = rows.slice(view.page * perPage, (view.page + 1) * perPage);
  const body = $("shards").tBodies[0];
  if (shown.length) put(body, shown.map(shardRow));
  else {
    const none = make("td", data.shards.length ? "no shard matches" : "no shards yet", "empty", "wide");
    none.colSpan = 11;
    const row = make("tr");
    row.append(none);
    put(body, [row]);
  }
  for (const head of document.querySelectorAll("th[data-key]")) {
    if (head.dataset.key === view.key) head.setAttribute("aria-sort", view.up ? "ascending" : "descending");
    else head.removeAttribute("aria-sort");
  }
  $("shards-count").textContent = rows.length === data.shards.length ? number(rows.length) : `${number(rows.length)} of ${number(data.shards.length)}`;
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
    const where = one.store ? ` on ${one.store}` : "";
    item.append(`${one.kind} replica ${one.replica}${where}: ${one.step || "begins"}, ${span(one.age_ticks / TICKS_PER_S)}`);
    if (one.error) item.append(make("p", one.error, "quiet"));
    return item;
  });
  put($("operators"), repairs.length ? repairs : [make("li", "nothing is being repaired", "quiet")]);
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

function draw() {
  drawTop();
  $("stores-count").textContent = number(data.stores.length);
  put($("stores"), data.stores.map(storeCard));
  drawShards();
  drawLists();
}

// --- asking ------------------------------------------------------------------------------------

async function ask(part) {
  const answer = await fetch(`/api/v1/${part}`, { cache: "no-store" });
  const body = JSON.parse(await answer.text(), (_, value) => typeof value === "string" ? plain(value) : value);
  if (!answer.ok) throw new Error(body.error || `HTTP ${answer.status}`);
  return body;
}

async function refresh() {
  try {
    const [cluster, stores, shards, operators] = await Promise.all(["cluster", "stores", "shards", "operators"].map(ask));
    before = data && data.at ? data : null;
    data = { cluster, stores, shards, operators, at: cluster.time_us / 1000, values: new Map() };
    // The store gives one picture to all who ask within a second: the same one says nothing new.
    if (before && data.at <= before.at) { data.values = before.values; before = null; } else takeRates();
    draw();
    $("live").textContent = "live";
    $("live").classList.remove("lost");
  } catch (error) {
    $("live").textContent = `no answer: ${error.message}`;
    $("live").classList.add("lost");
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
      if (data) drawShards();
    });
  }
  $("filter").addEventListener("input", (event) => {
    view.filter = event.target.value.trim().toLowerCase();
    view.page = 0;
    if (data) drawShards();
  });
  $("troubled").addEventListener("change", (event) => {
    view.troubled = event.target.checked;
    view.page = 0;
    if (data) drawShards();
  });
  $("previous").addEventListener("click", () => { view.page -= 1; drawShards(); });
  $("next").addEventListener("click", () => { view.page += 1; drawShards(); });
}

listen();
refresh();
