/** The rows of a list, of which only those on the screen are drawn. Keyboard: arrows or j k, x selects, Enter opens. */
import { useNavigate } from "@tanstack/react-router";
import { useVirtualizer } from "@tanstack/react-virtual";
import { ArrowUp } from "lucide-react";
import { useCallback, useEffect, useRef, useState } from "react";
import type { JobFilter } from "@/lib/job-filter";
import { isFiltered } from "@/lib/job-filter";
import { useJobPages } from "@/screens/jobs/job-pages";
import { COLUMNS, JobRow } from "@/screens/jobs/job-row";
import { NOTHING, type Selection, toggle } from "@/screens/jobs/selection";
import { Button } from "@/ui/button";
import { cx } from "@/ui/cx";
import { Empty, Failure, Loading } from "@/ui/page";

const ROW_PX = 44;

interface Props {
  filter: JobFilter;
  selectable: boolean;
  selection: Selection;
  onSelection: (selection: Selection) => void;
}

export function JobList({ filter, selectable, selection, onSelection }: Props) {
  const paused = selection.ids.size > 0; // rows that move under a selection are how the wrong job gets cancelled
  const { pages, show, refresh } = useJobPages(filter, paused);
  const box = useRef<HTMLDivElement>(null);
  const [active, setActive] = useState(-1);
  const navigate = useNavigate();
  const virtual = useVirtualizer({
    count: pages.count,
    getScrollElement: () => box.current,
    estimateSize: () => ROW_PX,
    overscan: 12,
  });
  const rows = virtual.getVirtualItems();
  const first = rows[0]?.index ?? 0;
  const last = rows.at(-1)?.index ?? 0;
  const atTop = (virtual.scrollOffset ?? 0) < ROW_PX;
  useEffect(() => show(first, last, atTop), [show, first, last, atTop]);

  const idAt = useCallback((index: number) => pages.row(index)?.id, [pages]);
  const open = useCallback((id: string) => void navigate({ to: "/jobs/$id", params: { id } }), [navigate]);
  const select = useCallback(
    (index: number, reach: boolean) => {
      setActive(index);
      onSelection(toggle(selection, index, idAt, reach));
    },
    [selection, idAt, onSelection],
  );
  const move = (to: number) => {
    const next = Math.max(0, Math.min(pages.count - 1, to));
    setActive(next);
    virtual.scrollToIndex(next);
  };
  const screenful = Math.max(1, rows.length - 14);
  const act = (key: string, reach: boolean): boolean => {
    switch (key) {
      case "ArrowDown":
      case "j":
        move(active + 1);
        return true;
      case "ArrowUp":
      case "k":
        move(active - 1);
        return true;
      case "PageDown":
        move(active + screenful);
        return true;
      case "PageUp":
        move(active - screenful);
        return true;
      case "Home":
        move(0);
        return true;
      case "End":
        move(pages.count - 1);
        return true;
      case "x":
      case "X":
      case " ":
        if (selectable) select(active, reach);
        return true;
      case "Enter": {
        const id = idAt(active);
        if (id) open(id);
        return true;
      }
      case "Escape":
        onSelection(NOTHING);
        return true;
      default:
        return false;
    }
  };
  const onKey = (event: React.KeyboardEvent) => {
    if (event.ctrlKey || event.metaKey || event.altKey || !act(event.key, event.shiftKey)) return;
    event.preventDefault();
    event.stopPropagation();
  };

  if (pages.count === 0) {
    if (pages.error) return <Failure error={pages.error} retry={() => void refresh()} />;
    if (!pages.ended) return <Loading />;
    return isFiltered(filter) ? (
      <Empty title="No job matches.">Drop a filter, or look at another status.</Empty>
    ) : (
      <Empty title="There are no jobs yet.">Submit one with “New job”, or follow the overview.</Empty>
    );
  }
  return (
    <div className="relative">
      {pages.newer && !atTop && (
        <Button
          look="primary"
          className="absolute top-12 left-1/2 z-10 -translate-x-1/2 shadow-float"
          icon={<ArrowUp size={14} aria-hidden="true" />}
          onClick={() => {
            virtual.scrollToOffset(0);
            setActive(-1);
          }}
        >
          Newer jobs
        </Button>
      )}
      <div
        ref={box}
        role="grid"
        tabIndex={0}
        aria-label="Jobs"
        aria-rowcount={pages.ended ? pages.count + 1 : -1}
        aria-multiselectable={selectable}
        aria-activedescendant={active >= 0 && idAt(active) ? `job-row-${active}` : undefined}
        onKeyDown={onKey}
        className="h-[calc(100dvh-11.5rem)] min-h-72 overflow-y-auto overflow-x-hidden rounded-b-[10px] focus-visible:outline-offset-[-2px]"
      >
        <Heading />
        <div role="rowgroup" className="relative" style={{ height: virtual.getTotalSize() }}>
          {rows.map(({ index, start }) => {
            const job = pages.row(index);
            return (
              <div
                key={index}
                role="presentation"
                className="absolute inset-x-0"
                style={{ transform: `translateY(${start}px)` }}
              >
                {job ? (
                  <JobRow
                    job={job}
                    index={index}
                    selected={selection.ids.has(job.id)}
                    active={index === active}
                    selectable={selectable}
                    onSelect={select}
                    onOpen={open}
                  />
                ) : (
                  <div className="h-11 border-line border-b" />
                )}
              </div>
            );
          })}
        </div>
      </div>
    </div>
  );
}

const TITLES = ["", "Status", "Type and name", "Queue", "Tries", "Threads", "Ran for", "Created"];

function Heading() {
  return (
    <div
      role="row"
      aria-rowindex={1}
      className={cx(COLUMNS, "sticky top-0 z-[5] h-9 border-line border-b bg-raised text-muted text-xs")}
    >
      {TITLES.map((title, at) => (
        <div
          key={title || "select"}
          role="columnheader"
          className={cx(at > 3 && "text-right", at > 2 && "max-md:hidden")}
        >
          {title || <span className="sr-only">Select</span>}
        </div>
      ))}
    </div>
  );
}
