/** Which job holds which threads of a worker, as cells in rows. A wide job spans several. */
import type { ThreadUse, Worker, WorkerThreads } from "@/api/schema";

export interface Cell {
  kind: "free" | "running" | "isolated" | "stuck" | "reserved" | "lost";
  span: number;
  run?: ThreadUse;
}

/** A cell, or the part of one that stands in one row. `opens` and `closes`: whether the job begins and ends in it. */
export interface Segment extends Cell {
  opens: boolean;
  closes: boolean;
  width: number;
}

export interface Layout {
  columns: number;
  cell: number;
  gap: number;
}

type Threads = Pick<Worker, "threads" | "busy_threads" | "lost_threads" | "reserved_for">;

const CELL_MAX = 124;
const CELL_READABLE = 72;

/** The cells of a worker from left to right; their spans add up to its threads. Without a map, only how many are busy is known. */
export function cellsOf(worker: Threads, map: WorkerThreads | undefined): Cell[] {
  const cells: Cell[] = [];
  let free = worker.threads;
  const add = (kind: Cell["kind"], span: number, run?: ThreadUse) => {
    if (span <= 0) return;
    cells.push(run ? { kind, span, run } : { kind, span });
    free -= span;
  };
  for (const run of map?.running ?? []) add(run.state, Math.min(run.threads, free), run);
  const shown = cells.filter((cell) => cell.kind === "stuck").reduce((sum, cell) => sum + cell.span, 0);
  for (let lost = Math.min(worker.lost_threads - shown, free); lost > 0; lost--) add("lost", 1);
  if (!map) for (let busy = Math.min(worker.busy_threads, free); busy > 0; busy--) add("running", 1);
  while (free > 0) add(worker.reserved_for ? "reserved" : "free", 1);
  return cells;
}

/** Cells of one size in one row, or in two where one would make them unreadable. */
export function layoutOf(threads: number, width: number): Layout {
  const columns = threads * CELL_READABLE <= width ? threads : Math.ceil(threads / 2);
  const gap = columns * 40 <= width ? 4 : 2;
  const cell = Math.floor((width - gap * (columns - 1)) / columns);
  return { columns, gap, cell: Math.max(4, Math.min(CELL_MAX, cell)) };
}

/** The cells cut at the ends of rows. */
export function segmentsOf(cells: readonly Cell[], columns: number): Segment[] {
  const segments: Segment[] = [];
  let at = 0;
  for (const cell of cells) {
    let left = cell.span;
    while (left > 0) {
      const width = Math.min(left, columns - (at % columns));
      segments.push({ ...cell, width, opens: left === cell.span, closes: left === width });
      left -= width;
      at += width;
    }
  }
  return segments;
}
