import { $, make, put } from "./dom.js";

export const grants = {
  container: "grants",
  open() {},
  async refresh() { put($("grants"), [make("p", "later")]); },
};
