import { expect, it } from "vitest";
import type { Series, SeriesGroup } from "@/api/schema";
import { perSecond, ratesOf, timesOf } from "@/api/series";

const start = Date.parse("2026-01-01T12:00:00Z");
const group = { completed: [60, 120, 30], failed: [0, 60, 0], cancelled: [0, 0, 0] } as unknown as SeriesGroup;
const series = { start: "2026-01-01T12:00:00Z", step_s: 60, groups: [group] } as unknown as Series;

it("divides the step that is not over by what has passed of it", () => {
  expect(perSecond(series, [60, 120, 30], start + 150_000)).toEqual([1, 2, 1]);
});

it("does not make much of the first seconds of a step", () => {
  expect(perSecond(series, [0, 0, 30], start + 121_000).at(-1)).toBe(2);
});

it("counts everything that has ended", () => {
  expect(ratesOf(series, group, start + 180_000)).toEqual([1, 3, 0.5]);
  expect(timesOf(series)).toEqual([start / 1000, start / 1000 + 60, start / 1000 + 120]);
});
