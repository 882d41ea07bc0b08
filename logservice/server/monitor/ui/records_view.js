// The records of a log, for who may read it: #/records/SHARD?lsn=NUMBER. A page is read when somebody
// asks for it, and counts as a read of theirs.

import { ask, askAsIs, plain, query } from "./api.js";
import { whoAsks } from "./asking_who.js";
import { $, button, link, make, put } from "./dom.js";
import { bytes, clock, number } from "./format.js";

const ROWS = 50;
const HEX_ROW = 16;

let root = null;
let parts = {};
let asked = { shard: "", lsn: 0, time_us: 0, latest: 0 };
let wanted = false;
let page = null;
let asHex = false;
let lost = () => {};

function field(type, label, size) {
  const input = make("input");
  input.type = type;
  if (size) input.size = size;
  const wrap = make("label", null, "check");
  wrap.append(`${label} `, input);
  return { input, wrap };
}

function build() {
  root = make("section");
  const shard = field("text", "log", 12);
  const lsn = field("text", "from LSN", 12);
  const time = field("datetime-local", "or from");
  time.input.step = 1;
  for (const one of [shard, lsn]) one.input.inputMode = "numeric";
  const go = () => show({ shard: shard.input.value.trim(), lsn: Number(lsn.input.value) || 0, time_us: lsn.input.value || !time.input.value ? 0 : new Date(time.input.value).getTime() * 1000, latest: 0 });
  for (const { input } of [shard, lsn, time]) input.addEventListener("keydown", (event) => { if (event.key === "Enter") go(); });
  time.input.addEventListener("input", () => { lsn.input.value = ""; });
  const form = make("div", null, "bar");
  form.append(make("h2", "Records"), shard.wrap, lsn.wrap, time.wrap, button("Read", go));
  const moves = make("div", null, "bar");
  const first = button("First", () => show({ ...asked, lsn: 0, time_us: 0, latest: 0 }));
  const previous = button("Previous", () => show({ ...asked, lsn: Math.max(page.first_lsn, page.lsn - ROWS), time_us: 0, latest: 0 }));
  const next = button("Next", () => show({ ...asked, lsn: page.next_lsn, time_us: 0, latest: 0 }));
  const latest = button("Latest", () => show({ ...asked, lsn: 0, time_us: 0, latest: 1 }));
  const hex = field("checkbox", "hex");
  hex.input.addEventListener("change", () => { asHex = hex.input.checked; if (page) draw(); });
  moves.append(first, previous, next, latest, hex.wrap);
  const where = make("p", null, "quiet");
  const body = make("div", null, "stack");
  root.append(form, moves, where, body);
  parts = { shard, lsn, time, moves, where, body, first, previous, next, latest };
}

const bytesOf = (hex) => Uint8Array.from(hex.match(/../g) || [], (pair) => parseInt(pair, 16));

// The text of bytes, or null when they are none: lines stay, what could not be seen is written out.
function textOf(found, cut) {
  let text;
  try {
    // The cut may lie inside of a character.
    text = new TextDecoder("utf-8", { fatal: true }).decode(cut ? found.subarray(0, lastWhole(found)) : found);
  } catch {
    return null;
  }
  if (!text || /[\0-\x08\x0e-\x1f]/.test(text)) return null;
  return text.split("\n").map((line) => line.split("\t").map(plain).join("\t")).join("\n");
}

// Where the last character that is whole ends.
function lastWhole(found) {
  let lead = found.length - 1;
  while (lead > 0 && (found[lead] & 0xc0) === 0x80) lead -= 1;
  const first = found[lead];
  const size = first < 0x80 ? 1 : first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  return lead + size > found.length ? lead : found.length;
}

function dump(found) {
  const lines = [];
  for (let at = 0; at < found.length; at += HEX_ROW) {
    const row = [...found.subarray(at, at + HEX_ROW)];
    const digits = row.map((one) => one.toString(16).padStart(2, "0")).join(" ").padEnd(HEX_ROW * 3 - 1);
    const shown = row.map((one) => one >= 32 && one < 127 ? String.fromCharCode(one) : ".").join("");
    lines.push(`${at.toString(16).padStart(4, "0")}  ${digits}  ${shown}`);
  }
  return lines.join("\n");
}

