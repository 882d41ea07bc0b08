// What happened: the events of the cluster as HAKeeper tells them, those of the stores' own logs, and
// what is under way.

import { $, make, put } from "./dom.js";
import { number, ticks } from "./format.js";

const FEED_KEPT = 1000;
const FEED_ROWS = 200;

// The cluster's events that this page has seen, the newest first; `shown` is what was there when a
// person stopped following.
const feed = { cluster: "", kept: [], shown: null, kind: "" };

export function drawLists(data) {
  $("operators-count").textContent = data.operators.length ? number(data.operators.length) : "";
  const repairs = data.operators.map((one) => {
    const item = make("li", null, one.error && "is-warning");
    item.append(make("span", `shard ${one.shard}`, "from"));
    const from = one.from_store && one.from_store !== one.store ? ` from ${one.from_store}` : "";
    const where = one.store ? `${from}${from ? " to" : " on"} ${one.store}` : from;
    const left = one.entries_to_go > 0 ? `, ${number(one.entries_to_go)} entries to go` : "";
    const why = one.cause && one.cause !== "repair" ? ` (${one.cause})` : "";
    item.append(`${one.kind} replica ${one.replica}${where}${why}: ${one.step || "begins"}${left}, ${ticks(one.age_ticks)}`);
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

export function takeFeed(rows, cluster) {
  if (feed.cluster !== cluster) Object.assign(feed, { cluster, kept: [], shown: null });
  const newest = feed.kept.length ? feed.kept[0].revision : 0;
  const fresh = rows.filter((one) => one.revision > newest);
  if (!fresh.length) return;
  const first = fresh[fresh.length - 1].revision;
  // This page was not there to see them, or its store did not answer for a while.
  const gap = newest && first > newest + 1 ? [{ revision: first - 1, missed: first - 1 - newest, after: newest }] : [];
  feed.kept = [...fresh, ...gap, ...feed.kept].slice(0, FEED_KEPT);
}

function feedItem(one, now) {
  if (one.missed) {
    return make("li", `${number(one.missed)} events came in between: logctl events --after ${one.after}`, "quiet");
  }
  const item = make("li", null, /down|halted|raised|gone/.test(one.kind) && "is-warning");
  const age = Math.max(0, now - one.tick);
  const when = make("time", `${ticks(age)} ago`);
  when.title = `revision ${one.revision}, tick ${one.tick}`;
  const about = [one.shard && `shard ${one.shard}`, one.replica && `replica ${one.replica}`, one.store].filter(Boolean).join(", ");
  item.dataset.revision = one.revision;
  item.append(when, make("span", one.kind, "from"), [about, one.text].filter(Boolean).join(": "));
  return item;
}

export function drawFeed({ cluster }) {
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
  const items = found.slice(0, FEED_ROWS).map((one) => feedItem(one, cluster.tick));
  if (found.length > FEED_ROWS) items.push(make("li", "older ones: logctl events", "quiet"));
  const none = cluster.cluster_version < 2 ? "from cluster version 2 on" : "none yet";
  put($("feed"), items.length ? items : [make("li", none, "quiet")]);
  const newer = feed.shown && feed.kept.length && feed.kept[0].revision - (feed.shown.length ? feed.shown[0].revision : 0);
  $("feed-count").textContent = newer ? `${number(newer)} newer` : "";
}

export function listenFeed(draw) {
  $("kind").addEventListener("change", (event) => {
    feed.kind = event.target.value;
    draw();
  });
  $("follow").addEventListener("change", (event) => {
    feed.shown = event.target.checked ? null : feed.kept;
    draw();
  });
}
