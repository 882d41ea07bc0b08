// Who holds, writes to or has sessions in the logs: of all logs, a page at a time, by the store.

import { ask, query } from "./api.js";
import { $, link, make, pager, pill, put, table } from "./dom.js";
import { clock, number, span } from "./format.js";

const LOG = { label: "log" };

function logOf(one) {
  return link(one.log ? `${one.log} (${one.shard})` : String(one.shard), "shard", one.shard);
}

export function holdColumns(log) {
  return [...(log ? [LOG] : []), { label: "hold", wide: true }, { label: "keeps from LSN", num: true }, { label: "age", num: true }, { label: "expires in", num: true }, { label: "owner", wide: true }, { label: "" }];
}

export function holdCells(hold) {
  const expires = hold.expires_in_s >= 0 ? span(hold.expires_in_s) : hold.ttl_s ? `${span(hold.ttl_s)} after its last renewal` : "never";
  return [hold.name, number(hold.lsn), span(hold.age_s), expires, hold.owner, hold.keeps ? pill("keeps truncated records", "warn") : ""];
}

export function sessionColumns(log) {
  return [...(log ? [LOG] : []), { label: "session", wide: true }, { label: "epoch", num: true }, { label: "appended", num: true }, { label: "used", num: true }, { label: "time to live", num: true }, { label: "owner", wide: true }, { label: "" }];
}

export function sessionCells(session) {
  const state = session.lost ? pill("lost", "bad") : session.forgotten ? pill("forgotten", "warn") : "";
  return [session.name, String(session.epoch), number(session.appended), session.used_us ? clock(session.used_us, true) : "", session.ttl_s ? span(session.ttl_s) : "for ever", session.owner, state];
}

const KINDS = {
  holds: {
    title: "Holds",
    what: "A hold keeps records from its LSN on, whatever is truncated.",
    empty: "no hold matches",
    columns: holdColumns(true),
    row: (one) => [logOf(one), ...holdCells(one.hold)],
  },
  writers: {
    title: "Writers",
    what: "The newest writer of a log fences every older one by its epoch.",
    empty: "no log has a writer that matches",
    columns: [LOG, { label: "holder", wide: true }, { label: "epoch", num: true }, { label: "sessions", num: true }, { label: "owner", wide: true }],
    row: (one) => [logOf(one), one.name || pill("released", "good"), String(one.epoch), number(one.sessions), one.owner],
  },
  sessions: {
    title: "Sessions",
    what: "Those with a name, and how many a log has without one.",
    empty: "no session matches",
    columns: sessionColumns(true),
    row: (one) => [logOf(one), ...(one.session ? sessionCells(one.session) : [make("span", `${number(one.sessions)} in all, those without a name among them`, "quiet"), "", "", "", "", "", ""])],
  },
};

export function claims(kind) {
  const { title, what, empty, columns, row } = KINDS[kind];
  let root = null;
  let filter;
  let keeping;
  let body;
  let note;
  let pages;
  let behind = [];  // where each page before this one began
  let after = { after_shard: 0, after_name: "" };
  let newest = null;

  function build() {
    root = make("section");
    const bar = make("div", null, "bar");
    filter = make("input");
    filter.type = "search";
    filter.maxLength = 200;
    filter.placeholder = "log, name, owner";
    filter.setAttribute("aria-label", `Filter ${kind}`);
    filter.addEventListener("input", first);
    bar.append(make("h2", title), filter);
    if (kind === "holds") {
      keeping = make("input");
      keeping.type = "checkbox";
      keeping.addEventListener("change", first);
      const label = make("label", null, "check");
      label.append(keeping, " only what keeps truncated records");
      bar.append(label);
    }
    note = make("p", null, "alarm", "warn");
    body = make("div");
    pages = pager(`Pages of ${kind}`, () => { after = behind.pop(); show().catch(lost); }, () => {
      const last = newest.rows[newest.rows.length - 1];
      behind.push(after);
      after = { after_shard: last.shard, after_name: last.name };
      show().catch(lost);
    });
    root.append(bar, make("p", what, "quiet"), note, body, pages.nav);
  }

  function first() {
    behind = [];
    after = { after_shard: 0, after_name: "" };
    show().catch(lost);
  }

  let lost = () => {};

  const question = () => query({ kind, filter: filter.value, keeping: Number(Boolean(keeping && keeping.checked)), ...after });

  async function show() {
    const asked = question();
    const found = await ask(`claims?${asked}`);
    if (asked !== question()) return;  // chosen again: that answer is drawn
    newest = found;
    note.hidden = !found.silent.length;
    note.textContent = `Logs that are led by ${found.silent.join(", ")} are missing: no answer.`;
    put(body, [table(columns, found.rows.map(row), empty)]);
    pages.show(behind.length > 0, found.more);
  }

  return {
    container: "claims",

    open(parameters, sayLost) {
      lost = sayLost;
      if (!root) build();
      put($("claims"), [root]);
      if (parameters.has("filter")) filter.value = parameters.get("filter");
    },

    refresh: show,
  };
}
