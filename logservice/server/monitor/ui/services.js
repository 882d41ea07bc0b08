// The database's own services, and the TN shards that they serve.

import { $, cell, make, pill, put } from "./dom.js";
import { TICKS_PER_S, number, span, ticks } from "./format.js";

const SOON_GONE_S = 15;
const STANDS_STILL_S = 300;  // as HAKEEPER_REPLAY_STALL_TICKS

function replays(service) {
  if (!service.replays) return "–";
  const logs = service.replays === 1 ? "1 log" : `${number(service.replays)} logs`;
  if (service.not_held) return pill(`${logs}, ${number(service.not_held)} not held`, "warn");
  const behind = service.behind_ticks / TICKS_PER_S;
  if (behind >= STANDS_STILL_S) return pill(`${logs}, stands still for ${span(behind)}`, "warn");
  return pill(logs, "good");
}

export function drawServices(data) {
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
      cell("expires in", pill(span(left), left < SOON_GONE_S ? "warn" : "good")),
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
export function drawTnShards(data) {
  $("tn").hidden = !data.tnShards.length;
  $("tn-count").textContent = number(data.tnShards.length);
  put($("tn-shards").tBodies[0], data.tnShards.map((one) => {
    const row = make("tr");
    row.dataset.tn = one.tn_shard;
    row.append(
      cell("TN shard", String(one.tn_shard), "num"),
      cell("log", one.log ? `${one.log} (${one.shard})` : String(one.shard), "name"),
      cell("standing", pill(one.standing, one.standing === "served" ? "good" : "warn")),
      cell("service", one.service || "–"),
      cell("for", ticks(one.standing_ticks)),
      cell("replica", number(one.replica), "num"),
      cell("only for", one.identity || "–", "name"),
    );
    return row;
  }));
}
