import { $, make, put } from "./dom.js";

export const records = {
  container: "records",
  open() {},
  async refresh() { put($("records"), [make("p", "later")]); },
};
