/** Jobs that failed for good, by what went wrong: look at one, then replay or discard one, a group or a selection. */

import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useEffect, useState } from "react";
import { get } from "@/api/client";
import { useScopes, useStats } from "@/api/queries";
import type { DeadLetterGroup, DeadLetterGroups, Job } from "@/api/schema";
import type { BulkTarget, BulkVerb } from "@/lib/bulk";
import { formatBytes, formatCount, formatRelative, plural } from "@/lib/format";
import { useNow } from "@/lib/now";
import { isolated, visible } from "@/lib/text";
import { BulkDialog } from "@/ui/bulk-dialog";
import { Button } from "@/ui/button";
import { Empty, Failure, Loading, Page } from "@/ui/page";
import { Text } from "@/ui/text";

const keyOf = (group: DeadLetterGroup) =>
  `${group.type}\u0000${group.error_type}\u0000${group.fingerprint ?? group.message}`;

const targetOf = (group: DeadLetterGroup): BulkTarget => ({
  filter: { type: group.type, status: ["failed"], ...(group.fingerprint ? { fingerprint: group.fingerprint } : {}) },
});

type Bulk = { verb: BulkVerb; targets: readonly BulkTarget[] };

export function DeadLetters() {
  const stats = useStats();
  const failed = stats.data?.statuses.failed;
  const query = useQuery({
    queryKey: ["dead-letters", "groups"],
    queryFn: () => get<DeadLetterGroups>("/v1/dead-letters/groups"),
    refetchInterval: 10_000, // what fails again after a replay may leave the number as it was
  });
  const { refetch } = query;
  // biome-ignore lint/correctness/useExhaustiveDependencies: the groups change when their number does
  useEffect(() => void refetch(), [failed, refetch]);
  const [chosen, setChosen] = useState<ReadonlySet<string>>(new Set());
  const [bulk, setBulk] = useState<Bulk | null>(null);
  const { operate } = useScopes();
  const groups = query.data?.groups ?? [];
  const selected = groups.filter((group) => chosen.has(keyOf(group)));

  if (query.isPending) return <Loading label="Loading the dead letters" />;
  if (query.isError && !query.data) return <Failure error={query.error} retry={() => void refetch()} />;
  const choose = (group: DeadLetterGroup) => {
    const next = new Set(chosen);
    if (!next.delete(keyOf(group))) next.add(keyOf(group));
    setChosen(next);
  };
  return (
    <Page title="Dead letters" aside={<Totals />}>
      {operate && selected.length > 0 && (
        <SelectionBar groups={selected} onBulk={setBulk} onDrop={() => setChosen(new Set())} />
      )}
      {groups.length === 0 ? (
        <div className="panel">
          <Empty title="No dead letters.">
            A job that has used up its tries waits here until someone looks. Nothing does at the moment.
          </Empty>
        </div>
      ) : (
        <ul className="flex flex-col gap-3">
          {groups.map((group) => (
            <Group
              key={keyOf(group)}
              group={group}
              operate={operate}
              chosen={chosen.has(keyOf(group))}
              onChoose={() => choose(group)}
              onBulk={(verb) => setBulk({ verb, targets: [targetOf(group)] })}
            />
          ))}
        </ul>
      )}
      {query.data && !query.data.complete && (
        <p className="text-muted">
          The newest {formatCount(query.data.jobs)} dead letters are grouped here. There are more.
        </p>
      )}
      <BulkDialog
        paced
        verb={bulk?.verb ?? null}
        targets={bulk?.targets ?? []}
        onClose={() => setBulk(null)}
        onDone={() => setChosen(new Set())}
      />
    </Page>
  );
}

function Totals() {
  const now = useNow();
  const totals = useStats().data?.dead_letters;
  if (!totals?.count) return null;
  return (
    <p className="text-muted">
      {plural(totals.count, "dead letter")}, the oldest {formatRelative(totals.oldest_at, now)}, about{" "}
      {formatBytes(totals.approximate_bytes)}
      {totals.retention_days ? `; kept for ${totals.retention_days} days` : ""}
    </p>
  );
}

