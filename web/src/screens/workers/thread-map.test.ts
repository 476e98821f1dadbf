import { expect, it } from "vitest";
import type { ThreadUse, WorkerThreads } from "@/api/schema";
import { cellsOf } from "@/screens/workers/thread-map";

const run = (job_id: string, threads: number, state: ThreadUse["state"] = "running"): ThreadUse =>
  ({ job_id, threads, state, type: "t", started_at: "2026-01-01T00:00:00Z" }) as ThreadUse;
const map = (...running: ThreadUse[]) => ({ running }) as unknown as WorkerThreads;
const drawn = (...cells: Parameters<typeof cellsOf>) => cellsOf(...cells).map((cell) => `${cell.kind}${cell.span}`);

it("lets a wide job span its threads", () => {
  expect(drawn(4, map(run("a", 1), run("b", 2)), 0, false)).toEqual(["running1", "running2", "free1"]);
});

it("never draws more cells than there are threads", () => {
  expect(drawn(2, map(run("a", 1), run("b", 1), run("c", 1)), 0, false)).toEqual(["running1", "running1"]);
});

it("marks what is lost and what is reserved", () => {
  expect(drawn(3, map(run("a", 1, "stuck")), 1, false)).toEqual(["stuck1", "free1", "free1"]);
  expect(drawn(3, undefined, 1, true)).toEqual(["lost1", "reserved1", "reserved1"]);
});
