// One shard: #/shard/NUMBER.

import { ask, query } from "./api.js";
import { Chart } from "./chart.js";
import { holdCells, holdColumns, sessionCells, sessionColumns } from "./claims_view.js";
import { $, facts, link, make, part, pill, put, table } from "./dom.js";
import { bytes, number, span, ticks, times } from "./format.js";
import { TITLES, lineOf } from "./histories.js";
import { isLost, limitsOf } from "./shards.js";

const FIGURES = ["records_per_s", "lag_entries", "kept_records"];

let wanted = "";
let charts = null;

function writer(row, leader) {
  if (!row.writer_epoch) return "";
  const owner = leader && leader.writer_owner ? ` of ${leader.writer_owner}` : "";
  return `${row.writer_holder || "released"}${owner}, epoch ${row.writer_epoch}`;
}

function state(row) {
  const lost = row.replicas.filter(isLost).length;
  if (!row.leader_store) return pill("no leader", "bad");
  if (lost) return pill(lost > 1 ? `${lost} replicas down` : "a replica is down", "warn");
  if (row.stalled) return pill("truncation stalled", "warn");
  return pill(row.state || "runs", row.state === "deleting" ? "warn" : "good");
}

function head(row, leader) {
  const log = row.shard !== 0;
  const title = make("div", null, "bar");
  title.append(make("h2", log ? `Log ${row.name || row.shard}` : "HAKeeper, shard 0"), state(row));
  if (log) title.append(link("its records", "records", String(row.shard)));
  const shown = [
    ["shard", String(row.shard)],
    ["leader", row.leader_store ? link(row.leader_store, "store", row.leader_store) : "none"],
    ["term", number(row.term)],
    ["replicas wanted", number(row.wanted)],
    ["members", `epoch ${row.epoch}${row.joint ? ", changing" : ""}`],
  ];
  if (log) {
    shown.push(
      ["records", row.applied_lsn ? `${number(row.first_lsn)} to ${number(row.applied_lsn)}` : "none yet"],
      ["truncated up to", number(row.truncated_lsn)],
      ["truncation asked for", number(row.requested_truncation_lsn)],
      ["writer", writer(row, leader)],
      ["sessions", number(row.sessions)],
      ["holds", number(row.holds)],
      ["limits and retention", limitsOf(row)],
      ["appends held up by limits", number(row.appends_delayed)],
      ["leader's zone", row.leader_zone || "anywhere"],
      ["learners wanted", Object.entries(row.learners).map(([zone, count]) => `${count} in ${zone || "any zone"}`).join(", ")],
    );
    if (row.end_lsn) shown.push(["ends before LSN", number(row.end_lsn)]);
    if (leader) shown.push(
      ["gaps", number(leader.gaps), "ranges of LSNs whose blocks were refused"],
      ["next timestamp", number(leader.next_timestamp)],
      ["recovered or restored", times(leader.lineage), "how often the log went on as another history (another lineage): recovered by force, restored or branched"],
    );
    if (leader && leader.restoring) shown.push(["restoring", pill("from an archive or another log", "warn")]);
  }
  if (leader) shown.push(["compared with the others", compared(row, leader)]);
  return [title, facts(shown)];
}

function compared(row, leader) {
  if (leader.compared.undecided) return pill("replicas differ, undecided", "bad");
  return leader.compared.through ? `all entries up to ${number(leader.compared.through)}` : "not by this leader yet";
}

function lag(member) {
  if (member.lag_entries < 0) return "?";
  const size = member.lag_bytes > 0 ? `, ${bytes(member.lag_bytes)}` : "";
  const time = member.to_go_s > 0 ? `, ${span(member.to_go_s)} to go` : "";
  return `${number(member.lag_entries)} entries${size}${time}`;
}

