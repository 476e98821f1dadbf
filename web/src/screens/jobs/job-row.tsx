import { memo } from "react";
import type { Job } from "@/api/schema";
import { formatDuration, formatRelative, shortId } from "@/lib/format";
import { useNow } from "@/lib/now";
import { cx } from "@/ui/cx";
import { StatusBadge } from "@/ui/status";
import { Text } from "@/ui/text";

/** The columns of the list and its heading. On a phone the first three stay. */
export const COLUMNS =
  "grid grid-cols-[2rem_6.75rem_minmax(0,1fr)] md:grid-cols-[2rem_6.75rem_minmax(0,2.2fr)_minmax(0,1fr)_4.5rem_4.5rem_6rem_6.5rem] items-center gap-x-3 px-3";

interface Props {
  job: Job;
  index: number;
  selected: boolean;
  active: boolean;
  selectable: boolean;
  onSelect: (index: number, reach: boolean) => void;
  onOpen: (id: string) => void;
}

export const JobRow = memo(function JobRow({ job, index, selected, active, selectable, onSelect, onOpen }: Props) {
  return (
    <div
      role="row"
      id={`job-row-${index}`}
      aria-rowindex={index + 2}
      aria-selected={selected}
      data-job={job.id}
      onClick={() => onOpen(job.id)}
      className={cx(
        COLUMNS,
        "h-11 cursor-pointer border-line border-b leading-tight",
        selected ? "bg-accent-soft" : "hover:bg-hover",
        active && "outline outline-2 outline-accent -outline-offset-2",
      )}
    >
      <div
        role="gridcell"
        className="-ml-3 flex h-full items-center pl-3"
        onClick={(event) => {
          event.stopPropagation();
          if (selectable) onSelect(index, event.shiftKey);
        }}
      >
        {selectable && (
          <input
            type="checkbox"
            tabIndex={-1}
            readOnly
            checked={selected}
            aria-label={`Select job ${job.id}`}
            className="size-4 accent-accent"
          />
        )}
      </div>
      <Cell className="flex">
        <StatusBadge status={job.status} />
      </Cell>
      <Cell>
        <span className="flex items-baseline gap-2">
          <span className="min-w-0 flex-1 truncate font-medium">
            {job.type}
            {job.name && (
              <span className="font-normal text-muted">
                {" "}
                · <Text>{job.name}</Text>
              </span>
            )}
          </span>
          <span className="tabular shrink-0 text-muted text-xs md:hidden">
            <Age moment={job.created_at} />
          </span>
        </span>
        <Detail job={job} />
      </Cell>
      <Cell className="max-md:hidden">
        <span className="block truncate text-muted">{job.queue}</span>
      </Cell>
      <Cell className="tabular text-right text-muted max-md:hidden">
        {job.attempts} / {job.max_attempts}
      </Cell>
      <Cell className="tabular text-right text-muted max-md:hidden">{job.threads_granted ?? job.thread_demand}</Cell>
      <Cell className="tabular text-right text-muted max-md:hidden">{formatDuration(job.execution_s)}</Cell>
      <Cell className="tabular text-right text-muted max-md:hidden">
        <Age moment={job.created_at} />
      </Cell>
    </div>
  );
});

function Cell({ children, className = "" }: { children: React.ReactNode; className?: string }) {
  return (
    <div role="gridcell" className={cx("min-w-0", className)}>
      {children}
    </div>
  );
}

/** What a person wants to know of a job in this state, in one line. */
function Detail({ job }: { job: Job }) {
  const text = job.error
    ? `${job.error.type.split(".").at(-1)}: ${job.error.message}`
    : (job.reason ?? job.progress_note ?? shortId(job.id));
  return (
    <span className={cx("block truncate text-xs", job.error && job.status !== "completed" ? "text-red" : "text-muted")}>
      {job.next_try_at && <NextTry moment={job.next_try_at} />}
      <Text>{text}</Text>
    </span>
  );
}

function NextTry({ moment }: { moment: string }) {
  return <span className="text-muted">next try {formatRelative(moment, useNow())} · </span>;
}

export function Age({ moment }: { moment: string | null | undefined }) {
  const text = formatRelative(moment, useNow());
  return <time dateTime={moment ?? ""}>{text}</time>;
}
