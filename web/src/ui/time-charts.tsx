/** The four charts of a cluster or a queue: how much, how much goes wrong, how long it waits, how long it runs. */
import { lazy, Suspense, useMemo } from "react";
import type { Series } from "@/api/schema";
import { perSecond, ratesOf, timesOf } from "@/api/series";
import { formatDuration } from "@/lib/format";
import { Empty, Loading, Panel } from "@/ui/page";

// With its library it is a sixth of all the script: the page is there before it.
const Chart = lazy(() => import("@/ui/chart").then(({ Chart }) => ({ default: Chart })));

const rate = (value: number): string =>
  `${value >= 100 ? Math.round(value) : value >= 1 ? value.toFixed(1) : Number(value.toPrecision(2))}/s`;

interface Props {
  series: Series;
  onSpan: (after: string, before: string) => void;
}

/** Holds the place of the charts while they are read, so that what stands below does not jump. */
export function TimeCharts({ series, onSpan }: { series: Series | undefined; onSpan: Props["onSpan"] }) {
  return series ? <Charts series={series} onSpan={onSpan} /> : <div aria-busy="true" className="h-[540px]" />;
}

function Charts({ series, onSpan }: Props) {
  const times = useMemo(() => timesOf(series), [series]);
  const [group] = series.groups;
  const lines = useMemo(() => {
    if (!group) return null;
    return {
      throughput: [{ label: "Finished", colour: "accent", values: ratesOf(series, group), fill: true }],
      failures: [
        { label: "Failed for good", colour: "red", values: perSecond(series, group.failed), fill: true },
        { label: "Tried again", colour: "amber", values: perSecond(series, group.retried) },
      ],
      waiting: [
        { label: "p50", colour: "blue", values: group.queue_p50_s },
        { label: "p95", colour: "violet", values: group.queue_p95_s },
        { label: "p99", colour: "red", values: group.queue_p99_s },
      ],
      running: [
        { label: "p50", colour: "blue", values: group.execution_p50_s },
        { label: "p95", colour: "violet", values: group.execution_p95_s },
        { label: "p99", colour: "red", values: group.execution_p99_s },
      ],
    };
  }, [series, group]);
  const span = (from: number, to: number) =>
    onSpan(new Date(from * 1000).toISOString(), new Date((to + series.step_s) * 1000).toISOString());
  if (!lines) return <Empty title="Nothing has finished in this time." />;
  const charts = [
    { title: "Throughput", format: rate, lines: lines.throughput },
    { title: "Failures", format: rate, lines: lines.failures },
    { title: "Time until pickup", format: formatDuration, lines: lines.waiting },
    { title: "Run time", format: formatDuration, lines: lines.running },
  ];
  return (
    <div className="grid gap-4 lg:grid-cols-2">
      {charts.map(({ title, format, lines }) => (
        <Panel key={title} title={title} className="overflow-hidden">
          <div className="min-h-[226px] px-3 pt-2 pb-3">
            <Suspense fallback={<Loading label="Loading the chart" />}>
              <Chart label={title} times={times} lines={lines} format={format} onSpan={span} />
            </Suspense>
          </div>
        </Panel>
      ))}
    </div>
  );
}
