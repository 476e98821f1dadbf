/**
 * Filters as chips. Type a text to search in names, ids and errors; `queue:mail` and the like make a chip of their own, with
 * completions for what is known.
 */

import { useNavigate } from "@tanstack/react-router";
import { Search, X } from "lucide-react";
import { useId, useMemo, useState } from "react";
import { useQueues, useTypes, useWorkers } from "@/api/queries";
import { formatMoment } from "@/lib/format";
import { FIELD_WORDS, type JobFilter, TEXT_FIELDS } from "@/lib/job-filter";
import { isolated } from "@/lib/text";
import { cx } from "@/ui/cx";
import { STATUSES } from "@/ui/status";
import { Text } from "@/ui/text";

const TYPED = ["status", "type", "queue", "tag", "worker", "reason"] as const;
const SUGGESTED_MAX = 8;

export function FilterBar({ filter }: { filter: JobFilter }) {
  const navigate = useNavigate();
  const set = (next: JobFilter) => void navigate({ to: "/jobs", search: next });
  const drop = (field: keyof JobFilter) => {
    const { [field]: _, ...rest } = filter;
    set(rest);
  };
  const chips = [
    ...(filter.status && filter.status.length > 1 ? [["status", filter.status.join(", ")] as const] : []),
    ...TEXT_FIELDS.flatMap((field) => (filter[field] ? [[field, filter[field] as string] as const] : [])),
  ];
  return (
    <div className="flex flex-wrap items-center gap-2 px-3 py-2">
      <FilterInput filter={filter} onFilter={set} />
      {chips.map(([field, value]) => (
        <span
          key={field}
          className="inline-flex h-7 max-w-80 items-center gap-1 rounded-full border border-line bg-sunken pr-1 pl-3 text-xs"
        >
          <span className="shrink-0 text-muted">{FIELD_WORDS[field]}</span>
          <span className="truncate font-medium">
            <Text>{shownValue(field, value)}</Text>
          </span>
          <button
            type="button"
            aria-label={`Drop the filter ${FIELD_WORDS[field]} ${isolated(value)}`}
            onClick={() => drop(field)}
            className="rounded-full p-1 text-muted hover:bg-hover hover:text-text"
          >
            <X size={12} aria-hidden="true" />
          </button>
        </span>
      ))}
      {chips.length > 1 && (
        <button type="button" onClick={() => set({})} className="text-accent text-xs hover:underline">
          Drop all
        </button>
      )}
    </div>
  );
}

/** A moment stands in the address as RFC 3339, and in its chip as people read it. */
const shownValue = (field: string, value: string): string =>
  /_(after|before)$/.test(field) && !Number.isNaN(Date.parse(value)) ? formatMoment(value) : value;

function FilterInput({ filter, onFilter }: { filter: JobFilter; onFilter: (filter: JobFilter) => void }) {
  const [text, setText] = useState("");
  const [at, setAt] = useState(0);
  const [open, setOpen] = useState(false);
  const list = useId();
  const suggestions = useSuggestions(text);
  const shown = open && suggestions.length > 0;
  const take = (typed: string) => {
    const next = withTyped(filter, typed);
    if (!next) {
      setText(typed); // `queue:` waits for its value
      return;
    }
    onFilter(next);
    setText("");
    setAt(0);
  };
  const onKey = (event: React.KeyboardEvent) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step && shown) {
      event.preventDefault();
      setAt((now) => (now + step + suggestions.length + 1) % (suggestions.length + 1));
    } else if (event.key === "Enter" && text.trim()) take(shown && at > 0 ? (suggestions[at - 1] as string) : text);
    else if (event.key === "Tab" && shown && suggestions[Math.max(0, at - 1)] && text) {
      event.preventDefault();
      take(suggestions[Math.max(0, at - 1)] as string);
    } else if (event.key === "Escape") setOpen(false);
  };
  return (
    <div className="relative min-w-56 flex-1 basis-64">
      <Search size={14} aria-hidden="true" className="absolute top-2.5 left-2.5 text-muted" />
      <input
        role="combobox"
        aria-label="Filter jobs"
        aria-expanded={shown}
        aria-controls={list}
        aria-activedescendant={shown && at > 0 ? `${list}-${at - 1}` : undefined}
        placeholder="Search name, id or error, or type queue: type: tag: worker:"
        value={text}
        onChange={(event) => {
          setText(event.target.value);
          setAt(0);
          setOpen(true);
        }}
        onFocus={() => setOpen(true)}
        onBlur={() => setOpen(false)}
        onKeyDown={onKey}
        className="h-8 w-full rounded-md border border-line-strong bg-raised pr-3 pl-8 placeholder:text-muted"
      />
      {shown && (
        <div
          role="listbox"
          id={list}
          aria-label="Filters"
          className="absolute top-9 left-0 z-20 w-full max-w-md rounded-lg border border-line bg-raised p-1 shadow-float"
        >
          {suggestions.map((suggestion, n) => (
            <div
              key={suggestion}
              id={`${list}-${n}`}
              role="option"
              tabIndex={-1}
              aria-selected={n + 1 === at}
              onPointerDown={(event) => {
                event.preventDefault();
                take(suggestion);
              }}
              className={cx("cursor-pointer truncate rounded px-2.5 py-1.5", n + 1 === at && "bg-accent-soft")}
            >
              <Text>{suggestion}</Text>
            </div>
          ))}
        </div>
      )}
    </div>
  );
}

/** What typing this makes of the filter; null while it is not whole. */
export function withTyped(filter: JobFilter, typed: string): JobFilter | null {
  const text = typed.trim();
  const field = TYPED.find((one) => text.startsWith(`${one}:`));
  if (!field) return text ? { ...filter, text } : null;
  const value = text.slice(field.length + 1).trim();
  if (!value) return null;
  if (field !== "status") return { ...filter, [field]: value };
  const status = STATUSES.find((one) => one.startsWith(value.toLowerCase()));
  return status ? { ...filter, status: [...new Set([...(filter.status ?? []), status])] } : null;
}

function useSuggestions(text: string): string[] {
  const queues = useQueues().data?.queues;
  const types = useTypes().data?.types;
  const workers = useWorkers().data?.workers;
  return useMemo(() => {
    const [field, ...value] = text.trimStart().split(":");
    if (value.length === 0) return TYPED.map((one) => `${one}:`).filter((one) => text && one.startsWith(text.trim()));
    const known: Record<string, readonly string[]> = {
      status: STATUSES,
      queue: queues?.map((queue) => queue.name) ?? [],
      type: types?.map((type) => type.name) ?? [],
      worker: workers?.map((worker) => worker.name) ?? [],
      reason: ["needs decision", "queue paused", "unknown type"],
    };
    const wanted = value.join(":").trim().toLowerCase();
    const found = (known[field ?? ""] ?? []).filter((one) => one.toLowerCase().includes(wanted));
    return found.slice(0, SUGGESTED_MAX).map((one) => `${field}:${one}`);
  }, [text, queues, types, workers]);
}
