/**
 * A list of any length, of which a few pages are in memory.
 *
 * Pages follow each other by cursors, which are the ids of jobs: a page that was dropped is read again from the same place,
 * and jobs that arrive meanwhile move nothing. While the list stands at its top it follows the newest jobs; once it is
 * scrolled it is anchored to the first job that it showed, and says how many newer ones there are by "newer".
 */
import { useQueryClient } from "@tanstack/react-query";
import { useCallback, useEffect, useMemo, useReducer, useRef } from "react";
import { get } from "@/api/client";
import { keys } from "@/api/queries";
import type { Job, Jobs } from "@/api/schema";
import { filterQuery, type JobFilter } from "@/lib/job-filter";

export const PAGE = 100;
const KEPT_PAGES = 40;

interface PageState {
  jobs: Job[];
  cursor: string | null;
  usedAt: number;
}

/** The id right above this one: as a cursor it includes the job itself. */
export function cursorIncluding(id: string): string {
  const next = (BigInt(`0x${id.replaceAll("-", "")}`) + 1n).toString(16).padStart(32, "0");
  return [next.slice(0, 8), next.slice(8, 12), next.slice(12, 16), next.slice(16, 20), next.slice(20)].join("-");
}

type Fetch = (cursor: string | null, signal?: AbortSignal) => Promise<Jobs>;

/** The pages of one filter. No React in here, so that it can be tested by itself. */
export class JobPages {
  readonly #fetch: Fetch;
  readonly #changed: () => void;
  #cursors: (string | null)[] = [null];
  #pages = new Map<number, PageState>();
  #loading = new Map<number, Promise<void>>();
  #counts: number[] = [];
  #uses = 0;
  ended = false;
  error: unknown = null;
  newer = false;

  constructor(fetch: Fetch, changed: () => void) {
    this.#fetch = fetch;
    this.#changed = changed;
  }

  /** How many rows are known to exist so far. */
  get count(): number {
    return this.#counts.reduce((sum, n) => sum + n, 0);
  }

  get isLoading(): boolean {
    return this.#loading.size > 0;
  }

  row(index: number): Job | undefined {
    const [page, at] = this.#place(index);
    return this.#pages.get(page)?.jobs[at];
  }

