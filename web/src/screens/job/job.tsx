/** One job: what it is, where it is and why, what happened to it, and what can be done about it. */

import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { Link, useParams } from "@tanstack/react-router";
import { useEffect } from "react";
import { post } from "@/api/client";
import { liveStream } from "@/api/live";
import { explainQuery, jobQuery, keys, useScopes, useWorkers } from "@/api/queries";
import type { Job, Moved } from "@/api/schema";
import { formatDuration, formatMoment, plural } from "@/lib/format";
import { isolated } from "@/lib/text";
import { Attempts } from "@/screens/job/attempts";
import { Body } from "@/screens/job/body";
import { copyAs, type Form } from "@/screens/job/copy-as";
import { Timeline } from "@/screens/job/timeline";
import { Button } from "@/ui/button";
import { CopyButton, copyText } from "@/ui/copy";
import { Menu } from "@/ui/menu";
import { Failure, Loading, Page, Panel } from "@/ui/page";
import { StatusBadge } from "@/ui/status";
import { Text } from "@/ui/text";
import { toast, toastError } from "@/ui/toast";

export function JobPage() {
  const { id } = useParams({ from: "/jobs/$id" });
  const query = useQuery({
    ...jobQuery(id),
    // Its progress; and a retry that fails again between two looks of the server tells nothing new.
    refetchInterval: ({ state }) => (["ready", "running"].includes(state.data?.job.status ?? "") ? 2_000 : false),
  });
  useEffect(() => liveStream().watch(id), [id]);
  if (query.isPending) return <Loading label="Loading the job" />;
  if (query.isError && !query.data) return <Failure error={query.error} retry={() => void query.refetch()} />;
  const { job, payload, result } = query.data;
  const finished = ["completed", "failed", "cancelled"].includes(job.status);
  return (
    <Page
      title={job.name ? `${job.type} · ${isolated(job.name)}` : job.type}
      aside={<Actions job={job} payload={payload} />}
    >
      <div className="-mt-3 flex flex-wrap items-center gap-x-3 gap-y-1">
        <StatusBadge status={job.status} />
        <span className="flex items-center gap-1 break-all font-mono text-muted text-xs">
          {job.id}
          <CopyButton text={job.id} label="Copy the id" />
        </span>
      </div>
      {!finished && <Why job={job} />}
      {job.progress !== null && !finished && <Progress job={job} />}
      <Panel>
        <Timeline job={job} />
      </Panel>
      <div className="grid items-start gap-4 lg:grid-cols-[minmax(0,1fr)_20rem]">
        <div className="flex min-w-0 flex-col gap-4">
          {job.error && job.status !== "completed" && <ErrorPanel job={job} />}
          <Panel title="Payload">
            <Body text={payload} what="payload" />
          </Panel>
          {(job.status === "completed" || (result && result !== "null")) && (
            <Panel title="Result">
              <Body text={result} what="result" />
            </Panel>
          )}
          <Attempts job={job} />
        </div>
        <Facts job={job} />
      </div>
    </Page>
  );
}

function Why({ job }: { job: Job }) {
  const { operate } = useScopes();
  const explanation = useQuery({ ...explainQuery(job.id), refetchInterval: 5_000 }).data;
  const act = useAction(job.id);
  if (!explanation || job.status === "running") return null;
  const undecided = job.reason === "needs decision";
  return (
    <section
      aria-label="Why it waits"
      className="rounded-[10px] border border-line border-l-4 border-l-amber bg-raised px-4 py-3"
    >
      <p className="font-medium">
        <Text>{explanation.summary}</Text>
      </p>
      <ul className="mt-1 space-y-0.5 text-muted">
        {explanation.obstacles.map((obstacle) => (
          <li key={obstacle.code + obstacle.detail}>
            <Text>{obstacle.detail}</Text>
            {obstacle.cure && (
              <span className="text-text">
                {" "}
                <Text>{obstacle.cure}</Text>
              </span>
            )}
          </li>
        ))}
      </ul>
      {undecided && operate && (
        <div className="mt-3 flex flex-wrap gap-2">
          <Button onClick={() => act.mutate({ verb: "decide", body: { decision: "done" } })}>It has happened</Button>
          <Button onClick={() => act.mutate({ verb: "decide", body: { decision: "redo" } })}>
            It has not: do it again
          </Button>
        </div>
      )}
    </section>
  );
}

function Progress({ job }: { job: Job }) {
  const percent = Math.round((job.progress ?? 0) * 100);
  return (
    <div className="panel px-4 py-3">
      <div className="flex justify-between">
        <Text>{job.progress_note ?? "Progress"}</Text>
        <span className="tabular text-muted">{percent} %</span>
      </div>
      <progress
        className="mt-1 w-full accent-accent"
        aria-label="Progress of the job"
        max={1}
        value={job.progress ?? 0}
      />
    </div>
  );
}

