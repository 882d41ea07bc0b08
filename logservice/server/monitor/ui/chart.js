// Lines over time as SVG: axes with units, the value under the pointer or the arrow keys.
//
// A chart is made once and drawn again with new points; what a person points at stays. Points that
// are not known are gaps.

import { make, put } from "./dom.js";
import { clock, figure } from "./format.js";

const SVG = "http://www.w3.org/2000/svg";
const HEIGHT = 150;
const LEFT = 58;
const RIGHT = 10;
const TOP = 8;
const BOTTOM = 22;
const SHORTEST_US = 300e6;
export const LINES_MAX = 8;

function svg(tag, attributes, text) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (text !== undefined) element.textContent = text;
  return element;
}

// Up to five ticks from 0 on that people can read; sizes go in powers of two.
export function axis(most, unit) {
  if (!(most > 0)) return [0, 1];
  const base = unit.startsWith("B") ? 1024 : 10;
  const power = base ** Math.floor(Math.log(most) / Math.log(base));
  const steps = base === 10 ? [0.25, 0.5, 1, 2, 2.5, 5] : [0.25, 0.5, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512];
  const whole = unit === "" ? 1 : 0;
  const step = Math.max(whole, power * (steps.find((one) => most / (one * power) <= 4.001) || base));
  const ticks = [];
  for (let at = 0; at < most + step; at += step) ticks.push(at);
  return ticks;
}

function timeTicks(first, last, count) {
  const steps = [60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600].map((one) => one * 1e6);
  const step = steps.find((one) => (last - first) / one <= count) || 43200e6;
  const offset = new Date(first / 1000).getTimezoneOffset() * 60e6;
  const ticks = [];
  for (let at = Math.ceil((first - offset) / step) * step + offset; at <= last; at += step) ticks.push(at);
  return ticks;
}

function path(points) {
  let found = "";
  let down = false;
  for (const point of points) {
    if (point) found += `${down ? "L" : "M"}${point[0].toFixed(1)} ${point[1].toFixed(1)}`;
    down = Boolean(point);
  }
  return found;
}

function nearest(times, at) {
  let best = -1;
  for (const [place, time] of times.entries()) {
    if (best < 0 || Math.abs(time - at) < Math.abs(times[best] - at)) best = place;
  }
  return best;
}

export class Chart {
  constructor(title, unit) {
    this.title = title;
    this.unit = unit;
    this.lines = [];
    this.at = null;
    this.root = make("figure", null, "chart");
    this.caption = make("figcaption", title);
    this.now = make("span", null, "quiet");
    this.caption.append(" ", this.now);
    this.plot = make("div", null, "plot");
    this.plot.tabIndex = 0;
    this.plot.setAttribute("role", "group");
    this.plot.setAttribute("aria-roledescription", "chart");
    this.tip = make("div", null, "tip");
    this.tip.hidden = true;
    this.tip.setAttribute("role", "status");
    this.legend = make("p", null, "legend");
    this.root.append(this.caption, this.plot, this.legend);
    this.plot.addEventListener("pointermove", (event) => this.point(event));
    this.plot.addEventListener("pointerleave", () => this.choose(null));
    this.plot.addEventListener("blur", () => this.choose(null));
    this.plot.addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(() => this.draw()).observe(this.plot);
  }

  // lines: [{name, times (µs), values}]. Each keeps its colour by its place.
  show(lines) {
    this.lines = lines.slice(0, LINES_MAX);
    this.draw();
  }

  get times() {
    const all = new Set(this.lines.flatMap((line) => line.times));
    return [...all].sort((one, other) => one - other);
  }

  point(event) {
    if (!this.scale) return;
    const box = this.plot.getBoundingClientRect();
    this.choose(this.scale.time(event.clientX - box.left));
  }

