import type { ButtonHTMLAttributes, ReactNode } from "react";
import { cx } from "@/ui/cx";

type Look = "primary" | "plain" | "quiet" | "danger";

const LOOKS: Record<Look, string> = {
  primary: "bg-accent text-on-accent border-transparent hover:brightness-110",
  plain: "bg-raised text-text border-line hover:bg-hover hover:border-line-strong",
  quiet: "bg-transparent text-muted border-transparent hover:bg-hover hover:text-text",
  danger: "bg-raised text-red border-line hover:bg-red-soft hover:border-red",
};

interface Props extends ButtonHTMLAttributes<HTMLButtonElement> {
  look?: Look;
  busy?: boolean;
  icon?: ReactNode;
}

export function Button({ look = "plain", busy = false, icon, children, className, disabled, ...rest }: Props) {
  return (
    <button
      type="button"
      aria-busy={busy || undefined}
      disabled={disabled || busy}
      className={cx(
        "inline-flex h-8 shrink-0 items-center justify-center gap-1.5 whitespace-nowrap rounded-md border px-3 text-[13px] font-medium",
        "disabled:cursor-not-allowed disabled:opacity-55",
        LOOKS[look],
        className,
      )}
      {...rest}
    >
      {icon}
      {children}
    </button>
  );
}

/** A square button with an icon. The label is read aloud and shown as a tip. */
export function IconButton({ label, children, className, ...rest }: Props & { label: string }) {
  return (
    <button
      type="button"
      aria-label={label}
      title={label}
      className={cx(
        "inline-flex size-8 shrink-0 items-center justify-center rounded-md text-muted hover:bg-hover hover:text-text disabled:opacity-55",
        className,
      )}
      {...rest}
    >
      {children}
    </button>
  );
}
