/** A labelled field with its help and its error, tied together for those who do not see them. */

import { type ReactNode, useId } from "react";
import { Text } from "@/ui/text";

interface Props {
  label: string;
  required?: boolean;
  help?: string | undefined;
  error?: string | null | undefined;
  children: (props: {
    id: string;
    "aria-describedby": string | undefined;
    "aria-invalid": true | undefined;
  }) => ReactNode;
}

export function Field({ label, required = false, help, error, children }: Props) {
  const id = useId();
  const note = error || help ? `${id}-note` : undefined;
  return (
    <div className="flex min-w-0 flex-col gap-1">
      <label htmlFor={id} className="font-medium text-[13px]">
        {label}
        {required && <span className="text-red"> *</span>}
      </label>
      {children({ id, "aria-describedby": note, "aria-invalid": error ? true : undefined })}
      {note && (
        <p id={note} className={error ? "text-red text-xs" : "text-muted text-xs"}>
          <Text>{error ?? help}</Text>
        </p>
      )}
    </div>
  );
}

export const INPUT =
  "h-8 w-full min-w-0 rounded-md border border-line-strong bg-raised px-2.5 placeholder:text-muted aria-invalid:border-red";
