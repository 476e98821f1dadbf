/** The threads of one worker as cells: what holds each, and the job's name where there is room for it. */
import { Link } from "@tanstack/react-router";
import { useLayoutEffect, useRef, useState } from "react";
import type { Worker } from "@/api/schema";
import { formatRelative, plural } from "@/lib/format";
import { useNow } from "@/lib/now";
import { type Cell, type Layout, layoutOf, type Segment, segmentsOf } from "@/screens/workers/thread-map";
import { cx } from "@/ui/cx";

const LOOKS: Record<Cell["kind"], string> = {
  free: "border-line bg-sunken",
  running: "border-blue bg-blue-soft text-blue",
  isolated: "border-violet bg-violet-soft text-violet",
  stuck: "border-red bg-red-soft text-red",
  reserved: "border-amber border-dashed bg-amber-soft",
  lost: "border-red border-dashed bg-red-soft",
};
const WORDS: Record<Cell["kind"], string> = {
  free: "Free",
  running: "Running",
  isolated: "In a process of its own",
  stuck: "Does not stop",
  reserved: "Kept for a wide job",
  lost: "Lost to a handler that does not stop",
};
const NAME_MIN = 40; // pixels a name needs to be worth reading

export function Cells({ worker, cells }: { worker: Worker; cells: readonly Cell[] }) {
  const list = useRef<HTMLUListElement>(null);
  const width = useWidth(list);
  const layout = layoutOf(worker.threads, width);
  return (
    <ul
      ref={list}
      aria-label={`Threads of ${worker.name}`}
      className="mt-3 grid"
      style={{ gridTemplateColumns: `repeat(${layout.columns}, ${layout.cell}px)`, gap: layout.gap }}
    >
      {width > 0 &&
        segmentsOf(cells, layout.columns).map((segment, at) => (
          <li
            key={segment.run ? `${segment.run.job_id}${segment.opens}` : at}
            style={{ gridColumn: `span ${segment.width}` }}
            aria-hidden={!segment.opens}
            data-cell={segment.opens ? segment.kind : undefined}
            data-span={segment.opens ? segment.span : undefined}
          >
            {segment.run ? <JobCell segment={segment} layout={layout} /> : <PlainCell kind={segment.kind} />}
          </li>
        ))}
    </ul>
  );
}

function PlainCell({ kind }: { kind: Cell["kind"] }) {
  return (
    <span title={WORDS[kind]} className={cx("block h-9 rounded border", LOOKS[kind])}>
      <span className="sr-only">{WORDS[kind]}</span>
    </span>
  );
}

function JobCell({ segment, layout }: { segment: Segment; layout: Layout }) {
  const now = useNow();
  const { run, span, kind, opens, closes, width } = segment;
  if (!run) return null;
  const label = run.name ?? run.type;
  const age = formatRelative(run.started_at, now).replace(/ ago$/, "");
  const facts = [age, span > 1 && plural(span, "thread"), run.name && run.type].filter(Boolean).join(" · ");
  const room = opens ? width * (layout.cell + layout.gap) : 0;
  return (
    <Link
      to="/jobs/$id"
      params={{ id: run.job_id }}
      title={`${label}\n${facts}\n${WORDS[kind]}`}
      tabIndex={opens ? undefined : -1}
      className={cx(
        "flex h-9 flex-col justify-center overflow-hidden rounded border text-xs leading-tight hover:brightness-95",
        room >= NAME_MIN && "px-1.5",
        LOOKS[kind],
        !opens && "rounded-l-none border-l-0",
        !closes && "rounded-r-none border-r-0",
      )}
    >
      <span className={room >= NAME_MIN ? "truncate font-medium" : "sr-only"}>{label}</span>
      <span className={room >= 2 * NAME_MIN ? "tabular truncate" : "sr-only"}>{facts}</span>
      <span className="sr-only">{WORDS[kind]}</span>
    </Link>
  );
}

/** The width of the element that holds it, as it changes. 0 until it is known. */
function useWidth(ref: React.RefObject<HTMLElement | null>): number {
  const [width, setWidth] = useState(0);
  useLayoutEffect(() => {
    const outer = ref.current?.parentElement;
    if (!outer) return;
    const measure = () => {
      const { paddingLeft, paddingRight } = getComputedStyle(outer);
      setWidth(Math.floor(outer.clientWidth - Number.parseFloat(paddingLeft) - Number.parseFloat(paddingRight)));
    };
    const observer = new ResizeObserver(measure);
    observer.observe(outer);
    measure();
    return () => observer.disconnect();
  }, [ref]);
  return width;
}

export function Legend() {
  const kinds: [Cell["kind"], string][] = [
    ["free", "free"],
    ["running", "running"],
    ["isolated", "in its own process"],
    ["reserved", "reserved"],
    ["stuck", "stuck or lost"],
  ];
  return (
    <ul aria-label="What the colours mean" className="flex flex-wrap gap-x-3 gap-y-1 text-muted text-xs">
      {kinds.map(([kind, word]) => (
        <li key={kind} className="flex items-center gap-1.5">
          <span aria-hidden="true" className={cx("size-3 rounded-sm border", LOOKS[kind])} />
          {word}
        </li>
      ))}
    </ul>
  );
}
