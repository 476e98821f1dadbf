/** Every worker with its threads as cells: which job holds which, live. */
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { get } from "@/api/client";
import { useScopes, useWorkers } from "@/api/queries";
import type { ThreadMap, Worker, WorkerThreads } from "@/api/schema";
import { formatBytes, formatCount, formatRelative, plural } from "@/lib/format";
import { useNow } from "@/lib/now";
import { Cells, Legend } from "@/screens/workers/cells";
import { cellsOf } from "@/screens/workers/thread-map";
import { WorkerMenu } from "@/screens/workers/worker-menu";
import { Button } from "@/ui/button";
import { cx } from "@/ui/cx";
import { Empty, Failure, Loading, Page } from "@/ui/page";
import { Text } from "@/ui/text";

const MAP_MS = 1_000;
const LARGE_MAP_MS = 5_000;
const LARGE_MAP = 500; // jobs; a map of thousands is a megabyte

export function Workers() {
  const query = useWorkers();
  const [gone, setGone] = useState(false);
  const map = useThreadMap();
  if (query.isPending) return <Loading label="Loading the workers" />;
  if (query.isError && !query.data) return <Failure error={query.error} retry={() => void query.refetch()} />;
  const byId = new Map(map?.workers.map((one) => [one.id, one] as const));
  const all = query.data.workers;
  const living = all.filter(isLiving).sort((a, b) => BY_NAME.compare(a.name, b.name));
  const shown = gone ? [...living, ...all.filter((worker) => !isLiving(worker))] : living;
  return (
    <Page
      title="Workers"
      aside={
        <>
          <Legend />
          {all.length > living.length && (
            <Button onClick={() => setGone(!gone)}>
              {gone ? "Hide those that are gone" : `Show ${formatCount(all.length - living.length)} that are gone`}
            </Button>
          )}
        </>
      }
    >
      {shown.length === 0 ? (
        <div className="panel">
          <Empty title="No worker lives.">
            Jobs wait until one does: <code className="font-mono">windlass worker --app tasks:app</code>
          </Empty>
        </div>
      ) : (
        <ul className="flex flex-col gap-3">
          {shown.map((worker) => (
            <WorkerPanel key={worker.id} worker={worker} map={byId.get(worker.id)} />
          ))}
        </ul>
      )}
    </Page>
  );
}

function useThreadMap(): ThreadMap | undefined {
  return useQuery({
    queryKey: ["threads"],
    queryFn: ({ signal }) => get<ThreadMap>("/v1/workers/threads", undefined, signal),
    refetchInterval: ({ state }) => (jobsIn(state.data) > LARGE_MAP ? LARGE_MAP_MS : MAP_MS),
  }).data;
}

const BY_NAME = new Intl.Collator("en", { numeric: true });
const jobsIn = (map: ThreadMap | undefined): number =>
  (map?.workers ?? []).reduce((sum, worker) => sum + worker.running.length, 0);
const isLiving = ({ status }: Worker): boolean => status !== "dead" && status !== "stopped";

const WORDS: Record<Worker["status"], { word: string; look: string }> = {
  idle: { word: "Idle", look: "bg-accent-soft text-accent" },
  busy: { word: "Busy", look: "bg-blue-soft text-blue" },
  draining: { word: "Draining", look: "bg-amber-soft text-amber" },
  stopped: { word: "Stopped", look: "bg-sunken text-muted" },
  dead: { word: "Dead", look: "bg-red-soft text-red" },
};

function WorkerPanel({ worker, map }: { worker: Worker; map: WorkerThreads | undefined }) {
  const { operate } = useScopes();
  const { word, look } = WORDS[worker.status];
  const lives = isLiving(worker);
  return (
    <li className={cx("panel px-4 py-3", !lives && "opacity-75")} data-worker={worker.name}>
      <div className="flex items-start gap-3">
        <div className="flex min-h-7 min-w-0 flex-1 flex-wrap items-center gap-x-3 gap-y-1">
          <h2 className="min-w-0 truncate font-semibold">
            <Text>{worker.name}</Text>
          </h2>
          <span className={cx("rounded-full px-2 py-px font-medium text-xs", look)}>{word}</span>
          {lives && <Load worker={worker} map={map} />}
        </div>
        {operate && lives && <WorkerMenu worker={worker} />}
      </div>
      <Facts worker={worker} map={map} />
      {lives && <Cells worker={worker} cells={cellsOf(worker, map)} />}
    </li>
  );
}

/** How much of it is in use. The map is newer than the list, where there is one. */
function Load({ worker, map }: { worker: Worker; map: WorkerThreads | undefined }) {
  const busy = map ? map.running.reduce((sum, run) => sum + run.threads, 0) : worker.busy_threads;
  const claimed = map?.claimed ?? worker.claimed ?? 0;
  return (
    <span className="tabular text-sm">
      {`${formatCount(busy)} of ${plural(worker.threads, "thread")} in use`}
      {claimed > 0 && <span className="text-muted">{` · ${formatCount(claimed)} claimed ahead`}</span>}
      {worker.lost_threads > 0 && <span className="text-red">{` · ${formatCount(worker.lost_threads)} lost`}</span>}
    </span>
  );
}

function Facts({ worker, map }: { worker: Worker; map: WorkerThreads | undefined }) {
  const now = useNow();
  const memory = map?.memory_bytes ?? worker.memory_bytes;
  const facts: [string, string, string?][] = [
    isLiving(worker)
      ? ["heartbeat", formatRelative(worker.renewed_at, now)]
      : ["ended", formatRelative(worker.died_at, now)],
    ["started", formatRelative(worker.started_at, now)],
    ...(memory ? [["memory", formatBytes(memory)] as [string, string]] : []),
    ["queues", worker.queues.join(", ")],
    ["types", formatCount(worker.types.length), worker.types.join(", ")],
    ...(worker.version ? [["version", worker.version] as [string, string]] : []),
  ];
  return (
    <dl className="tabular mt-1 flex flex-wrap gap-x-4 gap-y-0.5 text-xs">
      {facts.map(([name, value, title]) => (
        <div key={name} className="flex min-w-0 gap-1.5">
          <dt className="text-muted">{name}</dt>
          <dd className="truncate" title={title}>
            {value}
          </dd>
        </div>
      ))}
    </dl>
  );
}