function replicas(row, members) {
  const inside = new Map(members.map((one) => [one.store, one]));
  return table(
    [{ label: "store" }, { label: "replica", num: true }, { label: "role" }, { label: "health" }, { label: "lag", num: true }, { label: "term", num: true }, { label: "first / committed / applied entry", num: true }, { label: "LSNs", num: true }, { label: "", wide: true }],
    row.replicas.map((one) => {
      const said = inside.get(one.store);
      const own = said && said.inside ? said.inside.replica : null;
      const role = one.leader ? pill("leader", "good") : one.role;
      const words = !own ? (said && said.error) || "" : own.halted || own.stalled || (own.stuck ? "applies nothing" : "");
      return [
        link(one.store, "store", one.store), String(one.replica), role,
        isLost(one) ? pill(one.health, "bad") : one.health || "alive", lag(one),
        own ? number(own.term) : "", own ? `${number(own.first_index)} / ${number(own.committed_index)} / ${number(own.applied_index)}` : number(one.applied_index),
        row.shard ? `${number(one.first_lsn)} to ${number(one.applied_lsn)}` : "",
        words ? make("span", words, "trouble") : "",
      ];
    }),
    "no member is known",
  );
}

function truncation(members) {
  return table(
    [{ label: "store" }, { label: "snapshot up to LSN", num: true }, { label: "log on disk", num: true }, { label: "may go", num: true }, { label: "freed", num: true }, { label: "exports", num: true }, { label: "newest visit" }, { label: "its export" }, { label: "when", num: true }, { label: "", wide: true }],
    members.filter((one) => one.inside).map(({ store, inside: { truncation: at } }) => [
      link(store, "store", store), number(at.installed_lsn), bytes(at.retained_bytes), bytes(at.truncatable_bytes), bytes(at.freed_bytes),
      `${number(at.exports)}${at.export_bytes ? `, ${bytes(at.export_bytes)}` : ""}`, at.decision.replaceAll("_", " "), at.export_decision.replaceAll("_", " "),
      at.decision ? `${span(at.decided_ms_ago / 1000)} ago` : "",
      at.error ? make("span", at.error, "trouble") : at.visits_stalled ? pill(`${number(at.visits_stalled)} visits without progress`, "warn") : "",
    ]),
    "no member's store answers",
  );
}

function underWay(operators) {
  return table(
    [{ label: "what" }, { label: "why" }, { label: "store" }, { label: "step", wide: true }, { label: "for", num: true }],
    operators.map((one) => [`${one.kind} replica ${one.replica}`, one.cause, one.store, `${one.step || "begins"}${one.error ? `: ${one.error}` : ""}`, ticks(one.age_ticks)]),
    "nothing",
  );
}

function draw({ row, members, operators }) {
  const found = members.find((one) => one.inside && one.store === row.leader_store) || members.find((one) => one.inside);
  const best = found ? found.inside : null;
  put($("shard-head"), head(row, best));
  drawHistory(best, found);
  const parts = [part("Replicas", replicas(row, members))];
  if (operators.length) parts.push(part("Under way", underWay(operators)));
  if (row.shard && best) {
    parts.push(part("Holds", table(holdColumns(false), best.holds.map(holdCells), "none: truncation goes as far as it is asked to")));
    parts.push(part("Named sessions", table(sessionColumns(false), best.sessions.map(sessionCells), "none"), best.sessions_more ? "the first ones; logctl session list has all" : ""));
  }
  parts.push(part("Truncation", truncation(members)));
  put($("shard-parts"), parts);
}

function drawHistory(best, found) {
  const at = $("shard-charts");
  const series = best && best.history;
  if (!best || !best.replica.shard || !series.times_us.length) {
    charts = null;
    put(at, [make("p", best && best.replica.shard ? `No history: ${found.store} has one of logs that are appended to, a point a minute.` : "", "quiet")]);
    return;
  }
  if (!charts) {
    charts = new Map(FIGURES.map((figure) => [figure, new Chart(TITLES[figure], series.units[figure] || "")]));
    put(at, [...charts.values()].map((chart) => chart.root));
  }
  for (const [figure, chart] of charts) chart.show([lineOf(series, figure)]);
}

export const shard = {
  container: "shard",

  open(parameters, sayLost, argument) {
    if (argument === wanted) return;
    wanted = argument;
    charts = null;
    for (const id of ["shard-head", "shard-charts", "shard-parts"]) put($(id), []);
  },

  async refresh() {
    const shown = wanted;
    let found;
    try {
      found = await ask(`shards/detail?${query({ shard: shown })}`);
    } catch (error) {
      if (error.status !== 404 && error.status !== 400) throw error;
      put($("shard-head"), [make("p", `There is no shard ${shown}.`, "alarm", "warn")]);
      for (const id of ["shard-charts", "shard-parts"]) put($(id), []);
      return;
    }
    if (shown === wanted) draw(found);
  },
};
