// What the doctor says: what is wrong, what it means, what to do, and the page that has the commands.

import { $, link, make, pill, put, withCode } from "./dom.js";
import { number } from "./format.js";

const LEVELS = { broken: "bad", danger: "bad", warning: "warn", notice: "good" };

// Where a finding's runbook is on this page.
export function runbookLink(page) {
  const name = page.split("/").pop();
  return link(`Runbook: ${name}`, "runbook", name);
}

function card(one) {
  const found = make("article", null, "card", "finding", one.severity === "notice" ? "" : `${LEVELS[one.severity]}-edge`);
  const title = make("h3");
  title.append(withCode(one.what, "span"), pill(one.severity, LEVELS[one.severity]));
  found.append(title, withCode(one.means), withCode(one.do, "p", "do"));
  if (one.page) {
    const page = make("p");
    page.append(runbookLink(one.page));
    found.append(page);
  }
  return found;
}

export const findings = {
  container: "findings",

  open() {},

  async refresh({ findings: { rows, found } }) {
    const cards = rows.length ? rows.map(card) : [make("p", "Nothing is wrong, as far as the stores can tell.", "empty")];
    if (found > rows.length) cards.push(make("p", `and ${number(found - rows.length)} more: logctl doctor`, "quiet"));
    put($("findings-cards"), cards);
  },
};
