/** Numbers, durations and moments as people read them. */

const COUNT = new Intl.NumberFormat("en-US");
const COMPACT = new Intl.NumberFormat("en-US", { notation: "compact", maximumFractionDigits: 1 });

export const formatCount = (n: number): string => COUNT.format(n);
export const formatCompact = (n: number): string => (Math.abs(n) < 10_000 ? COUNT.format(n) : COMPACT.format(n));

/** 0.4 ms, 12 ms, 3.2 s, 4 m 10 s, 2 h 5 m, 3 d 4 h. */
export function formatDuration(seconds: number | null | undefined): string {
  if (seconds === null || seconds === undefined || Number.isNaN(seconds)) return "–";
  const s = Math.max(0, seconds);
  if (s === 0) return "0 s";
  if (s < 0.001) return `${(s * 1e6).toFixed(0)} µs`;
  if (s < 0.01) return `${(s * 1000).toFixed(1)} ms`;
  if (s < 1) return `${(s * 1000).toFixed(0)} ms`;
  if (s < 10) return `${s.toFixed(1)} s`;
  if (s < 60) return `${s.toFixed(0)} s`;
  return pair(s);
}

const UNITS: [number, string][] = [
  [86_400, "d"],
  [3_600, "h"],
  [60, "m"],
  [1, "s"],
];

function pair(s: number): string {
  let whole = Math.round(s);
  const at = UNITS.findIndex(([size]) => whole >= size);
  const parts: string[] = [];
  for (const [size, unit] of UNITS.slice(at, at + 2)) {
    const n = Math.floor(whole / size);
    whole -= n * size;
    if (n) parts.push(`${n} ${unit}`);
  }
  return parts.join(" ");
}

/** "3 m ago", "in 12 s", "now". */
export function formatRelative(moment: string | null | undefined, nowMs: number): string {
  if (!moment) return "–";
  const delta = (Date.parse(moment) - nowMs) / 1000;
  if (Math.abs(delta) < 1) return "now";
  const size =
    Math.abs(delta) < 60 ? `${Math.round(Math.abs(delta))} s` : pair(Math.abs(delta)).split(" ").slice(0, 2).join(" ");
  return delta < 0 ? `${size} ago` : `in ${size}`;
}

const CLOCK = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const DAY = new Intl.DateTimeFormat("en-GB", { day: "2-digit", month: "short", year: "numeric" });

export function formatMoment(moment: string | null | undefined): string {
  if (!moment) return "–";
  const at = new Date(moment);
  return `${DAY.format(at)}, ${CLOCK.format(at)}`;
}

export function formatBytes(bytes: number): string {
  if (bytes < 1024) return `${bytes} B`;
  const units = ["KB", "MB", "GB", "TB"];
  let n = bytes;
  let unit = "B";
  for (const next of units) {
    if (n < 1024) break;
    n /= 1024;
    unit = next;
  }
  return `${n < 10 ? n.toFixed(1) : n.toFixed(0)} ${unit}`;
}

export const plural = (n: number, one: string, many = `${one}s`): string => `${formatCount(n)} ${n === 1 ? one : many}`;

/** The part of an id that tells jobs of one minute apart. A UUIDv7 begins with its time. */
export const shortId = (id: string): string => `${id.slice(0, 8)}…${id.slice(-4)}`;
