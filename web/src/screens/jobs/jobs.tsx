/** All jobs: counts, filters, the list, and actions on a selection or on everything that matches. */
import { useSearch } from "@tanstack/react-router";
import { useEffect, useState } from "react";
import { useScopes } from "@/api/queries";
import type { BulkTarget, BulkVerb } from "@/lib/bulk";
import { plural } from "@/lib/format";
import { isFiltered, type JobFilter } from "@/lib/job-filter";
import { FilterBar } from "@/screens/jobs/filter-bar";
import { JobList } from "@/screens/jobs/job-list";
import { NOTHING, type Selection } from "@/screens/jobs/selection";
import { StatusTabs } from "@/screens/jobs/status-tabs";
import { BulkDialog } from "@/ui/bulk-dialog";
import { Button } from "@/ui/button";
import { Menu } from "@/ui/menu";
import { Page } from "@/ui/page";

export function Jobs() {
  const filter = useSearch({ from: "/jobs" });
  const name = JSON.stringify(filter);
  const [selection, setSelection] = useState<Selection>(NOTHING);
  const [bulk, setBulk] = useState<{ verb: BulkVerb; targets: readonly BulkTarget[] } | null>(null);
  const { operate } = useScopes();
  // biome-ignore lint/correctness/useExhaustiveDependencies: another view begins without a selection
  useEffect(() => setSelection(NOTHING), [name]);

  return (
    <Page
      title="Jobs"
      aside={
        operate &&
        isFiltered(filter) &&
        selection.ids.size === 0 && <MatchingActions filter={filter} onBulk={setBulk} />
      }
    >
      <div className="panel">
        <StatusTabs filter={filter} />
        {selection.ids.size > 0 ? (
          <SelectionBar selection={selection} onDrop={() => setSelection(NOTHING)} onBulk={setBulk} />
        ) : (
          <FilterBar filter={filter} />
        )}
        <JobList key={name} filter={filter} selectable={operate} selection={selection} onSelection={setSelection} />
      </div>
      <BulkDialog
        verb={bulk?.verb ?? null}
        targets={bulk?.targets ?? []}
        onClose={() => setBulk(null)}
        onDone={() => setSelection(NOTHING)}
      />
    </Page>
  );
}

type OnBulk = (bulk: { verb: BulkVerb; targets: readonly BulkTarget[] }) => void;

function SelectionBar({ selection, onDrop, onBulk }: { selection: Selection; onDrop: () => void; onBulk: OnBulk }) {
  const targets = [{ ids: [...selection.ids] }];
  return (
    <div className="flex min-h-12 flex-wrap items-center gap-2 bg-accent-soft px-3 py-2">
      <span className="font-medium" aria-live="polite">
        {plural(selection.ids.size, "job")} selected
      </span>
      <span className="text-muted text-xs">Updates pause meanwhile.</span>
      <span className="flex-1" />
      <Button onClick={() => onBulk({ verb: "retry", targets })}>Retry</Button>
      <Button onClick={() => onBulk({ verb: "run-now", targets })}>Run now</Button>
      <Button look="danger" onClick={() => onBulk({ verb: "cancel", targets })}>
        Cancel
      </Button>
      <Button look="danger" onClick={() => onBulk({ verb: "discard", targets })}>
        Discard
      </Button>
      <Button look="quiet" onClick={onDrop}>
        Drop the selection
      </Button>
    </div>
  );
}

function MatchingActions({ filter, onBulk }: { filter: JobFilter; onBulk: OnBulk }) {
  const targets = [{ filter: { ...filter } }];
  const item = (label: string, verb: BulkVerb, danger = false) => ({
    label,
    danger,
    onSelect: () => onBulk({ verb, targets }),
  });
  return (
    <Menu
      label="Actions on all that match"
      trigger={<Button>All that match …</Button>}
      items={[item("Retry …", "retry"), item("Run now …", "run-now"), item("Cancel …", "cancel", true)]}
    />
  );
}