  /** See to it that these rows are there, and those right behind them. */
  want(first: number, last: number): void {
    const from = this.#place(first)[0];
    const to = this.#place(Math.max(first, last))[0];
    for (let page = from; page <= to; page++) {
      const kept = this.#pages.get(page);
      if (kept) kept.usedAt = ++this.#uses;
      else void this.load(page);
    }
    if (!this.ended && last >= this.count - PAGE / 2) void this.load(this.#counts.length);
  }

  load(page: number): Promise<void> {
    const cursor = this.#cursors[page];
    const known = this.#loading.get(page);
    if (known || cursor === undefined) return known ?? Promise.resolve();
    const loading = this.#fetch(cursor)
      .then(
        (found) => this.#store(page, found),
        (error: unknown) => {
          this.error = error;
        },
      )
      .finally(() => {
        this.#loading.delete(page);
        this.#changed();
      });
    this.#loading.set(page, loading);
    this.#changed();
    return loading;
  }

  #store(page: number, found: Jobs): void {
    this.error = null;
    this.#pages.set(page, { jobs: found.jobs, cursor: this.#cursors[page] ?? null, usedAt: ++this.#uses });
    this.#counts[page] = found.jobs.length;
    if (page + 1 >= this.#cursors.length) {
      if (found.next_cursor) this.#cursors.push(found.next_cursor);
      else this.ended = true;
    }
    if (this.#pages.size > KEPT_PAGES) {
      const oldest = [...this.#pages].sort((a, b) => a[1].usedAt - b[1].usedAt)[0];
      if (oldest) this.#pages.delete(oldest[0]);
    }
  }

  /** Keep the rows where they are from now on: newer jobs do not push them down. */
  anchor(): void {
    const first = this.#pages.get(0)?.jobs[0];
    if (this.#cursors[0] === null && first) this.#cursors[0] = cursorIncluding(first.id);
  }

  /** Read what is on the screen once more. At the top that brings the newest; elsewhere it finds out whether there are any. */
  async refresh(first: number, last: number, atTop: boolean): Promise<void> {
    if (atTop) {
      const found = await this.#fetch(null);
      const second = this.#pages.get(1);
      const moved = found.jobs.at(-1)?.id !== this.#pages.get(0)?.jobs.at(-1)?.id;
      if (moved || !second) this.#restart(found);
      else this.#pages.set(0, { jobs: found.jobs, cursor: null, usedAt: ++this.#uses });
      this.newer = false;
      this.#changed();
      return;
    }
    const [from, to] = [this.#place(first)[0], this.#place(last)[0]];
    await Promise.all(Array.from({ length: to - from + 1 }, (_, n) => this.load(from + n)));
    const newest = this.#pages.get(0)?.jobs[0] ?? this.row(0);
    const top = await this.#fetch(null);
    this.newer = !!top.jobs[0] && top.jobs[0].id !== newest?.id && top.jobs[0].id > (newest?.id ?? "");
    this.#changed();
  }

  #restart(found: Jobs): void {
    this.#cursors = [null];
    this.#counts = [];
    this.#pages.clear();
    this.ended = false;
    this.#store(0, found);
  }

  /** Whether a row between these is about to change by itself. */
  moves(first: number, last: number): boolean {
    for (let at = first; at <= last; at++) {
      const status = this.row(at)?.status;
      if (status === "ready" || status === "running") return true;
    }
    return false;
  }

  #place(index: number): [page: number, at: number] {
    let before = 0;
    for (let page = 0; page < this.#counts.length; page++) {
      const n = this.#counts[page] as number;
      if (index < before + n) return [page, index - before];
      before += n;
    }
    return [this.#counts.length, index - before];
  }
}

const REFRESH_MS = 1_000;
const MOVING_MS = 2_000;

/**
 * The pages of a filter, kept fresh: whenever the counts have changed, at most once a second. While a row on the screen is
 * about to move they are read anyway: a job that fails, is retried and fails again between two looks changes no count.
 */
export function useJobPages(filter: JobFilter, paused: boolean) {
  const [, redraw] = useReducer((n: number) => n + 1, 0);
  const client = useQueryClient();
  const name = JSON.stringify(filter);
  const pages = useMemo(() => {
    const wanted = filterQuery(JSON.parse(name) as JobFilter);
    const fetch: Fetch = (cursor) => get<Jobs>("/v1/jobs", { ...wanted, limit: PAGE, cursor });
    return new JobPages(fetch, redraw);
  }, [name]);
  const missed = useRef(false); // news while a selection stood still
  const view = useRef({ first: 0, last: PAGE, atTop: true });

  const show = useCallback(
    (first: number, last: number, atTop: boolean) => {
      view.current = { first, last, atTop };
      if (!atTop) pages.anchor();
      pages.want(first, last);
    },
    [pages],
  );

  useEffect(() => {
    void pages.load(0);
  }, [pages]);

  useEffect(() => {
    if (paused) {
      missed.current = true;
      return;
    }
    let timer: ReturnType<typeof setTimeout> | undefined;
    let refreshed = 0;
    const refresh = () => {
      timer = undefined;
      refreshed = Date.now();
      const { first, last, atTop } = view.current;
      pages
        .refresh(first, last, atTop)
        .catch(() => undefined) // the next change tries again
        .then(() => pages.moves(first, last) && ask(MOVING_MS));
    };
    let over = false;
    const ask = (pause: number) => {
      if (over || timer !== undefined || document.hidden) return;
      timer = setTimeout(refresh, pause);
    };
    const askSoon = () => {
      clearTimeout(timer);
      timer = undefined;
      ask(Math.max(0, refreshed + REFRESH_MS - Date.now()));
    };
    if (missed.current) askSoon();
    missed.current = false;
    const unsubscribe = client.getQueryCache().subscribe((event) => {
      const [root] = event.query.queryKey;
      const isNews = root === keys.stats[0] || root === keys.jobs[0];
      if (isNews && event.type === "updated" && event.action.type === "success") askSoon();
    });
    document.addEventListener("visibilitychange", askSoon);
    ask(MOVING_MS);
    return () => {
      over = true;
      document.removeEventListener("visibilitychange", askSoon);
      unsubscribe();
      clearTimeout(timer);
    };
  }, [client, pages, paused]);

  const refresh = useCallback(() => {
    const { first, last, atTop } = view.current;
    return pages.refresh(first, last, atTop);
  }, [pages]);
  return { pages, show, refresh };
}
