/** The frame of a screen, and what it shows while it waits, when it fails and when there is nothing. */

import { type ReactNode, useEffect } from "react";
import { ApiError } from "@/api/client";
import { Button } from "@/ui/button";
import { Text } from "@/ui/text";

/** The title is shown as it is: names of others in it are `isolated`. */
export function Page({ title, aside, children }: { title: string; aside?: ReactNode; children: ReactNode }) {
  useEffect(() => {
    document.title = `${title} · Windlass`;
  }, [title]);
  return (
    <div className="mx-auto flex w-full max-w-[1600px] flex-col gap-4 px-4 py-4 sm:px-6">
      <header className="flex min-h-8 flex-wrap items-center gap-x-4 gap-y-2">
        {/* As wide as its words where there is room; else it takes a line of its own. */}
        <h1 className="line-clamp-3 min-w-0 flex-auto font-semibold text-xl [overflow-wrap:anywhere]">{title}</h1>
        {aside}
      </header>
      {children}
    </div>
  );
}

export function Panel({
  title,
  aside,
  children,
  className = "",
}: {
  title?: ReactNode;
  aside?: ReactNode;
  children: ReactNode;
  className?: string;
}) {
  return (
    <section className={`panel min-w-0 ${className}`}>
      {title && (
        <header className="flex items-center gap-3 border-line border-b px-4 py-2.5">
          <h2 className="min-w-0 flex-1 font-semibold">{title}</h2>
          {aside}
        </header>
      )}
      {children}
    </section>
  );
}

export function Empty({ title, children }: { title: string; children?: ReactNode }) {
  return (
    <div className="flex flex-col items-center gap-2 px-6 py-10 text-center">
      <p className="font-medium">{title}</p>
      {children && <div className="max-w-prose text-muted">{children}</div>}
    </div>
  );
}

export function Failure({ error, retry }: { error: unknown; retry?: () => void }) {
  const known = error instanceof ApiError;
  return (
    <div role="alert" className="flex flex-col items-center gap-3 px-6 py-10 text-center">
      <p className="font-medium text-red">
        <Text>{known ? error.message : "The server does not answer."}</Text>
      </p>
      {!known && <p className="text-muted">It may be restarting. This page tries again by itself.</p>}
      {retry && <Button onClick={retry}>Try again</Button>}
    </div>
  );
}

export function Loading({ label = "Loading" }: { label?: string }) {
  return (
    <output className="block px-6 py-10 text-center text-muted" aria-live="polite">
      {label} …
    </output>
  );
}
