/** Copy a text. The clipboard API exists on https and localhost alone; elsewhere a hidden field serves. */
import { Check, Copy } from "lucide-react";
import { useState } from "react";
import { IconButton } from "@/ui/button";
import { toast } from "@/ui/toast";

export async function copyText(text: string): Promise<void> {
  if (navigator.clipboard) {
    await navigator.clipboard.writeText(text);
    return;
  }
  const field = document.createElement("textarea");
  field.value = text;
  document.body.append(field);
  field.select();
  document.execCommand("copy");
  field.remove();
}

export function CopyButton({ text, label }: { text: string; label: string }) {
  const [done, setDone] = useState(false);
  const copy = () =>
    copyText(text).then(
      () => {
        setDone(true);
        setTimeout(() => setDone(false), 1500);
      },
      () => toast("The browser does not let this page copy.", { error: true }),
    );
  return (
    <IconButton label={label} className="size-6" onClick={() => void copy()}>
      {done ? <Check size={13} aria-hidden="true" className="text-green" /> : <Copy size={13} aria-hidden="true" />}
    </IconButton>
  );
}