function ErrorPanel({ job }: { job: Job }) {
  if (!job.error) return null;
  return (
    <section
      aria-label="Last error"
      className="rounded-[10px] border border-line border-l-4 border-l-red bg-raised px-4 py-3"
    >
      <p className="font-medium text-red [overflow-wrap:anywhere]">
        <Text>{job.error.type}</Text>
      </p>
      <p className="whitespace-pre-wrap [overflow-wrap:anywhere]">
        <Text>{job.error.message}</Text>
      </p>
    </section>
  );
}

type Act = { verb: "cancel" | "retry" | "run-now" | "decide"; body?: unknown };
const SAID = { cancel: "Cancelled.", retry: "It runs again.", "run-now": "It is ready.", decide: "Decided." };

function useAction(id: string) {
  const client = useQueryClient();
  return useMutation({
    mutationFn: ({ verb, body }: Act) => post<Moved>(`/v1/jobs/${id}/${verb}`, body ?? {}),
    onSuccess: (moved, { verb }) =>
      toast(verb === "cancel" && moved.status === "running" ? "Its worker was asked to stop it." : SAID[verb]),
    onError: toastError,
    onSettled: () => void client.invalidateQueries({ queryKey: keys.job(id) }),
  });
}

function Actions({ job, payload }: { job: Job; payload: string | null }) {
  const { operate } = useScopes();
  const act = useAction(job.id);
  const finished = ["completed", "failed", "cancelled"].includes(job.status);
  const waits = job.status === "scheduled" || (job.status === "held" && job.reason !== "needs decision");
  const copy = (form: Form) =>
    void copyText(copyAs(form, job, payload)).then(
      () => toast("Copied."),
      () => toast("The browser does not let this page copy.", { error: true }),
    );
  return (
    <div className="flex flex-wrap gap-2">
      {operate && waits && <Button onClick={() => act.mutate({ verb: "run-now" })}>Run now</Button>}
      {operate && finished && (
        <Button look="primary" onClick={() => act.mutate({ verb: "retry" })}>
          Retry
        </Button>
      )}
      {operate && !finished && (
        <Button look="danger" disabled={job.cancel_requested} onClick={() => act.mutate({ verb: "cancel" })}>
          {job.cancel_requested ? "Cancelling …" : "Cancel"}
        </Button>
      )}
      <Menu
        label="Copy as"
        trigger={<Button>Copy as …</Button>}
        items={[
          { label: "curl", onSelect: () => copy("curl") },
          { label: "Python", onSelect: () => copy("python") },
          { label: "CLI", onSelect: () => copy("cli") },
        ]}
      />
    </div>
  );
}

function Facts({ job }: { job: Job }) {
  const workers = useWorkers().data?.workers;
  const worker = workers?.find((one) => one.id === job.worker_id);
  const asked = plural(job.thread_demand, "thread");
  const facts: [string, React.ReactNode][] = [
    [
      "Queue",
      <Link key="q" to="/queues/$name" params={{ name: job.queue }} className="text-accent hover:underline">
        {job.queue}
      </Link>,
    ],
    ["Priority", job.priority],
    [
      "Threads",
      job.threads_granted && job.threads_granted !== job.thread_demand
        ? `${asked} asked, ${job.threads_granted} granted`
        : asked,
    ],
    ["Tries", `${job.attempts} started, ${job.failures} of ${job.max_attempts} failed`],
    ["Timeout", formatDuration(job.timeout_s)],
    ["Waited", formatDuration(job.queue_s)],
    ["Ran", formatDuration(job.execution_s)],
    ["In all", formatDuration(job.total_s)],
    ["Worker", job.worker_id ? <Text key="w">{worker?.name ?? job.worker_id}</Text> : "–"],
    ["Created", formatMoment(job.created_at)],
    ["Tags", job.tags.length ? <Tags key="t" tags={job.tags} /> : "–"],
    ["Key", job.idempotency_key ? <Text key="k">{job.idempotency_key}</Text> : "–"],
    ...(job.expires_at ? [["Removed", formatMoment(job.expires_at)] as [string, React.ReactNode]] : []),
  ];
  return (
    <Panel title="Facts">
      <dl className="grid grid-cols-[5.5rem_minmax(0,1fr)] gap-x-3 gap-y-1.5 px-4 py-3">
        {facts.map(([name, value]) => (
          <div key={name} className="contents">
            <dt className="text-muted">{name}</dt>
            <dd className="tabular [overflow-wrap:anywhere]">{value}</dd>
          </div>
        ))}
      </dl>
    </Panel>
  );
}

function Tags({ tags }: { tags: readonly string[] }) {
  return (
    <span className="flex flex-wrap gap-1">
      {tags.map((tag) => (
        <Link
          key={tag}
          to="/jobs"
          search={{ tag }}
          className="max-w-full truncate rounded-full bg-sunken px-2 text-xs hover:bg-hover"
        >
          <Text>{tag}</Text>
        </Link>
      ))}
    </span>
  );
}
