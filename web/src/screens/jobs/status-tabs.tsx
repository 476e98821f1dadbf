/** The states with their exact counts. They are links, so that each view has an address. */
import { Link } from "@tanstack/react-router";
import { useStats } from "@/api/queries";
import { formatCompact, formatCount } from "@/lib/format";
import type { JobFilter } from "@/lib/job-filter";
import { cx } from "@/ui/cx";
import { STATUSES, type Status, statusDot, statusWord } from "@/ui/status";

export function StatusTabs({ filter }: { filter: JobFilter }) {
  const stats = useStats().data;
  const { status: chosen, ...rest } = filter;
  const tabs: { status: Status | null; count: number | undefined }[] = [
    { status: null, count: stats?.total },
    ...STATUSES.map((status) => ({ status, count: stats?.statuses[status] ?? (stats ? 0 : undefined) })),
  ];
  return (
    <nav aria-label="Statuses" className="flex gap-1 overflow-x-auto border-line border-b px-2 py-1.5">
      {tabs.map(({ status, count }) => {
        const current = status ? chosen?.length === 1 && chosen[0] === status : !chosen?.length;
        return (
          <Link
            key={status ?? "all"}
            to="/jobs"
            search={status ? { ...rest, status: [status] } : rest}
            aria-current={current ? "true" : undefined}
            title={count === undefined ? undefined : formatCount(count)}
            className={cx(
              "flex h-8 shrink-0 items-center gap-2 rounded-md px-2.5",
              current ? "bg-accent-soft font-medium text-accent" : "text-muted hover:bg-hover hover:text-text",
            )}
          >
            {status && <span aria-hidden="true" className={cx("size-1.5 rounded-full", statusDot(status))} />}
            {status ? statusWord(status) : "All"}
            <span className="tabular text-xs" data-testid={`count-${status ?? "all"}`}>
              {count === undefined ? "–" : formatCompact(count)}
            </span>
          </Link>
        );
      })}
    </nav>
  );
}