function SelectionBar({
  groups,
  onBulk,
  onDrop,
}: {
  groups: readonly DeadLetterGroup[];
  onBulk: (bulk: Bulk) => void;
  onDrop: () => void;
}) {
  const count = groups.reduce((sum, group) => sum + group.count, 0);
  const act = (verb: BulkVerb) => onBulk({ verb, targets: groups.map(targetOf) });
  return (
    <div className="panel flex flex-wrap items-center gap-2 bg-accent-soft px-3 py-2">
      <span className="flex-1 font-medium" aria-live="polite">
        {plural(groups.length, "group")} with {plural(count, "job")} selected
      </span>
      <Button onClick={() => act("replay")}>Replay …</Button>
      <Button look="danger" onClick={() => act("discard")}>
        Discard …
      </Button>
      <Button look="quiet" onClick={onDrop}>
        Drop the selection
      </Button>
    </div>
  );
}

interface GroupProps {
  group: DeadLetterGroup;
  operate: boolean;
  chosen: boolean;
  onChoose: () => void;
  onBulk: (verb: BulkVerb) => void;
}

function Group({ group, operate, chosen, onChoose, onBulk }: GroupProps) {
  const now = useNow();
  return (
    <li className="panel min-w-0">
      <div className="flex flex-wrap items-start gap-x-4 gap-y-2 px-4 py-3">
        {operate && (
          <input
            type="checkbox"
            checked={chosen}
            onChange={onChoose}
            aria-label={`Select the group ${isolated(group.error_type)} of ${group.type}`}
            className="mt-1 size-4 accent-accent"
          />
        )}
        <div className="min-w-0 flex-1 basis-72">
          <p className="font-semibold">
            {group.type}{" "}
            <span className="font-normal text-red">
              <Text>{group.error_type.split(".").at(-1)}</Text>
            </span>
          </p>
          <p className="line-clamp-2 text-muted [overflow-wrap:anywhere]">
            <Text>{group.message}</Text>
          </p>
          <p className="mt-1 text-muted text-xs">
            first {formatRelative(group.first_at, now)}, last {formatRelative(group.last_at, now)}
          </p>
        </div>
        <p className="tabular text-right">
          <Link
            to="/jobs"
            search={{ status: ["failed"], type: group.type }}
            className="font-semibold text-lg text-red hover:underline"
          >
            {formatCount(group.count)}
          </Link>
          <span className="block text-muted text-xs">{group.count === 1 ? "job" : "jobs"}</span>
        </p>
        {operate && (
          <div className="flex gap-2">
            <Button onClick={() => onBulk("replay")}>Replay …</Button>
            <Button look="danger" onClick={() => onBulk("discard")}>
              Discard …
            </Button>
          </div>
        )}
      </div>
      <Sample group={group} />
    </li>
  );
}

/** One job of the group, read when somebody opens it. */
function Sample({ group }: { group: DeadLetterGroup }) {
  const [open, setOpen] = useState(false);
  const [id] = group.sample;
  const job = useQuery({
    queryKey: ["dead-letters", "sample", id],
    queryFn: () => get<Job>(`/v1/jobs/${id}`),
    enabled: open && !!id,
  }).data;
  return (
    <details className="border-line border-t" onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary className="px-4 py-2 text-muted hover:bg-hover">Newest of them</summary>
      <div className="px-4 pb-3">
        {job?.error?.traceback && (
          <pre
            tabIndex={0}
            dir="ltr"
            className="max-h-72 overflow-auto whitespace-pre-wrap break-words rounded-md border border-line bg-sunken px-3 py-2 font-mono text-xs"
          >
            {visible(job.error.traceback)}
          </pre>
        )}
        <p className="mt-2 flex flex-wrap gap-x-4">
          {group.sample.map((each) => (
            <Link
              key={each}
              to="/jobs/$id"
              params={{ id: each }}
              className="font-mono text-accent text-xs hover:underline"
            >
              {each}
            </Link>
          ))}
        </p>
      </div>
    </details>
  );
}
