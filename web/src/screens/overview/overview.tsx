/** Is it healthy, what failed, what waits, what changed: the screen people leave open. */

import { useQuery } from "@tanstack/react-query";
import { Link, useNavigate } from "@tanstack/react-router";
import { useState } from "react";
import { get } from "@/api/client";
import { useQueues, useScopes, useStats, useWorkers } from "@/api/queries";
import type { Audit, DeadLetterGroups } from "@/api/schema";
import { RANGES, useSeries } from "@/api/series";
import { formatCompact, formatCount, formatDuration, formatRelative } from "@/lib/format";
import { useNow } from "@/lib/now";
import { isolated } from "@/lib/text";
import { FirstSteps } from "@/screens/overview/first-steps";
import { cx } from "@/ui/cx";
import { Failure, Loading, Page, Panel } from "@/ui/page";
import { RangePicker } from "@/ui/range-picker";
import { Text } from "@/ui/text";
import { TimeCharts } from "@/ui/time-charts";

export function Overview() {
  const [range, setRange] = useState(RANGES[1] as (typeof RANGES)[number]);
  const stats = useStats();
  const series = useSeries(range.seconds);
  const navigate = useNavigate();
  if (stats.isPending) return <Loading label="Loading the overview" />;
  if (stats.isError && !stats.data) return <Failure error={stats.error} retry={() => void stats.refetch()} />;
  if (stats.data.total === 0)
    return (
      <Page title="Overview">
        <FirstSteps />
      </Page>
    );
  return (
    <Page title="Overview" aside={<RangePicker range={range} onRange={setRange} />}>
      <Figures />
      <TimeCharts
        series={series.data}
        onSpan={(after, before) =>
          void navigate({ to: "/jobs", search: { finished_after: after, finished_before: before } })
        }
      />
      <div className="grid items-start gap-4 lg:grid-cols-3">
        <DeepestQueues />
        <WorstFailures />
        <Changes />
      </div>
    </Page>
  );
}

function Figures() {
  const counts = useStats().data?.statuses ?? {};
  const workers =
    useWorkers().data?.workers.filter((worker) => worker.status !== "dead" && worker.status !== "stopped") ?? [];
  const queues = useQueues().data?.queues ?? [];
  const threads = workers.reduce((sum, worker) => sum + worker.threads, 0);
  const busy = workers.reduce((sum, worker) => sum + worker.busy_threads, 0);
  const oldest = Math.max(0, ...queues.filter((queue) => !queue.paused).map((queue) => queue.oldest_age_s ?? 0));
  const count = (status: string) => counts[status] ?? 0;
  return (
    <ul className="panel grid grid-cols-2 gap-px overflow-hidden bg-line sm:grid-cols-4 xl:grid-cols-8">
      <Figure to="/jobs" search={{ status: ["running"] }} label="Running" value={formatCompact(count("running"))} />
      <Figure to="/jobs" search={{ status: ["ready"] }} label="Ready" value={formatCompact(count("ready"))} />
      <Figure
        to="/jobs"
        search={{ status: ["scheduled"] }}
        label="Scheduled"
        value={formatCompact(count("scheduled"))}
      />
      <Figure
        to="/jobs"
        search={{ status: ["held"] }}
        label="Held"
        value={formatCompact(count("held"))}
        look={count("held") ? "text-amber" : ""}
      />
      <Figure to="/queues" label="Oldest waits" value={formatDuration(oldest)} look={oldest > 60 ? "text-amber" : ""} />
      <Figure
        to="/workers"
        label={threads ? "Threads busy" : "Workers"}
        value={threads ? `${formatCompact(Math.min(busy, threads))} of ${formatCompact(threads)}` : "none"}
        look={threads ? "" : "text-red"}
      />
      <Figure
        to="/jobs"
        search={{ status: ["completed"] }}
        label="Completed"
        value={formatCompact(count("completed"))}
      />
      <Figure
        to="/dead-letters"
        label="Dead letters"
        value={formatCompact(count("failed"))}
        look={count("failed") ? "text-red" : ""}
      />
    </ul>
  );
}

interface FigureProps {
  to: "/jobs" | "/queues" | "/workers" | "/dead-letters";
  search?: { status: ("running" | "ready" | "scheduled" | "held" | "completed")[] };
  label: string;
  value: string;
  look?: string;
}

