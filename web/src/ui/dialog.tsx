/** A dialog in the middle, or a drawer from the right. Radix keeps the focus inside, closes on Escape and gives it back. */
import { X } from "lucide-react";
import { Dialog as Radix } from "radix-ui";
import type { ReactNode } from "react";
import { IconButton } from "@/ui/button";
import { cx } from "@/ui/cx";

interface Props {
  open: boolean;
  onClose: () => void;
  title: string;
  note?: ReactNode;
  children: ReactNode;
  footer?: ReactNode;
  drawer?: boolean;
}

export function Dialog({ open, onClose, title, note, children, footer, drawer = false }: Props) {
  return (
    <Radix.Root open={open} onOpenChange={(is) => !is && onClose()}>
      <Radix.Portal>
        <Radix.Overlay className="fixed inset-0 z-40 bg-black/40" />
        <Radix.Content
          {...(note ? {} : { "aria-describedby": undefined })}
          className={cx(
            "fixed z-50 flex flex-col border-line bg-raised shadow-float",
            drawer
              ? "inset-y-0 right-0 w-full max-w-xl border-l"
              : "left-1/2 top-[12vh] max-h-[76vh] w-[min(34rem,calc(100vw-1.5rem))] -translate-x-1/2 rounded-xl border",
          )}
        >
          <header className="flex items-start gap-3 border-line border-b px-5 py-3.5">
            <div className="min-w-0 flex-1">
              <Radix.Title className="font-semibold text-base">{title}</Radix.Title>
              {note && <Radix.Description className="mt-0.5 text-muted">{note}</Radix.Description>}
            </div>
            <Radix.Close asChild>
              <IconButton label="Close">
                <X size={16} aria-hidden="true" />
              </IconButton>
            </Radix.Close>
          </header>
          <div className="min-h-0 flex-1 overflow-y-auto px-5 py-4">{children}</div>
          {footer && (
            <footer className="flex flex-wrap justify-end gap-2 border-line border-t px-5 py-3">{footer}</footer>
          )}
        </Radix.Content>
      </Radix.Portal>
    </Radix.Root>
  );
}
