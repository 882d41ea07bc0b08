// The console of the admin port. Read-only: it asks /api/v1 of the store it came from and draws.
//
// The address behind # says what is shown, so that it can be linked: #/store/NAME, #/shard/7,
// #/holds?filter=text. Each view is a file; this one finds it, refreshes it, and keeps the head.
"use strict";

import { ask } from "./api.js";
import { $ } from "./dom.js";
import { claims } from "./claims_view.js";
import { findings } from "./findings_view.js";
import { grants } from "./grants_view.js";
import { history } from "./history_view.js";
import { overview } from "./overview.js";
import { records } from "./records_view.js";
import { runbook } from "./runbook_view.js";
import { shard } from "./shard_view.js";
import { store } from "./store_view.js";
import { work } from "./work_view.js";

const PERIOD_MS = 2000;

// A view has `container`, the id of its part of the page, `open(parameters, sayLost, argument)`, and
// `refresh({cluster, findings})`, which asks for what it shows and draws it.
const VIEWS = {
  "": overview,
  findings,
  history,
  work,
  holds: claims("holds"),
  writers: claims("writers"),
  sessions: claims("sessions"),
  grants,
  records,
  runbook,
  store,
  shard,
};

let shown = null;
let turn = 0;
let timer = 0;

function sayLost(error) {
  $("live").textContent = `no answer: ${error.message}`;
  $("live").classList.add("lost");
  document.body.classList.add("stale");
}

function sayLive() {
  $("live").textContent = "live";
  $("live").classList.remove("lost");
  document.body.classList.remove("stale");
}

function drawHead({ cluster, findings: found }) {
  $("version").textContent = cluster.version;
  $("cluster").textContent = cluster.cluster;
  document.title = `${cluster.cluster} – logservice`;
  const phase = $("phase");
  phase.hidden = false;
  const silent = Boolean(cluster.hakeeper_error);
  phase.textContent = silent ? "HAKeeper silent" : cluster.phase.replaceAll("_", " ");
  phase.className = `pill ${silent ? "bad" : cluster.phase === "running" ? "good" : "warn"}`;
  $("asked").textContent = `as seen by ${cluster.asked_store}`;
  const count = $("findings-count");
  count.hidden = !found.found;
  count.textContent = found.found;
  count.className = `pill ${found.rows.some((one) => ["broken", "danger"].includes(one.severity)) ? "bad" : "warn"}`;
}

// The view that an address names, its argument, and its parameters.
function parsed(hash) {
  const [path, parameters = ""] = hash.replace(/^#\/?/, "").split("?");
  const [name, argument = ""] = path.split("/").map(decoded);
  return { name: name in VIEWS ? name : "", argument, parameters: new URLSearchParams(parameters) };
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

// Tabs that do not fit scroll, and their ends say so.
function tellMore() {
  const tabs = $("views");
  tabs.classList.toggle("more-left", tabs.scrollLeft > 2);
  tabs.classList.toggle("more-right", tabs.scrollLeft + tabs.clientWidth < tabs.scrollWidth - 2);
}

function route() {
  const { name, argument, parameters } = parsed(location.hash);
  shown = VIEWS[name];
  for (const one of document.querySelectorAll("main > .view")) one.hidden = one.id !== shown.container;
  for (const one of document.querySelectorAll("#views a")) {
    if (one.getAttribute("href") === `#/${name}`) {
      one.setAttribute("aria-current", "page");
      one.scrollIntoView({ block: "nearest", inline: "center" });
    } else {
      one.removeAttribute("aria-current");
    }
  }
  tellMore();
  shown.open(parameters, sayLost, argument);
  window.scrollTo(0, 0);
  refresh();
}

async function refresh() {
  clearTimeout(timer);
  const mine = ++turn;
  const view = shown;
  try {
    const [cluster, found] = await Promise.all([ask("cluster"), ask("findings")]);
    if (mine !== turn) return;  // a person went elsewhere meanwhile
    drawHead({ cluster, findings: found });
    await view.refresh({ cluster, findings: found });
    if (mine !== turn) return;
    sayLive();
  } catch (error) {
    if (mine !== turn) return;
    sayLost(error);
  }
  document.documentElement.dataset.drawn = String(Number(document.documentElement.dataset.drawn || 0) + 1);
  timer = setTimeout(refresh, document.hidden ? 5 * PERIOD_MS : PERIOD_MS);
}

$("views").addEventListener("scroll", tellMore, { passive: true });
new ResizeObserver(tellMore).observe($("views"));
window.addEventListener("hashchange", route);
route();