function Figure({ to, search, label, value, look = "" }: FigureProps) {
  return (
    <li className="bg-raised">
      <Link to={to} search={search ?? {}} className="block px-4 py-3 hover:bg-hover">
        <span className="block text-muted text-xs">{label}</span>
        <span className={cx("tabular block truncate font-semibold text-lg", look)}>{value}</span>
      </Link>
    </li>
  );
}

function DeepestQueues() {
  const queues = [...(useQueues().data?.queues ?? [])].sort((a, b) => b.depth - a.depth).slice(0, 6);
  const most = Math.max(1, ...queues.map((queue) => queue.depth));
  return (
    <Panel title="Queues">
      <ul className="px-4 py-2">
        {queues.map((queue) => (
          <li key={queue.name} className="py-1.5">
            <Link to="/queues/$name" params={{ name: queue.name }} className="block hover:text-accent">
              <span className="flex gap-2">
                <span className="min-w-0 flex-1 truncate">{queue.name}</span>
                {queue.paused && <span className="text-amber text-xs">paused</span>}
                <span className="tabular text-muted">{formatCount(queue.depth)} waiting</span>
              </span>
              <svg viewBox="0 0 100 4" preserveAspectRatio="none" className="mt-1 h-1 w-full" aria-hidden="true">
                <rect width="100" height="4" rx="2" fill="var(--sunken)" />
                <rect width={(queue.depth / most) * 100} height="4" rx="2" fill="var(--accent)" />
              </svg>
            </Link>
          </li>
        ))}
      </ul>
    </Panel>
  );
}

function WorstFailures() {
  const now = useNow();
  const failed = useStats().data?.statuses.failed;
  const groups = useQuery({
    queryKey: ["dead-letters", "groups", "overview", failed],
    queryFn: () => get<DeadLetterGroups>("/v1/dead-letters/groups"),
    staleTime: 10_000,
  }).data?.groups;
  return (
    <Panel title="What fails">
      {!groups?.length ? (
        <p className="px-4 py-4 text-muted">Nothing has failed for good.</p>
      ) : (
        <ul className="px-4 py-2">
          {groups.slice(0, 5).map((group) => (
            <li key={group.type + group.fingerprint + group.message} className="py-1.5">
              <Link to="/dead-letters" className="block hover:text-accent">
                <span className="flex gap-2">
                  <span className="min-w-0 flex-1 truncate">
                    {group.type}{" "}
                    <span className="text-red">
                      <Text>{group.error_type.split(".").at(-1)}</Text>
                    </span>
                  </span>
                  <span className="tabular text-muted">{formatCount(group.count)}</span>
                </span>
                <span className="block truncate text-muted text-xs">
                  {formatRelative(group.last_at, now)}: <Text>{group.message}</Text>
                </span>
              </Link>
            </li>
          ))}
        </ul>
      )}
    </Panel>
  );
}

/** Who joined and left, and what operators did. */
function Changes() {
  const now = useNow();
  const { admin } = useScopes();
  const workers = useWorkers().data?.workers ?? [];
  const audit = useQuery({
    queryKey: ["audit", "newest"],
    queryFn: () => get<Audit>("/v1/audit", { limit: 10 }),
    enabled: admin,
    refetchInterval: 15_000,
  }).data?.entries;
  const changes = [
    ...workers.map((worker) => ({ at: worker.started_at, text: `Worker ${isolated(worker.name)} started` })),
    ...workers.flatMap((worker) =>
      worker.died_at
        ? [
            {
              at: worker.died_at,
              text: `Worker ${isolated(worker.name)} ${worker.status === "stopped" ? "stopped" : "died"}`,
            },
          ]
        : [],
    ),
    ...(audit ?? []).map((entry) => ({
      at: entry.at,
      text: `${isolated(entry.actor)}: ${entry.action}${entry.target ? ` ${isolated(entry.target)}` : ""}`,
    })),
  ]
    .sort((a, b) => Date.parse(b.at) - Date.parse(a.at))
    .slice(0, 6);
  return (
    <Panel title="What changed">
      <ul className="px-4 py-2">
        {changes.map((change) => (
          <li key={change.at + change.text} className="flex gap-3 py-1.5">
            <span className="min-w-0 flex-1 truncate" title={change.text}>
              {change.text}
            </span>
            <time dateTime={change.at} className="tabular shrink-0 text-muted text-xs">
              {formatRelative(change.at, now)}
            </time>
          </li>
        ))}
      </ul>
    </Panel>
  );
}
