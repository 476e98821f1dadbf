/** The way of a job from its submission to its end, with how long each part took. */

import type { Job } from "@/api/schema";
import { formatDuration, formatMoment } from "@/lib/format";
import { useNow } from "@/lib/now";
import { cx } from "@/ui/cx";
import { type Status, statusDot, statusWord } from "@/ui/status";
import { Text } from "@/ui/text";

interface Step {
  label: string;
  at: string | null;
  note: string | null;
  dot: string;
  now?: boolean;
}

const seconds = (from: string | null | undefined, to: string | number | null | undefined): number | null =>
  from && to ? ((typeof to === "number" ? to : Date.parse(to)) - Date.parse(from)) / 1000 : null;

/** What has happened to a job, oldest first; the last one may still be going on. */
export function stepsOf(job: Job, nowMs: number): Step[] {
  const steps: Step[] = [{ label: "Created", at: job.created_at, note: null, dot: "bg-line-strong" }];
  const waitsForTime = job.status === "scheduled";
  if (job.scheduled_at && Date.parse(job.scheduled_at) > Date.parse(job.created_at) + 1000)
    steps.push({ label: "Due", at: job.scheduled_at, note: null, dot: statusDot("scheduled") });
  if (job.ready_at && !waitsForTime) {
    const waited = job.started_at && job.status !== "ready" ? job.queue_s : seconds(job.ready_at, nowMs);
    steps.push({
      label: "Ready",
      at: job.ready_at,
      note: waited === null || waited === undefined ? null : `waited ${formatDuration(waited)}`,
      dot: statusDot("ready"),
      now: job.status === "ready",
    });
  }
  if (job.started_at) {
    const ran = job.status === "running" ? seconds(job.started_at, nowMs) : job.execution_s;
    const tries = job.attempts > 1 ? `try ${job.attempts}, ` : "";
    steps.push({
      label: job.status === "running" || job.finished_at ? "Started" : "Last started",
      at: job.started_at,
      note: `${tries}ran ${formatDuration(ran)}`,
      dot: statusDot("running"),
      now: job.status === "running",
    });
  }
  if (job.finished_at)
    steps.push({
      label: statusWord(job.status),
      at: job.finished_at,
      note: job.total_s === null ? null : `${formatDuration(job.total_s)} in all`,
      dot: statusDot(job.status),
    });
  else if (job.next_try_at)
    steps.push({ label: "Next try", at: job.next_try_at, note: null, dot: statusDot("scheduled"), now: true });
  else if (job.status === "held")
    steps.push({ label: "Held", at: job.updated_at, note: job.reason, dot: statusDot("held" as Status), now: true });
  return steps;
}

export function Timeline({ job }: { job: Job }) {
  const steps = stepsOf(job, useNow());
  return (
    <ol className="flex flex-col gap-x-2 gap-y-3 px-4 py-4 md:flex-row md:overflow-x-auto">
      {steps.map((step, at) => (
        <li key={step.label} className="flex min-w-0 gap-2.5 md:flex-1 md:flex-col md:gap-1.5">
          <span className="flex items-center gap-2 max-md:flex-col max-md:pt-1">
            <span
              aria-hidden="true"
              className={cx("size-[10px] shrink-0 rounded-full", step.dot, step.now && "animate-pulse")}
            />
            {at < steps.length - 1 && (
              <span aria-hidden="true" className="bg-line max-md:w-px max-md:flex-1 md:h-px md:flex-1" />
            )}
          </span>
          <span className="min-w-0">
            <span className="block font-medium">{step.label}</span>
            <time dateTime={step.at ?? ""} className="tabular block text-muted text-xs">
              {formatMoment(step.at)}
            </time>
            {step.note && (
              <span className="block text-muted text-xs">
                <Text>{step.note}</Text>
              </span>
            )}
          </span>
        </li>
      ))}
    </ol>
  );
}
