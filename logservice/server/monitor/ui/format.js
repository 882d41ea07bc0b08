// How numbers, sizes and times are written for people.

export const TICKS_PER_S = 10;

export const number = (n) => Math.round(n).toLocaleString("en-US");

export function bytes(n) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let unit = 0;
  while (n >= 1024 && unit < units.length - 1) { n /= 1024; unit += 1; }
  return `${n < 10 && unit ? n.toFixed(1) : Math.round(n)} ${units[unit]}`;
}

export function micros(us) {
  if (!us) return "–";
  if (us < 1000) return `${Math.round(us)} µs`;
  return us < 1000000 ? `${(us / 1000).toFixed(us < 10000 ? 1 : 0)} ms` : `${(us / 1e6).toFixed(1)} s`;
}

export function span(seconds) {
  if (seconds < 90) return `${Math.round(seconds)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  return seconds < 172800 ? `${Math.round(seconds / 3600)} h` : `${Math.round(seconds / 86400)} d`;
}

export const ticks = (count) => span(count / TICKS_PER_S);

// A figure of a history, by its unit.
export function figure(value, unit) {
  if (value === null || value === undefined) return "–";
  if (unit === "s") return micros(value * 1e6) === "–" ? "0" : micros(value * 1e6);
  if (unit === "B") return bytes(value);
  if (unit === "B/s") return `${bytes(value)}/s`;
  const small = value && Math.abs(value) < 10 && value !== Math.round(value);
  return `${small ? Number(value.toPrecision(2)) : number(value)}${unit}`;
}

export const times = (count) => count === 0 ? "never" : count === 1 ? "once" : `${number(count)} times`;

export function clock(us, withDate = false) {
  const at = new Date(us / 1000);
  const time = at.toLocaleTimeString("en-GB");
  return withDate ? `${at.toLocaleDateString("en-CA")} ${time}` : time;
}

// As `logservice.histogram`: figures are spread over their bucket evenly.
export function quantile(bounds, counts, wanted) {
  let below = 0;
  for (const [place, count] of counts.entries()) {
    if (count && below + count >= wanted) {
      if (place === bounds.length) return bounds[place - 1];
      const low = place ? bounds[place - 1] : 0;
      return low + ((bounds[place] - low) * (wanted - below)) / count;
    }
    below += count;
  }
  return 0;
}

const total = (counts) => counts.reduce((sum, count) => sum + count, 0);

// p50 and p99 of a histogram; null when it is empty.
export function quantiles({ bounds, counts }) {
  const all = total(counts);
  return all ? [0.5, 0.99].map((share) => micros(1e6 * quantile(bounds, counts, share * all))) : null;
}
