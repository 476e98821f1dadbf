/** Each attempt with its error, where it failed, and what it logged; live while it runs. */

import { useQuery } from "@tanstack/react-query";
import { useEffect, useRef } from "react";
import { get } from "@/api/client";
import { attemptsQuery, keys, useWorkers } from "@/api/queries";
import type { Attempt, Job, Logs } from "@/api/schema";
import { formatDuration, formatMoment } from "@/lib/format";
import { visible } from "@/lib/text";
import { cx } from "@/ui/cx";
import { Panel } from "@/ui/page";
import { Text } from "@/ui/text";

const FOLLOW_MS = 1_000;

export function Attempts({ job }: { job: Job }) {
  const running = job.status === "running";
  const ended = useQuery(attemptsQuery(job.id)).data?.attempts ?? [];
  const logs = useQuery({
    queryKey: [...keys.job(job.id), "logs", running],
    queryFn: () => get<Logs>(`/v1/jobs/${job.id}/logs`, { follow: running }),
    refetchInterval: running ? FOLLOW_MS : false,
  }).data?.logs;
  const textOf = (attempt: number) => logs?.find((log) => log.attempt === attempt)?.text ?? "";
  const shown = [...ended].reverse();
  return (
    <Panel title="Attempts">
      {running && <Running job={job} text={textOf(job.attempts)} />}
      {shown.map((attempt) => (
        <One
          key={attempt.attempt}
          attempt={attempt}
          text={textOf(attempt.attempt)}
          open={attempt.attempt === job.attempts}
        />
      ))}
      {!running && shown.length === 0 && <p className="px-4 py-4 text-muted">It has not been started yet.</p>}
    </Panel>
  );
}

function Running({ job, text }: { job: Job; text: string }) {
  return (
    <section className="border-line border-b px-4 py-3">
      <h3 className="font-medium text-blue">Attempt {job.attempts} runs</h3>
      <Log text={text} live />
    </section>
  );
}

const LOOKS: Record<string, string> = { completed: "text-green", cancelled: "text-muted" };

function One({ attempt, text, open }: { attempt: Attempt; text: string; open: boolean }) {
  const workers = useWorkers().data?.workers;
  const worker = workers?.find((one) => one.id === attempt.worker_id)?.name;
  const ran = attempt.started_at ? (Date.parse(attempt.ended_at) - Date.parse(attempt.started_at)) / 1000 : null;
  return (
    <details open={open} className="border-line border-b last:border-b-0">
      <summary className="flex flex-wrap items-baseline gap-x-3 px-4 py-2.5 hover:bg-hover">
        <span className={cx("font-medium", LOOKS[attempt.status] ?? "text-red")}>
          Attempt {attempt.attempt}: {attempt.status}
        </span>
        <span className="min-w-0 flex-1 truncate text-muted max-md:hidden">
          <Text>{attempt.error?.message}</Text>
        </span>
        <span className="tabular text-muted text-xs">
          {formatDuration(ran)} · {formatMoment(attempt.ended_at)}
        </span>
      </summary>
      <div className="px-4 pb-3">
        {worker && (
          <p className="text-muted text-xs">
            on <Text>{worker}</Text>
          </p>
        )}
        {attempt.error && (
          <p className="break-words font-mono text-red text-xs">
            <Text>{attempt.error.type}</Text>: <Text>{attempt.error.message}</Text>
          </p>
        )}
        {attempt.error?.traceback && <Output label="Traceback" text={attempt.error.traceback} />}
        <Log text={text} />
      </div>
    </details>
  );
}

function Log({ text, live = false }: { text: string; live?: boolean }) {
  const box = useRef<HTMLPreElement>(null);
  // biome-ignore lint/correctness/useExhaustiveDependencies: follow the end of a log that grows
  useEffect(() => {
    if (live && box.current) box.current.scrollTop = box.current.scrollHeight;
  }, [text, live]);
  if (!text) return live ? <p className="text-muted text-xs">It has logged nothing yet.</p> : null;
  return <Output label="Log" text={text} box={box} />;
}

function Output({ label, text, box }: { label: string; text: string; box?: React.RefObject<HTMLPreElement | null> }) {
  return (
    <figure className="mt-2">
      <figcaption className="text-muted text-xs">{label}</figcaption>
      <pre
        ref={box}
        tabIndex={0}
        dir="ltr"
        className="mt-1 max-h-80 overflow-auto whitespace-pre-wrap break-words rounded-md border border-line bg-sunken px-3 py-2 font-mono text-xs"
      >
        {visible(text)}
      </pre>
    </figure>
  );
}
