/** One queue: its state, its pace over time, and the types in it. */

import { Link, useNavigate, useParams } from "@tanstack/react-router";
import { useState } from "react";
import { useQueues, useStats, useTypes } from "@/api/queries";
import { RANGES, useSeries } from "@/api/series";
import { formatCount, formatDuration } from "@/lib/format";
import { isolated } from "@/lib/text";
import { PauseButton } from "@/screens/queues/pause-button";
import { Empty, Loading, Page, Panel } from "@/ui/page";
import { RangePicker } from "@/ui/range-picker";
import { STATUSES, statusDot, statusWord } from "@/ui/status";
import { TimeCharts } from "@/ui/time-charts";

export function QueuePage() {
  const { name } = useParams({ from: "/queues/$name" });
  const queues = useQueues();
  const [range, setRange] = useState(RANGES[1] as (typeof RANGES)[number]);
  const series = useSeries(range.seconds, { queue: name });
  const navigate = useNavigate();
  if (queues.isPending) return <Loading label="Loading the queue" />;
  const queue = queues.data?.queues.find((one) => one.name === name);
  return (
    <Page
      title={`Queue ${isolated(name)}`}
      aside={
        <>
          <RangePicker range={range} onRange={setRange} />
          {queue && <PauseButton queue={queue} />}
        </>
      }
    >
      {queue ? (
        <dl className="panel grid grid-cols-2 gap-px overflow-hidden bg-line sm:grid-cols-4">
          <Figure label="Waiting" value={formatCount(queue.depth)} />
          <Figure label="Oldest waits" value={formatDuration(queue.oldest_age_s)} />
          <Figure label="Workers that serve it" value={formatCount(queue.served_by ?? 0)} />
          <Figure label="State" value={queue.paused ? "paused" : "served"} />
        </dl>
      ) : (
        <div className="panel">
          <Empty title="Nothing is in this queue.">Queues without jobs and settings are forgotten after a while.</Empty>
        </div>
      )}
      <TimeCharts
        series={series.data}
        onSpan={(after, before) =>
          void navigate({ to: "/jobs", search: { queue: name, finished_after: after, finished_before: before } })
        }
      />
      <div className="grid items-start gap-4 lg:grid-cols-2">
        <ByStatus queue={name} statuses={queue?.statuses ?? {}} />
        <ByType queue={name} />
      </div>
    </Page>
  );
}

function Figure({ label, value }: { label: string; value: string }) {
  return (
    <div className="bg-raised px-4 py-3">
      <dt className="text-muted text-xs">{label}</dt>
      <dd className="tabular font-semibold text-lg">{value}</dd>
    </div>
  );
}

function ByStatus({ queue, statuses }: { queue: string; statuses: Record<string, number> }) {
  return (
    <Panel title="Jobs by status">
      <ul className="px-2 py-2">
        {STATUSES.map((status) => (
          <li key={status}>
            <Link
              to="/jobs"
              search={{ queue, status: [status] }}
              className="flex items-center gap-2.5 rounded-md px-2 py-1.5 hover:bg-hover"
            >
              <span aria-hidden="true" className={`size-2 rounded-full ${statusDot(status)}`} />
              <span className="flex-1">{statusWord(status)}</span>
              <span className="tabular text-muted">{formatCount(statuses[status] ?? 0)}</span>
            </Link>
          </li>
        ))}
      </ul>
    </Panel>
  );
}

function ByType({ queue }: { queue: string }) {
  const lines = useStats().data?.lines.filter((line) => line.queue === queue) ?? [];
  const types = useTypes().data?.types;
  const counts = new Map<string, number>();
  for (const line of lines) counts.set(line.type, (counts.get(line.type) ?? 0) + line.count);
  const sorted = [...counts].sort((a, b) => b[1] - a[1]).slice(0, 20);
  return (
    <Panel title="Jobs by type">
      {sorted.length === 0 ? (
        <Empty title="No jobs." />
      ) : (
        <ul className="px-2 py-2">
          {sorted.map(([type, count]) => (
            <li key={type}>
              <Link
                to="/jobs"
                search={{ queue, type }}
                className="flex items-center gap-2.5 rounded-md px-2 py-1.5 hover:bg-hover"
              >
                <span className="min-w-0 flex-1 truncate">{type}</span>
                {types && !types.some((one) => one.name === type && one.alive) && (
                  <span className="text-amber text-xs">no living worker knows it</span>
                )}
                <span className="tabular text-muted">{formatCount(count)}</span>
              </Link>
            </li>
          ))}
        </ul>
      )}
    </Panel>
  );
}
