import { expect, it } from "vitest";
import type { ThreadUse, Worker, WorkerThreads } from "@/api/schema";
import { cellsOf, layoutOf, segmentsOf } from "@/screens/workers/thread-map";

const run = (job_id: string, threads: number, state: ThreadUse["state"] = "running"): ThreadUse =>
  ({ job_id, threads, state, type: "t", started_at: "2026-01-01T00:00:00Z" }) as ThreadUse;
const map = (...running: ThreadUse[]) => ({ running }) as unknown as WorkerThreads;
const worker = (threads: number, more: Partial<Worker> = {}) => ({
  threads,
  busy_threads: 0,
  lost_threads: 0,
  reserved_for: null,
  ...more,
});
const drawn = (...cells: Parameters<typeof cellsOf>) => cellsOf(...cells).map((cell) => `${cell.kind}${cell.span}`);

it("lets a wide job span its threads", () => {
  expect(drawn(worker(4), map(run("a", 1), run("b", 2)))).toEqual(["running1", "running2", "free1"]);
});

it("never draws more cells than there are threads", () => {
  expect(drawn(worker(2), map(run("a", 1), run("b", 1), run("c", 1)))).toEqual(["running1", "running1"]);
  expect(drawn(worker(2), map(run("a", 5)))).toEqual(["running2"]);
  expect(drawn(worker(1, { lost_threads: 3 }), undefined)).toEqual(["lost1"]);
});

it("marks what is lost and what is reserved", () => {
  expect(drawn(worker(3, { lost_threads: 1 }), map(run("a", 1, "stuck")))).toEqual(["stuck1", "free1", "free1"]);
  const reserved = worker(3, { lost_threads: 1, reserved_for: "job" });
  expect(drawn(reserved, undefined)).toEqual(["lost1", "reserved1", "reserved1"]);
});

it("shows how many threads are busy while it is not known with what", () => {
  expect(drawn(worker(3, { busy_threads: 2 }), undefined)).toEqual(["running1", "running1", "free1"]);
});

it("cuts a wide job at the end of a row", () => {
  const segments = segmentsOf(cellsOf(worker(8), map(run("a", 2), run("b", 5))), 4);
  expect(segments.map(({ width, opens, closes }) => [width, opens, closes])).toEqual([
    [2, true, true],
    [2, true, false],
    [3, false, true],
    [1, true, true],
  ]);
});

it.each([
  [4, 980],
  [8, 980],
  [16, 980],
  [64, 980],
  [4, 320],
  [8, 320],
  [64, 320],
])("puts %i threads into two rows at most of %i pixels", (threads, width) => {
  const { columns, cell, gap } = layoutOf(threads, width);
  expect(Math.ceil(threads / columns)).toBeLessThanOrEqual(2);
  expect(columns * cell + (columns - 1) * gap).toBeLessThanOrEqual(width);
  expect(cell).toBeGreaterThanOrEqual(4);
});
