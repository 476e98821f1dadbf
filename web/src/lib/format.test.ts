import { describe, expect, it } from "vitest";
import { formatBytes, formatDuration, formatRelative, plural } from "@/lib/format";

describe("formatDuration", () => {
  it.each([
    [0, "0 s"],
    [0.00005, "50 µs"],
    [0.0042, "4.2 ms"],
    [0.25, "250 ms"],
    [3.21, "3.2 s"],
    [42.4, "42 s"],
    [250, "4 m 10 s"],
    [7_500, "2 h 5 m"],
    [273_600, "3 d 4 h"],
    [null, "–"],
  ])("%s becomes %s", (seconds, text) => {
    expect(formatDuration(seconds)).toBe(text);
  });
});

describe("formatRelative", () => {
  const now = Date.parse("2026-01-01T12:00:00Z");
  it.each([
    ["2026-01-01T11:59:30Z", "30 s ago"],
    ["2026-01-01T12:01:00Z", "in 1 m"],
    ["2026-01-01T12:00:00.5Z", "now"],
    [null, "–"],
  ])("%s becomes %s", (moment, text) => {
    expect(formatRelative(moment, now)).toBe(text);
  });
});

it("formats bytes and plurals", () => {
  expect([formatBytes(512), formatBytes(2048), formatBytes(5 << 20)]).toEqual(["512 B", "2.0 KB", "5.0 MB"]);
  expect([plural(1, "job"), plural(1204, "job")]).toEqual(["1 job", "1,204 jobs"]);
});
