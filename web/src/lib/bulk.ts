/**
 * Actions on many jobs. The server does up to a page at a time and says where to go on; so progress can be shown, the pace can
 * be chosen, and stopping is simply not to go on.
 */
import { post } from "@/api/client";
import type { BulkResult } from "@/api/schema";

export type BulkVerb = "cancel" | "retry" | "run-now" | "replay" | "discard";

export const BULK_PATHS: Record<BulkVerb, string> = {
  cancel: "/v1/jobs/cancel",
  retry: "/v1/jobs/retry",
  "run-now": "/v1/jobs/run-now",
  replay: "/v1/dead-letters/replay",
  discard: "/v1/dead-letters/discard",
};

export type BulkTarget = { ids: readonly string[] } | { filter: Record<string, unknown> };

export interface BulkProgress {
  matched: number;
  done: number;
  refused: number;
  why: string | null;
}

type Send = (path: string, body: unknown) => Promise<BulkResult>;
const send: Send = (path, body) => post<BulkResult>(path, body);

const COUNT_PAGE = 10_000;
const COUNT_PAGES = 10;
const PART = 1_000;

/** How many jobs an action would touch. `more`: at least so many; counting ends there. */
export async function countMatching(
  verb: BulkVerb,
  targets: readonly BulkTarget[],
  ask: Send = send,
): Promise<{ count: number; more: boolean }> {
  let count = 0;
  let pages = 0;
  for (const target of targets) {
    let cursor: string | null = null;
    do {
      if (pages++ === COUNT_PAGES) return { count, more: true };
      const body = { ...target, preview: true, limit: COUNT_PAGE, ...(cursor ? { cursor } : {}) };
      const answer: BulkResult = await ask(BULK_PATHS[verb], body);
      count += answer.matched;
      cursor = answer.next_cursor ?? null;
    } while (cursor);
  }
  return { count, more: false };
}

interface Options {
  /** Jobs a second; left out: as fast as the server goes. */
  rate?: number | undefined;
  reason?: string | undefined;
  signal: AbortSignal;
  onProgress: (progress: BulkProgress) => void;
  ask?: Send;
  wait?: (ms: number) => Promise<void>;
}

export async function runBulk(
  verb: BulkVerb,
  targets: readonly BulkTarget[],
  { rate, reason, signal, onProgress, ask = send, wait = sleep }: Options,
): Promise<BulkProgress> {
  const limit = rate ? Math.max(1, Math.min(PART, rate)) : PART;
  const progress: BulkProgress = { matched: 0, done: 0, refused: 0, why: null };
  let first = true;
  const step = async (body: Record<string, unknown>): Promise<string | null> => {
    if (rate && !first) await wait((limit / rate) * 1000);
    first = false;
    if (signal.aborted) return null;
    const answer = await ask(BULK_PATHS[verb], { ...body, limit, ...(reason ? { reason } : {}) });
    progress.matched += answer.matched;
    progress.done += answer.done;
    progress.refused += answer.refused.length;
    progress.why ??= answer.refused[0]?.detail ?? null;
    onProgress({ ...progress });
    return answer.next_cursor ?? null;
  };
  for (const target of targets) {
    if ("ids" in target) {
      for (let at = 0; at < target.ids.length && !signal.aborted; at += limit)
        await step({ ids: target.ids.slice(at, at + limit) });
      continue;
    }
    let cursor: string | null = null;
    do cursor = await step({ ...target, ...(cursor ? { cursor } : {}) });
    while (cursor && !signal.aborted);
  }
  return progress;
}

const sleep = (ms: number) => new Promise<void>((done) => setTimeout(done, ms));