  key(event) {
    const times = this.times;
    const moves = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10 };
    let place = this.at === null ? times.length : nearest(times, this.at);
    if (event.key in moves) place += moves[event.key];
    else if (event.key === "Home") place = 0;
    else if (event.key === "End") place = times.length - 1;
    else if (event.key === "Escape") { this.choose(null); return; }
    else return;
    event.preventDefault();
    if (times.length) this.choose(times[Math.max(0, Math.min(times.length - 1, place))]);
  }

  choose(at) {
    this.at = at;
    this.mark();
  }

  draw() {
    const width = this.plot.clientWidth;
    if (!width) return;
    const times = this.times;
    const newest = this.lines.map((line) => line.values[line.values.length - 1]);
    this.now.textContent = this.lines.length === 1 && times.length ? figure(newest[0], this.unit) : "";
    this.plot.setAttribute("aria-label", `${this.title}: ${this.lines.map((line, place) => `${line.name} ${figure(newest[place], this.unit)}`).join(", ") || "nothing yet"}. Arrow keys read the points.`);
    this.drawLegend();
    if (!times.length) {
      this.scale = null;
      put(this.plot, [make("p", "no points yet: the first comes some seconds after the start", "empty")]);
      return;
    }
    const last = times[times.length - 1];
    const first = Math.min(times[0], last - SHORTEST_US);
    const most = Math.max(...this.lines.flatMap((line) => line.values.map((value) => value || 0)));
    const ticks = axis(most, this.unit);
    const top = ticks[ticks.length - 1];
    const right = width - RIGHT;
    const bottom = HEIGHT - BOTTOM;
    const x = (time) => LEFT + ((time - first) / (last - first)) * (right - LEFT);
    const y = (value) => bottom - (value / top) * (bottom - TOP);
    this.scale = { x, y, time: (left) => first + ((left - LEFT) / (right - LEFT)) * (last - first) };
    const root = svg("svg", { width, height: HEIGHT, viewBox: `0 0 ${width} ${HEIGHT}`, "aria-hidden": "true" });
    for (const tick of ticks) {
      root.append(svg("line", { x1: LEFT, x2: right, y1: y(tick), y2: y(tick), class: "grid" }));
      root.append(svg("text", { x: LEFT - 6, y: y(tick) + 4, class: "tick", "text-anchor": "end" }, figure(tick, this.unit)));
    }
    for (const tick of timeTicks(first, last, width / 80)) {
      if (x(tick) < LEFT + 14 || x(tick) > right - 14) continue;
      root.append(svg("text", { x: x(tick), y: HEIGHT - 6, class: "tick", "text-anchor": "middle" }, clock(tick).slice(0, 5)));
    }
    for (const [place, line] of this.lines.entries()) {
      const points = line.times.map((time, at) => line.values[at] === null ? null : [x(time), y(line.values[at])]);
      root.append(svg("path", { d: path(points), class: `line series-${place}` }));
      // A point between two gaps has no line.
      points.forEach((point, at) => {
        if (point && !points[at - 1] && !points[at + 1]) root.append(svg("circle", { cx: point[0], cy: point[1], r: 3, class: `dot series-${place}` }));
      });
    }
    this.cursor = svg("line", { y1: TOP, y2: bottom, class: "cursor", visibility: "hidden" });
    root.append(this.cursor);
    put(this.plot, [root, this.tip]);
    this.mark();
  }

  drawLegend() {
    const several = this.lines.length > 1;
    this.legend.hidden = !several;
    if (several) put(this.legend, this.lines.map((line, place) => make("span", line.name, "key", `series-${place}`)));
  }

  mark() {
    if (!this.scale) return;
    const times = this.times;
    const place = this.at === null ? -1 : nearest(times, this.at);
    this.tip.hidden = place < 0;
    this.cursor.setAttribute("visibility", place < 0 ? "hidden" : "visible");
    if (place < 0) return;
    const time = times[place];
    const left = this.scale.x(time);
    this.cursor.setAttribute("x1", left);
    this.cursor.setAttribute("x2", left);
    const rows = [make("b", clock(time))];
    for (const [number, line] of this.lines.entries()) {
      // Stores take their points at their own times: the nearest one within half a period counts.
      const own = nearest(line.times, time);
      const period = line.times.length > 1 ? line.times[1] - line.times[0] : SHORTEST_US;
      const value = own >= 0 && Math.abs(line.times[own] - time) <= period / 2 + 1e6 ? line.values[own] : null;
      rows.push(make("span", `${this.lines.length > 1 ? `${line.name}: ` : ""}${figure(value, this.unit)}`, "key", `series-${number}`));
    }
    put(this.tip, rows);
    const width = this.plot.clientWidth;
    if (left > width / 2) {
      this.tip.style.right = `${width - left + 8}px`;
      this.tip.style.left = "auto";
    } else {
      this.tip.style.left = `${left + 8}px`;
      this.tip.style.right = "auto";
    }
  }
}

// How often something took how long: a bar for each bucket that was hit, and those between.
export function bars({ bounds, counts }, name) {
  const hit = counts.map((count, place) => count ? place : -1).filter((place) => place >= 0);
  if (!hit.length) return make("p", "nothing was measured yet", "empty");
  const shown = counts.slice(hit[0], hit[hit.length - 1] + 1).map((count, place) => [place + hit[0], count]);
  const most = Math.max(...counts);
  const list = make("ol", null, "bars");
  list.setAttribute("aria-label", name);
  for (const [place, count] of shown) {
    const row = make("li");
    const label = place < bounds.length ? `≤ ${figure(bounds[place], "s")}` : `> ${figure(bounds[place - 1], "s")}`;
    const track = make("span", null, "track");
    const filled = make("i");
    filled.style.width = `${count ? Math.max(1, (100 * count) / most) : 0}%`;
    track.append(filled);
    row.append(make("span", label, "edge"), track, make("span", count.toLocaleString("en-US"), "count"));
    list.append(row);
  }
  return list;
}
