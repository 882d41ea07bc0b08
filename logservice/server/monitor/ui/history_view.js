// All figures of all stores over the last hour or day.

import { ask } from "./api.js";
import { $, button, put } from "./dom.js";
import { Histories } from "./histories.js";

const FIGURES = ["appends_per_s", "records_per_s", "append_p50_s", "append_p99_s", "bytes_written_per_s", "read_bytes_per_s", "disk_used_bytes", "lag_entries", "loop_turn_s", "leaders"];
const SPANS = { hour: "One hour, every 10 s", day: "One day, every 2 min" };

let charts = null;
let buttons = [];

function choose(span) {
  charts.choose(span);
  for (const one of buttons) one.setAttribute("aria-pressed", one.dataset.span === span);
}

export const history = {
  container: "history",

  open() {
    if (charts) return;
    charts = new Histories($("history-charts"), FIGURES);
    buttons = Object.entries(SPANS).map(([span, text]) => {
      const found = button(text, async () => {
        choose(span);
        await charts.refresh(await ask("stores")).catch(() => {});
      });
      found.dataset.span = span;
      return found;
    });
    put($("history-spans"), buttons);
    choose("hour");
  },

  async refresh() {
    await charts.refresh(await ask("stores"));
  },
};
