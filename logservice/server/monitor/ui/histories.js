// Histories of stores and logs as charts. A store keeps its own, in memory: they begin with its process.

import { ask, query } from "./api.js";
import { Chart, LINES_MAX } from "./chart.js";
import { make, put } from "./dom.js";

const PERIOD_MS = 10000;

export const TITLES = {
  appends_per_s: "Appends",
  records_per_s: "Records appended",
  append_p50_s: "Append, p50",
  append_p99_s: "Append, p99",
  bytes_written_per_s: "Written to disk",
  read_bytes_per_s: "Read by clients",
  disk_used_bytes: "Disk used by logs",
  lag_entries: "Lag, entries",
  loop_turn_s: "Longest pause",
  leaders: "Leaders",
  kept_records: "Records kept",
};

// What `Series` has, as a line.
export const lineOf = (series, figure, name = series.store) => ({ name, times: series.times_us, values: series.figures[figure] || [] });

// A chart for each figure, with a line for each store.
export class Histories {
  constructor(container, figures, span = "hour") {
    this.container = container;
    this.figures = figures;
    this.span = span;
    this.charts = null;
    this.asked = 0;
    this.note = make("p", null, "quiet");
  }

  choose(span) {
    this.span = span;
    this.asked = 0;
  }

  async refresh(stores) {
    if (Date.now() - this.asked < PERIOD_MS) return;
    this.asked = Date.now();
    const answering = stores.filter((store) => store.answers);
    const shown = answering.slice(0, LINES_MAX).map((store) => store.store);
    // A store may fall silent between the report and this question, or not know it yet.
    const found = await Promise.all(shown.map((store) => ask(`history?${query({ store, span: this.span })}`).catch(() => null)));
    const series = found.filter(Boolean);
    const left = answering.length - shown.length;
    this.note.textContent = left > 0 ? `The first ${LINES_MAX} stores; ${left} more have pages of their own.` : "";
    this.draw(series);
  }

  // Once the answers are there, so that a slow store does not leave empty frames.
  draw(series) {
    const units = series.length ? series[0].units : {};
    if (!this.charts) {
      this.charts = new Map(this.figures.map((figure) => [figure, new Chart(TITLES[figure], units[figure] || "")]));
      const grid = make("div", null, "charts");
      grid.append(...[...this.charts.values()].map((chart) => chart.root));
      put(this.container, [grid, this.note]);
    }
    for (const [figure, chart] of this.charts) {
      if (units[figure] !== undefined) chart.unit = units[figure];
      chart.show(series.map((one) => lineOf(one, figure)));
    }
  }
}
