import { RANGES, type Range } from "@/api/series";
import { cx } from "@/ui/cx";

export function RangePicker({ range, onRange }: { range: Range; onRange: (range: Range) => void }) {
  return (
    <div role="radiogroup" aria-label="Time range" className="flex rounded-md border border-line bg-raised p-0.5">
      {RANGES.map((each) => (
        <label
          key={each.label}
          className={cx(
            "flex h-6.5 cursor-pointer items-center rounded px-2 text-xs has-focus-visible:outline-2 has-focus-visible:outline-accent",
            each.seconds === range.seconds ? "bg-accent-soft font-medium text-accent" : "text-muted hover:text-text",
          )}
        >
          <input
            type="radio"
            name="range"
            className="sr-only"
            checked={each.seconds === range.seconds}
            onChange={() => onRange(each)}
          />
          {each.label}
        </label>
      ))}
    </div>
  );
}
