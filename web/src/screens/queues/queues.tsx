/** All queues: what waits in each, for how long, how fast it moves, and a switch. */

import { Link } from "@tanstack/react-router";
import { useMemo, useState } from "react";
import { useQueues } from "@/api/queries";
import type { Queue } from "@/api/schema";
import { ratesOf, useSeries } from "@/api/series";
import { formatCount, formatDuration } from "@/lib/format";
import { PauseButton } from "@/screens/queues/pause-button";
import { cx } from "@/ui/cx";
import { INPUT } from "@/ui/field";
import { Empty, Failure, Loading, Page } from "@/ui/page";
import { Sparkline } from "@/ui/sparkline";

const SPARK_S = 1_800;
const SHOWN_MAX = 200;

export function Queues() {
  const query = useQueues();
  const [text, setText] = useState("");
  const rates = useRates();
  if (query.isPending) return <Loading label="Loading the queues" />;
  if (query.isError && !query.data) return <Failure error={query.error} retry={() => void query.refetch()} />;
  const all = query.data.queues.filter((queue) => queue.name.toLowerCase().includes(text.toLowerCase()));
  return (
    <Page
      title="Queues"
      aside={
        <input
          type="search"
          aria-label="Find a queue"
          placeholder="Find a queue"
          value={text}
          onChange={(event) => setText(event.target.value)}
          className={`${INPUT} max-w-56`}
        />
      }
    >
      <div className="panel relative overflow-x-auto">
        {all.length === 0 ? (
          <Empty title={text ? "No queue has that name." : "There are no queues yet."}>
            {!text && "A queue is there as soon as a job is submitted to it."}
          </Empty>
        ) : (
          <table className="w-full md:min-w-[44rem]">
            <thead className="text-muted text-xs">
              <tr className="border-line border-b">
                <Head>Queue</Head>
                <Head right>Waiting</Head>
                <Head right>Running</Head>
                <Head right wide>
                  Oldest waits
                </Head>
                <Head right wide>
                  Workers
                </Head>
                <Head right wide>
                  Per second
                </Head>
                <Head wide>Last half hour</Head>
                <Head>
                  <span className="sr-only">Actions</span>
                </Head>
              </tr>
            </thead>
            <tbody>
              {all.slice(0, SHOWN_MAX).map((queue) => (
                <Row key={queue.name} queue={queue} rates={rates.get(queue.name)} />
              ))}
            </tbody>
          </table>
        )}
      </div>
      {(all.length > SHOWN_MAX || query.data.next_cursor) && (
        <p className="text-muted">
          The first {formatCount(Math.min(all.length, SHOWN_MAX))} are shown. Type a part of a name to find others.
        </p>
      )}
    </Page>
  );
}

function useRates(): Map<string, readonly number[]> {
  const series = useSeries(SPARK_S, { by: "queue" }).data;
  return useMemo(
    () => new Map(series?.groups.map((group) => [group.queue ?? "", ratesOf(series, group)] as const) ?? []),
    [series],
  );
}

interface HeadProps {
  children: React.ReactNode;
  right?: boolean;
  /** Left out on a phone. */
  wide?: boolean;
}

function Head({ children, right = false, wide = false }: HeadProps) {
  return (
    <th className={cx("px-2 py-2 font-normal sm:px-4", right ? "text-right" : "text-left", wide && "max-md:hidden")}>
      {children}
    </th>
  );
}

function Row({ queue, rates = [] }: { queue: Queue; rates: readonly number[] | undefined }) {
  const now = rates.at(-2) ?? rates.at(-1) ?? 0; // the last minute is not over
  return (
    <tr className="border-line border-b last:border-b-0 hover:bg-hover">
      <td className="max-w-80 px-2 py-2 max-md:max-w-36 sm:px-4">
        <Link
          to="/queues/$name"
          params={{ name: queue.name }}
          className="block truncate font-medium text-accent hover:underline"
        >
          {queue.name}
        </Link>
        <span className="flex flex-wrap gap-1">
          {queue.paused && <span className="rounded-full bg-amber-soft px-2 text-amber text-xs">paused</span>}
          {!queue.served_by && queue.depth > 0 && (
            <span className="whitespace-nowrap rounded-full bg-red-soft px-2 text-red text-xs">
              no worker serves it
            </span>
          )}
        </span>
      </td>
      <td className="tabular px-2 text-right sm:px-4">{formatCount(queue.depth)}</td>
      <td className="tabular px-2 text-right sm:px-4">{formatCount(queue.statuses.running ?? 0)}</td>
      <td className="tabular px-4 text-right max-md:hidden">{formatDuration(queue.oldest_age_s)}</td>
      <td className="tabular px-4 text-right max-md:hidden">{formatCount(queue.served_by ?? 0)}</td>
      <td className="tabular px-4 text-right max-md:hidden">
        {now < 10 ? now.toFixed(1) : formatCount(Math.round(now))}
      </td>
      <td className="px-4 text-accent max-md:hidden">
        <Sparkline values={rates} label={`Jobs a second in ${queue.name} over the last half hour`} />
      </td>
      <td className="px-2 text-right sm:px-4">
        <PauseButton queue={queue} />
      </td>
    </tr>
  );
}
