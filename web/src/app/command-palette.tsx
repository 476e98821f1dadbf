/** Ctrl K: go to a screen, a queue or a job by the beginning of its id, search jobs by text, or do something. */

import { useQuery } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { Dialog as Radix } from "radix-ui";
import { useDeferredValue, useMemo, useState } from "react";
import { get } from "@/api/client";
import { useQueues, useScopes } from "@/api/queries";
import type { Jobs } from "@/api/schema";
import { setTheme } from "@/app/theme";
import { cx } from "@/ui/cx";
import { Text } from "@/ui/text";

interface Command {
  id: string;
  label: string;
  note?: string;
  run: () => void;
}

const ID = /^[0-9a-f]{8}[0-9a-f-]*$/i;
const WHOLE_ID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;
const SHOWN_MAX = 12;

interface Props {
  open: boolean;
  onClose: () => void;
  onNewJob: () => void;
}

export function CommandPalette({ open, onClose, onNewJob }: Props) {
  return (
    <Radix.Root open={open} onOpenChange={(is) => !is && onClose()}>
      <Radix.Portal>
        <Radix.Overlay className="fixed inset-0 z-40 bg-black/40" />
        <Radix.Content
          aria-describedby={undefined}
          className="fixed top-[14vh] left-1/2 z-50 w-[min(36rem,calc(100vw-1.5rem))] -translate-x-1/2 overflow-hidden rounded-xl border border-line bg-raised shadow-float"
        >
          <Radix.Title className="sr-only">Search and commands</Radix.Title>
          <Palette onClose={onClose} onNewJob={onNewJob} />
        </Radix.Content>
      </Radix.Portal>
    </Radix.Root>
  );
}

function Palette({ onClose, onNewJob }: Omit<Props, "open">) {
  const [text, setText] = useState("");
  const [at, setAt] = useState(0);
  const commands = useCommands(useDeferredValue(text.trim()), onNewJob);
  const chosen = commands[Math.min(at, commands.length - 1)];
  const run = (command: Command | undefined) => {
    if (!command) return;
    onClose();
    command.run();
  };
  const onKey = (event: React.KeyboardEvent) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) {
      event.preventDefault();
      setAt((now) => (Math.min(now, commands.length - 1) + step + commands.length) % Math.max(1, commands.length));
    } else if (event.key === "Enter") run(chosen);
  };
  return (
    <>
      <input
        // biome-ignore lint/a11y/noAutofocus: a dialog that was opened to type in
        autoFocus
        role="combobox"
        aria-expanded="true"
        aria-controls="palette-list"
        aria-activedescendant={chosen ? `palette-${chosen.id}` : undefined}
        aria-label="Search jobs, queues and commands"
        placeholder="A job id, a queue, a text, or what to do"
        value={text}
        onChange={(event) => {
          setText(event.target.value);
          setAt(0);
        }}
        onKeyDown={onKey}
        className="h-12 w-full border-line border-b bg-transparent px-4 text-base outline-none"
      />
      <div role="listbox" id="palette-list" aria-label="Commands" className="max-h-[50vh] overflow-y-auto p-1.5">
        {commands.map((command) => (
          <div
            key={command.id}
            id={`palette-${command.id}`}
            role="option"
            tabIndex={-1}
            aria-selected={command === chosen}
            onClick={() => run(command)}
            onPointerMove={() => setAt(commands.indexOf(command))}
            className={cx(
              "flex cursor-pointer items-baseline gap-3 rounded-md px-3 py-2",
              command === chosen && "bg-accent-soft",
            )}
          >
            <span className="min-w-0 flex-1 truncate">
              <Text>{command.label}</Text>
            </span>
            {command.note && <span className="shrink-0 text-muted text-xs">{command.note}</span>}
          </div>
        ))}
      </div>
    </>
  );
}

function useCommands(text: string, onNewJob: () => void): Command[] {
  const navigate = useNavigate();
  const { submit } = useScopes();
  const queues = useQueues().data?.queues;
  const found = useQuery({
    queryKey: ["palette", text],
    queryFn: ({ signal }) => get<Jobs>("/v1/jobs", { text, limit: 5 }, signal),
    enabled: ID.test(text) && !WHOLE_ID.test(text),
    staleTime: 5_000,
  }).data?.jobs;

  return useMemo(() => {
    const places: Command[] = [
      { id: "overview", label: "Overview", note: "g o", run: () => void navigate({ to: "/" }) },
      { id: "jobs", label: "Jobs", note: "g j", run: () => void navigate({ to: "/jobs" }) },
      { id: "queues", label: "Queues", note: "g q", run: () => void navigate({ to: "/queues" }) },
      { id: "workers", label: "Workers", note: "g w", run: () => void navigate({ to: "/workers" }) },
      { id: "dead", label: "Dead letters", note: "g d", run: () => void navigate({ to: "/dead-letters" }) },
      { id: "settings", label: "Settings", note: "g s", run: () => void navigate({ to: "/settings" }) },
      ...(submit ? [{ id: "new", label: "New job", note: "n", run: onNewJob }] : []),
      { id: "light", label: "Light colours", run: () => setTheme("light") },
      { id: "dark", label: "Dark colours", run: () => setTheme("dark") },
      { id: "system", label: "Colours of the system", run: () => setTheme("system") },
    ];
    const wanted = text.toLowerCase();
    const matching = places.filter((command) => command.label.toLowerCase().includes(wanted));
    if (!text) return matching;
    const go = (id: string) => void navigate({ to: "/jobs/$id", params: { id } });
    if (WHOLE_ID.test(text)) return [{ id: "go", label: `Job ${text}`, run: () => go(wanted) }];
    const jobs = (found ?? []).map((job) => ({
      id: `job-${job.id}`,
      label: `${job.type} ${job.id}`,
      note: job.status,
      run: () => go(job.id),
    }));
    const named = (queues ?? [])
      .filter((queue) => queue.name.toLowerCase().includes(wanted))
      .slice(0, 5)
      .map((queue) => ({
        id: `queue-${queue.name}`,
        label: `Queue ${queue.name}`,
        note: `${queue.depth} waiting`,
        run: () => void navigate({ to: "/queues/$name", params: { name: queue.name } }),
      }));
    const search = {
      id: "search",
      label: `Jobs with “${text}” in name, id or error`,
      run: () => void navigate({ to: "/jobs", search: { text } }),
    };
    return [...jobs, ...matching, ...named, search].slice(0, SHOWN_MAX);
  }, [text, found, queues, submit, navigate, onNewJob]);
}
