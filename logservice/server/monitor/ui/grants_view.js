// The access list, for who may see it. It is asked for when somebody looks, not again and again: each
// question is a line of the audit log.

import { ask, query } from "./api.js";
import { whoAsks } from "./asking_who.js";
import { $, button, facts, make, pager, pill, put, table } from "./dom.js";
import { clock, number } from "./format.js";

const ROWS = 50;

let root = null;
let filter;
let body;
let pages;
let offset = 0;
let wanted = true;
let lost = () => {};

function build() {
  root = make("section");
  const bar = make("div", null, "bar");
  filter = make("input");
  filter.type = "search";
  filter.maxLength = 200;
  filter.placeholder = "identity, scope, role";
  filter.setAttribute("aria-label", "Filter grants");
  filter.addEventListener("change", () => show(0));
  bar.append(make("h2", "Grants"), filter, button("Look again", () => show(offset)));
  body = make("div", null, "stack");
  pages = pager("Pages of grants", () => show(Math.max(0, offset - ROWS)), () => show(offset + ROWS));
  root.append(bar, body, pages.nav);
}

function draw(found) {
  const state = found.too_old ? pill("too old: it grants nothing any more", "bad")
    : found.current ? pill("in force, as HAKeeper has it", "good") : pill("in force here; HAKeeper has not confirmed it lately", "warn");
  const covers = (one) => one.logs < 0 ? "" : one.logs ? number(one.logs) : pill("none", "warn");
  put(body, [
    facts([
      ["list", `version ${found.version}, as ${found.store} has it`],
      ["state", state],
      ["rules", found.matching === found.rules ? number(found.rules) : `${number(found.matching)} of ${number(found.rules)}`],
      ["administrators by configuration", found.admins.join(", ") || "none"],
      ["asked as", found.who],
    ]),
    table(
      [{ label: "rule" }, { label: "identity", wide: true }, { label: "scope" }, { label: "roles" }, { label: "logs it names now", num: true }, { label: "last used here", num: true }],
      found.rows.map((one) => [one.rule === "deny" ? pill("deny", "bad") : one.rule, one.identity, one.scope, one.roles.join(", "), covers(one), one.used_us ? clock(one.used_us, true) : "not since the start"]),
      found.rules ? "no rule matches" : "nothing is granted: only administrators by configuration can do anything",
    ),
  ]);
  pages.show(offset > 0, offset + ROWS < found.matching);
}

async function show(from) {
  offset = from;
  wanted = false;
  try {
    draw(await ask(`grants?${query({ filter: filter.value, offset, count: ROWS })}`));
  } catch (error) {
    const said = whoAsks(error, "Grants", () => show(offset));
    if (said) put(body, [said]);
    else {
      wanted = true;
      lost(error);
    }
  }
}

export const grants = {
  container: "grants",

  open(parameters, sayLost) {
    lost = sayLost;
    if (!root) build();
    put($("grants"), [root]);
    if (parameters.has("filter")) filter.value = parameters.get("filter");
    wanted = true;
  },

  async refresh() {
    if (wanted) await show(offset);
  },
};