function shown({ size, hex }) {
  const found = bytesOf(hex);
  const cut = found.length < size;
  const text = asHex ? null : textOf(found, cut);
  const box = make("pre", size ? (text === null ? dump(found) : text) : "empty", size ? "" : "quiet", text === null && "dump");
  if (!cut) return box;
  const both = make("div");
  both.append(box, make("p", `the first ${bytes(found.length)} of ${bytes(size)}`, "quiet"));
  return both;
}

function times(row) {
  const words = [];
  if (row.append_time_us) words.push(`appended ${clock(row.append_time_us, true)}`);
  if (row.time_us) words.push(`says ${clock(row.time_us, true)}`);
  return words.join(", ");
}

function record(row) {
  const found = make("article", null, "record");
  const head = make("div", null, "record-head");
  head.append(make("b", row.count > 1 ? `${number(row.lsn)} to ${number(row.lsn + row.count - 1)}` : number(row.lsn)));
  const block = row.gap ? "" : `block of ${number(row.block_records)} from ${number(row.block_lsn)}, ${bytes(row.block_bytes)}${row.wide ? ", wide" : ""}`;
  head.append(make("span", [times(row), `term ${row.term}`, block].filter(Boolean).join(" · "), "quiet"));
  found.append(head);
  if (row.gap) found.append(make("p", `no record: the block was refused (${row.gap.toLowerCase().replaceAll("_", " ")})`, "quiet"));
  if (row.note) found.append(make("p", row.note, "trouble"));
  if (row.key || row.headers.length) {
    const list = make("dl", null, "columns-of");
    if (row.key) list.append(make("dt", "key"), wrapped(row.key));
    for (const [name, content] of row.headers) list.append(make("dt", plain(name)), wrapped(content));
    found.append(list);
  }
  if (row.value) found.append(shown(row.value));
  return found;
}

function wrapped(content) {
  const found = make("dd");
  found.append(shown(content));
  return found;
}

function draw() {
  const { rows, lsn, first_lsn: first, applied_lsn: last, end_lsn: end } = page;
  parts.lsn.input.value = lsn;
  const range = last >= first && first ? `This log has records ${number(first)} to ${number(last)}` : "This log has no records";
  put(parts.where, [`${range}${end ? ", and is closed" : ""}, as applied on ${page.store}. Read as ${page.who}.`]);
  put(parts.body, rows.length ? rows.map(record) : [make("p", "no record from here on yet", "empty")]);
  parts.moves.hidden = false;
  parts.previous.disabled = lsn <= first;
  parts.next.disabled = page.next_lsn > last;
}

async function elsewhere(shard) {
  const row = await ask(`shards/detail?${query({ shard })}`).catch(() => null);
  if (!row || !row.row.leader_store) return [make("p", `There is no replica of log ${shard} on this store.`, "alarm", "warn")];
  const note = make("p", `This store has no replica of log ${shard}: look at the page of `, "alarm", "warn");
  note.append(link(row.row.leader_store, "store", row.row.leader_store), ", which leads it.");
  return [note];
}

// A refusal; of an LSN that is truncated it names the first one that is left.
function refused(error, shard) {
  const note = make("p", error.message, "alarm", "warn");
  const first = error.metadata.first_lsn;
  if (first) note.append(". The first record that is left: ", link(first, `records/${encodeURIComponent(shard)}?lsn=${first}`));
  return note;
}

async function show(question) {
  asked = question;
  wanted = false;
  parts.shard.input.value = question.shard;
  if (!question.shard) {
    parts.moves.hidden = true;
    put(parts.body, [make("p", "Which log? Its number is in the list of shards.", "empty")]);
    return;
  }
  const at = question.lsn ? `?lsn=${question.lsn}` : "";
  window.history.replaceState(null, "", `#/records/${encodeURIComponent(question.shard)}${at}`);
  try {
    page = await askAsIs(`records?${query({ ...question, count: ROWS })}`);
    draw();
  } catch (error) {
    page = null;
    parts.moves.hidden = true;
    put(parts.where, []);
    const rights = whoAsks(error, "Records", () => show(asked));
    if (rights) put(parts.body, [rights]);
    else if (error.status === 404) put(parts.body, await elsewhere(question.shard));
    else if (error.status) put(parts.body, [refused(error, question.shard)]);
    else lost(error);
  }
}

export const records = {
  container: "records",

  open(parameters, sayLost, argument) {
    lost = sayLost;
    if (!root) build();
    put($("records"), [root]);
    asked = { shard: argument, lsn: Number(parameters.get("lsn")) || 0, time_us: 0, latest: 0 };
    wanted = true;
  },

  async refresh() {
    if (wanted) await show(asked);
  },
};
