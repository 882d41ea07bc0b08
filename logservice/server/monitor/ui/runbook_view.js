// A page of docs/operations, as the store has it: #/runbook/NAME.md.

import { askAsIs, query } from "./api.js";
import { $, link, make, put } from "./dom.js";
import { markdown } from "./markdown.js";

const FIRST = "README.md";

let wanted = "";
let drawn = "";

export const runbook = {
  container: "runbook",

  open(parameters, sayLost, argument) {
    wanted = argument || FIRST;
  },

  async refresh() {
    if (drawn === wanted) return;
    const page = wanted;
    const all = make("p");
    if (page !== FIRST) all.append(link("All runbooks", "runbook"));
    let content;
    try {
      content = markdown((await askAsIs(`runbooks?${query({ page })}`)).text);
    } catch (error) {
      if (error.status !== 404) throw error;
      content = make("p", `This store does not carry docs/operations/${page}; it is in the documents of its release.`, "alarm", "warn");
    }
    if (page !== wanted) return;
    drawn = page;
    put($("runbook"), [all, content]);
  },
};
