// The table of shards: the store filters, sorts and cuts it, this draws the rows that are shown.

import { $, cell, link, make, put } from "./dom.js";
import { bytes, number, span } from "./format.js";
import { ask, query } from "./api.js";

const PAGE_ROWS = 25;
const PAGE_ROWS_NARROW = 8;
const USUAL_WEIGHT = 100;

const view = { key: "shard", up: true, page: 0, filter: "", troubled: false };

export function isLost(replica) {
  return Boolean(replica.health) && replica.health !== "alive";
}

export function replicaChip(replica) {
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

export function limitsOf(shard) {
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
  const name = shard.name ? link(shard.name, "shard", shard.shard) : "–";
  const truncation = make("span", number(shard.truncated_lsn));
  if (kept) {
    truncation.classList.add("pill", "warn");
    truncation.title = `${number(shard.requested_truncation_lsn)} was asked for; hold ${shard.hold_name} keeps ${number(shard.hold_lsn)} on`;
    truncation.append(" held");
  }
  const log = shard.shard !== 0;
  row.append(
    cell("shard", link(String(shard.shard), "shard", shard.shard), "num"),
    cell("", name, "name"),
    cell("", make("span", condition.text, "pill", condition.level)),
    cell("leader", shard.leader_store ? link(shard.leader_store, "store", shard.leader_store) : "none", "more"),
    cell("", chips, "wide"),
    cell("lag", shard.lag_entries < 0 ? "?" : number(shard.lag_entries), "num"),
    cell("records/s", !log || perSecond === null ? "–" : number(perSecond), "num"),
    cell("limits", limitsOf(shard), "more"),
    cell("first", log ? number(shard.first_lsn) : "–", "num", "more"),
    cell("applied", log ? number(shard.applied_lsn) : "–", "num"),
    cell("truncation", log ? truncation : "–", "num", !kept && "more"),
    cell("writer", shard.writer_epoch ? `${shard.writer_holder || "released"} (${shard.writer_epoch})` : "–", !shard.writer_epoch && "more"),
  );
  row.children[1].title = shard.name;
  return row;
}

const perPage = () => matchMedia("(max-width: 720px)").matches ? PAGE_ROWS_NARROW : PAGE_ROWS;

export function shardQuery() {
  const count = perPage();
  return `shards/page?${query({
    filter: view.filter, troubled: Number(view.troubled), sort: view.key, descending: Number(!view.up), offset: view.page * count, count,
  })}`;
}

export function drawShards({ page }) {
  const { rows: shown, matching, offset, shards } = page;
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
  $("shard-pages").classList.toggle("single", pages === 1);
}

// What a person chose is shown at once; a refresh that is under way sees the choice, too.
export async function shownShards(data, sayLost) {
  const asked = shardQuery();
  try {
    const page = await ask(asked);
    if (asked !== shardQuery()) return;  // chosen again: that answer is drawn
    data.page = page;
    drawShards(data);
  } catch (error) {
    sayLost(error);
  }
}

export function filterShards(text) {
  view.filter = text.trim().toLowerCase();
  view.page = 0;
  $("filter").value = text;
}

export function listenShards(show) {
  for (const head of document.querySelectorAll("th[data-key]")) {
    head.firstElementChild.addEventListener("click", () => {
      const again = view.key === head.dataset.key;
      view.up = again ? !view.up : !head.classList.contains("num") || head.dataset.key === "shard";
      view.key = head.dataset.key;
      view.page = 0;
      show();
    });
  }
  $("filter").addEventListener("input", (event) => {
    view.filter = event.target.value.trim().toLowerCase();
    view.page = 0;
    show();
  });
  $("troubled").addEventListener("change", (event) => {
    view.troubled = event.target.checked;
    view.page = 0;
    show();
  });
  $("previous").addEventListener("click", () => { view.page -= 1; show(); });
  $("next").addEventListener("click", () => { view.page += 1; show(); });
}
