/** The seven states of a job: one word, one colour, one sign, so that no meaning hangs on colour alone. */
import type { Job } from "@/api/schema";
import { cx } from "@/ui/cx";

export type Status = Job["status"];

export const STATUSES: readonly Status[] = [
  "running",
  "ready",
  "scheduled",
  "held",
  "completed",
  "failed",
  "cancelled",
];

const LOOK: Record<Status, { sign: string; text: string; soft: string; dot: string; word: string }> = {
  running: { sign: "▶", text: "text-blue", soft: "bg-blue-soft", dot: "bg-blue", word: "Running" },
  ready: { sign: "●", text: "text-accent", soft: "bg-accent-soft", dot: "bg-accent", word: "Ready" },
  scheduled: { sign: "◷", text: "text-violet", soft: "bg-violet-soft", dot: "bg-violet", word: "Scheduled" },
  held: { sign: "‖", text: "text-amber", soft: "bg-amber-soft", dot: "bg-amber", word: "Held" },
  completed: { sign: "✓", text: "text-green", soft: "bg-green-soft", dot: "bg-green", word: "Completed" },
  failed: { sign: "✕", text: "text-red", soft: "bg-red-soft", dot: "bg-red", word: "Failed" },
  cancelled: { sign: "⊘", text: "text-muted", soft: "bg-sunken", dot: "bg-line-strong", word: "Cancelled" },
};

export const statusWord = (status: Status): string => LOOK[status].word;
export const statusText = (status: Status): string => LOOK[status].text;
export const statusDot = (status: Status): string => LOOK[status].dot;

export function StatusBadge({ status, className }: { status: Status; className?: string }) {
  const look = LOOK[status];
  return (
    <span
      className={cx(
        "inline-flex items-center gap-1.5 whitespace-nowrap rounded-full px-2 py-px text-xs font-medium",
        look.soft,
        look.text,
        className,
      )}
    >
      <span aria-hidden="true" className="w-3 text-center text-[10px] leading-none">
        {look.sign}
      </span>
      {look.word}
    </span>
  );
}
