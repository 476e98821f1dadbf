/**
 * A chart over time. Drag over it to choose a span. Drawn by uPlot on a canvas; what it shows is also said in words, for
 * those who do not see it.
 */

import { useEffect, useRef } from "react";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { useShade } from "@/app/theme";

export interface Line {
  label: string;
  /** A name of the palette: --green, say. */
  colour: string;
  values: readonly (number | null)[];
  fill?: boolean;
}

interface Props {
  label: string;
  times: readonly number[];
  lines: readonly Line[];
  format: (value: number) => string;
  height?: number;
  onSpan?: (fromS: number, toS: number) => void;
}

const colourOf = (name: string) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

export function Chart({ label, times, lines, format, height = 180, onSpan }: Props) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const span = useRef(onSpan);
  span.current = onSpan;
  const shade = useShade();
  const shape = `${shade}/${height}/${lines.map((line) => `${line.label}:${line.colour}:${line.fill}`).join()}`;

  // biome-ignore lint/correctness/useExhaustiveDependencies: made anew when its shape changes; the data follow below
  useEffect(() => {
    const element = box.current;
    if (!element) return;
    const axis = {
      stroke: colourOf("muted"),
      grid: { stroke: colourOf("line"), width: 1 },
      ticks: { show: false },
      font: "11px system-ui",
    };
    const made = new uPlot(
      {
        width: element.clientWidth,
        height,
        padding: [8, 26, 0, 0], // the last time under the axis is whole
        legend: { live: true },
        cursor: { drag: { x: true, y: false, setScale: false }, points: { size: 6 } },
        scales: { y: { range: (_, low, high) => [Math.min(0, low ?? 0), Math.max(high ?? 0, 1e-9) * 1.08] } },
        axes: [
          { ...axis, size: 30, values: (_, ticks) => timesAt(ticks) },
          { ...axis, size: 58, values: (_, ticks) => ticks.map((tick) => format(tick)) },
        ],
        series: [
          { label: "At", value: (self, at) => momentOf(at ?? self.data[0].at(-1)) },
          ...lines.map((line) => ({
            label: line.label,
            stroke: colourOf(line.colour),
            width: 1.5,
            ...(line.fill ? { fill: colourOf(`${line.colour}-soft`) } : {}),
            points: { show: false },
            spanGaps: true,
            // Where nobody points, the newest.
            value: (self: uPlot, value: number | null, n: number, at: number | null) => {
              const shown = at === null ? self.data[n]?.at(-1) : value;
              return shown === null || shown === undefined ? "–" : format(shown);
            },
          })),
        ],
        hooks: {
          setSelect: [
            (self) => {
              if (self.select.width < 4) return;
              span.current?.(
                self.posToVal(self.select.left, "x"),
                self.posToVal(self.select.left + self.select.width, "x"),
              );
              self.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
            },
          ],
        },
      },
      dataOf(times, lines),
      element,
    );
    plot.current = made;
    element.dataset.shade = shade;
    const resized = new ResizeObserver(() => made.setSize({ width: element.clientWidth, height }));
    resized.observe(element);
    return () => {
      resized.disconnect();
      made.destroy();
      plot.current = null;
    };
  }, [shape]);

  useEffect(() => plot.current?.setData(dataOf(times, lines)), [times, lines]);

  const last = lines.map((line) => `${line.label} ${format(line.values.at(-1) ?? 0)}`).join(", ");
  return (
    <figure aria-label={`${label}. Now: ${last}.`}>
      <div ref={box} aria-hidden="true" className="chart" />
    </figure>
  );
}

const HOUR_MINUTE = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });
const DAY_MONTH = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short" });
const DAY_S = 86_400;

function momentOf(at: number | undefined): string {
  if (at === undefined) return "–";
  const moment = new Date(at * 1000);
  return `${DAY_MONTH.format(moment)}, ${HOUR_MINUTE.format(moment)}`;
}

/** The times under the axis: the hour of a day, or the day where they are days apart or one begins. */
export function timesAt(ticks: readonly number[]): string[] {
  const apart = (ticks[1] ?? 0) - (ticks[0] ?? 0);
  return ticks.map((tick) => {
    const at = new Date(tick * 1000);
    const text = HOUR_MINUTE.format(at);
    return apart >= DAY_S || text === "00:00" ? DAY_MONTH.format(at) : text;
  });
}

const dataOf = (times: readonly number[], lines: readonly Line[]): uPlot.AlignedData =>
  [times as number[], ...lines.map((line) => line.values as (number | null)[])] as uPlot.AlignedData;
