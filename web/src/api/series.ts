/** What has happened over time, from the rollups the leader keeps: by the minute for two days, by the hour for sixty. */
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { get } from "@/api/client";
import type { Series, SeriesGroup } from "@/api/schema";

export interface Range {
  label: string;
  seconds: number;
}

export const RANGES: readonly Range[] = [
  { label: "15 m", seconds: 900 },
  { label: "1 h", seconds: 3_600 },
  { label: "6 h", seconds: 21_600 },
  { label: "24 h", seconds: 86_400 },
  { label: "7 d", seconds: 604_800 },
  { label: "60 d", seconds: 5_184_000 },
];

const REFRESH_MS = 5_000;

export function useSeries(seconds: number, options: { by?: "queue" | "type"; queue?: string; type?: string } = {}) {
  return useQuery({
    queryKey: ["series", seconds, options],
    queryFn: ({ signal }) => get<Series>("/v1/series", { seconds, ...options }, signal),
    refetchInterval: seconds > 86_400 ? 12 * REFRESH_MS : REFRESH_MS,
    placeholderData: keepPreviousData,
  });
}

/** The moments of the points, in seconds since 1970, as charts want them. */
export function timesOf(series: Series): number[] {
  const start = Date.parse(series.start) / 1000;
  const [group] = series.groups;
  return Array.from({ length: group?.completed.length ?? 0 }, (_, n) => start + n * series.step_s);
}

const LEAST_S = 15;

/** Counts as rates a second. The last step is not over: it is divided by what has passed of it, or every chart would end in a fall. */
export function perSecond(series: Series, counts: readonly number[], nowMs = Date.now()): number[] {
  const begun = Date.parse(series.start) / 1000 + (counts.length - 1) * series.step_s;
  const passed = Math.min(series.step_s, Math.max(LEAST_S, nowMs / 1000 - begun));
  return counts.map((n, at) => n / (at === counts.length - 1 ? passed : series.step_s));
}

/** A group's rate a second, of everything that has ended. */
export const ratesOf = (series: Series, group: SeriesGroup, nowMs = Date.now()): number[] => {
  const ended = group.completed.map((n, at) => n + (group.failed[at] ?? 0) + (group.cancelled[at] ?? 0));
  return perSecond(series, ended, nowMs);
};
