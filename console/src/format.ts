// Numbers, rates, durations and times as people read them.

import type { Num } from "./json";
import type { Window } from "./types";

/** Digits in groups of three. Integers beyond 2^53 keep all their digits. */
export function number(value: Num): string {
  const text = String(value);
  if (!/^-?\d+$/.test(text)) return Number(value).toLocaleString("en", { maximumFractionDigits: 2 });
  return text.replace(/\B(?=(\d{3})+$)/g, "\u202f").replace("-", "\u2212");
}

/** A rate for a large figure: 0, 0.4, 12, 1.2k. */
export function rate(value: number): string {
  if (value >= 10_000) return `${(value / 1000).toFixed(value >= 100_000 ? 0 : 1)}k`;
  if (value >= 10 || value === 0) return String(Math.round(value));
  return value.toFixed(1).replace(/\.0$/, "");
}

export function bytes(value: number): string {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let n = 0;
  while (value >= 1024 && n < units.length - 1) (value /= 1024), n++;
  return `${value.toFixed(value >= 10 || n === 0 ? 0 : 1)} ${units[n]}`;
}

/** The two largest units of a duration: 250 ms, 12 s, 3 min 20 s, 5 h 10 min, 2 d 4 h. */
export function duration(ms: number): string {
  if (ms < 1000) return `${Math.max(0, Math.round(ms))} ms`;
  if (ms < 10_000 && ms % 1000) return `${(ms / 1000).toFixed(1).replace(/\.0$/, "")} s`;
  const units: [string, number][] = [
    ["d", 86_400_000],
    ["h", 3_600_000],
    ["min", 60_000],
    ["s", 1000],
  ];
  const first = units.findIndex(([, size]) => ms >= size);
  const [word, size] = units[first];
  const large = `${Math.floor(ms / size)} ${word}`;
  const next = units[first + 1];
  const small = next ? Math.floor((ms % size) / next[1]) : 0;
  return small ? `${large} ${small} ${next[0]}` : large;
}

export function latency(seconds: number | null): string {
  if (seconds === null) return "–";
  if (seconds < 0.001) return `${Math.round(seconds * 1e6)} µs`;
  return seconds < 1 ? `${(seconds * 1000).toFixed(seconds < 0.01 ? 1 : 0)} ms` : `${seconds.toFixed(1)} s`;
}

const two = (value: number) => String(value).padStart(2, "0");

export function clock(epochMs: number, withMs = false): string {
  const time = new Date(epochMs);
  const text = `${two(time.getHours())}:${two(time.getMinutes())}:${two(time.getSeconds())}`;
  return withMs ? `${text}.${String(time.getMilliseconds()).padStart(3, "0")}` : text;
}

/** The time of day, with the date unless it is today. */
export function moment(epochMs: number): string {
  const time = new Date(epochMs);
  if (time.toDateString() === new Date().toDateString()) return clock(epochMs);
  return `${time.getFullYear()}-${two(time.getMonth() + 1)}-${two(time.getDate())} ${clock(epochMs)}`;
}

const ONE: Record<number, string> = { 1000: "second", 60_000: "minute", 3_600_000: "hour", 86_400_000: "day" };

/** What a rule allows, in words. */
export function allowance(limit: Num, window: Window | null): string {
  const amount = Number(limit) < 0 ? "no limit" : number(limit);
  if (!window) return Number(limit) < 0 ? amount : `${amount} at once`;
  const per = ONE[window.per_ms] ?? duration(window.per_ms);
  return `${amount} per ${per}`;
}

export function windowWord(window: Window | null): string {
  if (!window) return "no window";
  if (window.type === "bucket") return window.burst == null ? "bucket" : `bucket, burst ${number(window.burst)}`;
  return window.type;
}
