/** Every worker with its threads as cells: which job holds which, live. */
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useState } from "react";
import { get, post } from "@/api/client";
import { keys, useScopes, useWorkers } from "@/api/queries";
import type { ThreadMap, Worker, WorkerThreads } from "@/api/schema";
import { formatBytes, formatCount, formatRelative, plural } from "@/lib/format";
import { useNow } from "@/lib/now";
import { type Cell, cellsOf } from "@/screens/workers/thread-map";
import { Button } from "@/ui/button";
import { cx } from "@/ui/cx";
import { Dialog } from "@/ui/dialog";
import { Menu } from "@/ui/menu";
import { Empty, Failure, Loading, Page } from "@/ui/page";
import { toast, toastError } from "@/ui/toast";

const MAP_MS = 1_000;

export function Workers() {
  const query = useWorkers();
  const [gone, setGone] = useState(false);
  const map = useQuery({
    queryKey: ["threads"],
    queryFn: ({ signal }) => get<ThreadMap>("/v1/workers/threads", undefined, signal),
    refetchInterval: MAP_MS,
  }).data;
  if (query.isPending) return <Loading label="Loading the workers" />;
  if (query.isError && !query.data) return <Failure error={query.error} retry={() => void query.refetch()} />;
  const byId = new Map(map?.workers.map((one) => [one.id, one] as const));
  const all = query.data.workers;
  const living = all.filter((worker) => worker.status !== "dead" && worker.status !== "stopped");
  const shown = gone ? all : living;
  return (
    <Page
      title="Workers"
      aside={
        <>
          <Legend />
          {all.length > living.length && (
            <Button onClick={() => setGone(!gone)}>
              {gone ? "Hide those that are gone" : `Show ${all.length - living.length} that are gone`}
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

const WORDS: Record<Worker["status"], { word: string; look: string }> = {
  idle: { word: "Idle", look: "bg-accent-soft text-accent" },
  busy: { word: "Busy", look: "bg-blue-soft text-blue" },
  draining: { word: "Draining", look: "bg-amber-soft text-amber" },
  stopped: { word: "Stopped", look: "bg-sunken text-muted" },
  dead: { word: "Dead", look: "bg-red-soft text-red" },
};

function WorkerPanel({ worker, map }: { worker: Worker; map: WorkerThreads | undefined }) {
  const now = useNow();
  const { operate } = useScopes();
  const { word, look } = WORDS[worker.status];
  const lives = worker.status !== "dead" && worker.status !== "stopped";
  const facts = [
    `heartbeat ${formatRelative(worker.renewed_at, now)}`,
    `started ${formatRelative(worker.started_at, now)}`,
    plural(worker.types.length, "type"),
    `queues ${worker.queues.join(", ")}`,
    ...(map?.memory_bytes ? [formatBytes(map.memory_bytes)] : []),
    ...(worker.version ? [`version ${worker.version}`] : []),
    ...(map?.claimed ? [`${formatCount(map.claimed)} claimed ahead`] : []),
    ...(worker.lost_threads ? [`${plural(worker.lost_threads, "thread")} lost`] : []),
  ];
  return (
    <li className={cx("panel px-4 py-3", !lives && "opacity-75")} data-worker={worker.name}>
      <div className="flex flex-wrap items-center gap-x-3 gap-y-1">
        <h2 className="font-semibold">{worker.name}</h2>
        <span className={cx("rounded-full px-2 py-px font-medium text-xs", look)}>{word}</span>
        <span className="tabular min-w-0 flex-1 text-muted text-xs">{facts.join(" · ")}</span>
        {operate && lives && <WorkerMenu worker={worker} />}
      </div>
      {lives && (
        <Cells worker={worker} cells={cellsOf(worker.threads, map, worker.lost_threads, !!worker.reserved_for)} />
      )}
    </li>
  );
}

const LOOKS: Record<Cell["kind"], string> = {
  free: "border-line bg-sunken",
  running: "border-blue bg-blue-soft text-blue hover:brightness-95",
  isolated: "border-violet bg-violet-soft text-violet hover:brightness-95",
  stuck: "border-red bg-red-soft text-red hover:brightness-95",
  reserved: "border-amber border-dashed bg-amber-soft",
  lost: "border-red bg-red-soft",
};

function Cells({ worker, cells }: { worker: Worker; cells: readonly Cell[] }) {
  return (
    <ul
      aria-label={`Threads of ${worker.name}`}
      className="mt-2.5 grid grid-cols-[repeat(auto-fill,minmax(4.5rem,1fr))] gap-1"
    >
      {cells.map((cell, at) => (
        <li
          // biome-ignore lint/suspicious/noArrayIndexKey: a free cell has nothing but its place
          key={cell.run?.job_id ?? at}
          data-cell={cell.kind}
          data-span={cell.span}
          className={SPANS[Math.min(cell.span, SPANS.length - 1)]}
        >
          {cell.run ? (
            <Link
              to="/jobs/$id"
              params={{ id: cell.run.job_id }}
              title={`${cell.run.type} ${cell.run.job_id}: ${plural(cell.span, "thread")}, ${cell.kind}`}
              className={cx("flex h-8 items-center overflow-hidden rounded border px-1.5 text-xs", LOOKS[cell.kind])}
            >
              <span className="truncate">{cell.run.type}</span>
            </Link>
          ) : (
            <span title={cell.kind} className={cx("block h-8 rounded border", LOOKS[cell.kind])}>
              <span className="sr-only">{cell.kind}</span>
            </span>
          )}
        </li>
      ))}
    </ul>
  );
}

// Written out: the style sheet is made from the names that stand in the source.
const SPANS = [
  "",
  "",
  "col-span-2",
  "col-span-3",
  "col-span-4",
  "col-span-5",
  "col-span-6",
  "col-span-7",
  "col-span-8",
];

function Legend() {
  const kinds: Cell["kind"][] = ["free", "running", "isolated", "reserved", "stuck"];
  return (
    <ul className="flex flex-wrap gap-x-3 gap-y-1 text-muted text-xs">
      {kinds.map((kind) => (
        <li key={kind} className="flex items-center gap-1.5">
          <span aria-hidden="true" className={cx("size-3 rounded-sm border", LOOKS[kind])} />
          {kind === "stuck" ? "stuck or lost" : kind}
        </li>
      ))}
    </ul>
  );
}

function WorkerMenu({ worker }: { worker: Worker }) {
  const [asking, setAsking] = useState(false);
  const client = useQueryClient();
  const act = useMutation({
    mutationFn: (verb: "drain" | "stop") => post(`/v1/workers/${worker.id}/${verb}`),
    onSuccess: (_, verb) =>
      toast(
        verb === "drain" ? `${worker.name} finishes what it runs.` : `${worker.name} gives its jobs back and stops.`,
      ),
    onError: toastError,
    onSettled: () => void client.invalidateQueries({ queryKey: keys.workers }),
  });
  return (
    <>
      <Menu
        label={`Actions on ${worker.name}`}
        trigger={<Button aria-label={`Actions on ${worker.name}`}>Actions</Button>}
        items={[
          {
            label: "Drain",
            note: "finish what runs, then go",
            onSelect: () => act.mutate("drain"),
            disabled: worker.status === "draining",
          },
          { label: "Stop …", note: "give jobs back and go", danger: true, onSelect: () => setAsking(true) },
        ]}
      />
      <Dialog
        open={asking}
        onClose={() => setAsking(false)}
        title={`Stop ${worker.name}`}
        footer={
          <>
            <Button onClick={() => setAsking(false)}>Close</Button>
            <Button
              look="danger"
              onClick={() => {
                setAsking(false);
                act.mutate("stop");
              }}
            >
              Stop it
            </Button>
          </>
        }
      >
        <p>
          Its running jobs are given back and start again elsewhere. No attempt is used up. Its supervisor starts
          another worker in its place.
        </p>
      </Dialog>
    </>
  );
}
