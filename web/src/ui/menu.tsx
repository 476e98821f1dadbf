/** A menu behind a button. Not modal: a modal one would lock the page's scrolling with a style of its own. */
import { DropdownMenu } from "radix-ui";
import type { ReactNode } from "react";
import { cx } from "@/ui/cx";

export interface MenuItem {
  label: string;
  onSelect: () => void;
  danger?: boolean;
  disabled?: boolean;
  note?: string;
}

export function Menu({ trigger, items, label }: { trigger: ReactNode; items: readonly MenuItem[]; label: string }) {
  return (
    <DropdownMenu.Root modal={false}>
      <DropdownMenu.Trigger asChild>{trigger}</DropdownMenu.Trigger>
      <DropdownMenu.Portal>
        <DropdownMenu.Content
          aria-label={label}
          align="end"
          sideOffset={4}
          className="z-50 min-w-44 rounded-lg border border-line bg-raised p-1 shadow-float"
        >
          {items.map((item) => (
            <DropdownMenu.Item
              key={item.label}
              disabled={item.disabled ?? false}
              onSelect={item.onSelect}
              className={cx(
                "flex cursor-pointer items-baseline justify-between gap-4 rounded px-2.5 py-1.5 outline-none data-[highlighted]:bg-hover",
                "data-[disabled]:cursor-not-allowed data-[disabled]:opacity-50",
                item.danger && "text-red",
              )}
            >
              {item.label}
              {item.note && <span className="text-muted text-xs">{item.note}</span>}
            </DropdownMenu.Item>
          ))}
        </DropdownMenu.Content>
      </DropdownMenu.Portal>
    </DropdownMenu.Root>
  );
}
