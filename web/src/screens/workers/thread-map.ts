/** Which job holds which threads of a worker, as cells in a row. A wide job spans several. */
import type { ThreadUse, WorkerThreads } from "@/api/schema";

export interface Cell {
  kind: "free" | "running" | "isolated" | "stuck" | "reserved" | "lost";
  span: number;
  run?: ThreadUse;
}

/** The cells of a worker from left to right; their spans add up to its threads. */
export function cellsOf(threads: number, map: WorkerThreads | undefined, lost: number, reserved: boolean): Cell[] {
  const cells: Cell[] = [];
  let used = 0;
  for (const run of [...(map?.running ?? [])].sort(
    (a, b) => a.started_at.localeCompare(b.started_at) || a.job_id.localeCompare(b.job_id),
  )) {
    const span = Math.min(run.threads, threads - used);
    if (span <= 0) break;
    cells.push({ kind: run.state, span, run });
    used += span;
  }
  const stuck = cells.filter((cell) => cell.kind === "stuck").reduce((sum, cell) => sum + cell.span, 0);
  for (let n = 0; n < Math.min(Math.max(0, lost - stuck), threads - used); n++) cells.push({ kind: "lost", span: 1 });
  used = cells.reduce((sum, cell) => sum + cell.span, 0);
  for (; used < threads; used++) cells.push({ kind: reserved ? "reserved" : "free", span: 1 });
  return cells;
}
