/** Short messages about what was done. Read aloud politely; errors stay until they are closed. */

import { X } from "lucide-react";
import { useSyncExternalStore } from "react";
import { ApiError } from "@/api/client";
import { isolated } from "@/lib/text";
import { IconButton } from "@/ui/button";
import { cx } from "@/ui/cx";

interface Toast {
  id: number;
  text: string;
  error: boolean;
}

const SHOWN_MS = 5_000;
let toasts: readonly Toast[] = [];
let last = 0;
const listeners = new Set<() => void>();

function change(next: readonly Toast[]): void {
  toasts = next;
  for (const listener of listeners) listener();
}

const close = (id: number) => change(toasts.filter((toast) => toast.id !== id));

/** The text is shown as it is: names of others in it are `isolated`. */
export function toast(text: string, { error = false } = {}): void {
  const id = ++last;
  change([...toasts.slice(-3), { id, text, error }]);
  if (!error) setTimeout(() => close(id), SHOWN_MS);
}

export function toastError(error: unknown): void {
  if (error instanceof ApiError && error.status === 401) return; // the login page follows
  toast(isolated(error instanceof Error ? error.message : String(error)), { error: true });
}

export function Toasts() {
  const shown = useSyncExternalStore(
    (listener) => {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    () => toasts,
  );
  return (
    <div
      aria-live="polite"
      className="pointer-events-none fixed right-4 bottom-4 z-[60] flex w-80 max-w-[calc(100vw-2rem)] flex-col gap-2"
    >
      {shown.map(({ id, text, error }) => (
        <div
          key={id}
          role={error ? "alert" : "status"}
          className={cx(
            "pointer-events-auto flex items-start gap-2 rounded-lg border bg-raised py-2 pr-1.5 pl-3 shadow-float",
            error ? "border-red text-red" : "border-line",
          )}
        >
          <span className="min-w-0 flex-1 break-words py-1">{text}</span>
          <IconButton label="Close this message" onClick={() => close(id)}>
            <X size={14} aria-hidden="true" />
          </IconButton>
        </div>
      ))}
    </div>
  );
}
