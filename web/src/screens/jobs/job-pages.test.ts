import { describe, expect, it, vi } from "vitest";
import type { Job, Jobs } from "@/api/schema";
import { cursorIncluding, JobPages, PAGE } from "@/screens/jobs/job-pages";

const id = (n: number) => `00000000-0000-7000-8000-${n.toString(16).padStart(12, "0")}`;

/** A server with jobs 1…n, newest first. */
function server(n: number) {
  const all = Array.from({ length: n }, (_, k) => n - k);
  const calls: (string | null)[] = [];
  return {
    calls,
    add: (m: number) => all.unshift(m),
    fetch: async (cursor: string | null): Promise<Jobs> => {
      calls.push(cursor);
      const from = cursor === null ? all : all.filter((k) => id(k) < cursor);
      const jobs = from.slice(0, PAGE).map((k) => ({ id: id(k) }) as Job);
      return { jobs, next_cursor: from.length > PAGE ? (jobs.at(-1)?.id ?? null) : null };
    },
  };
}

describe("JobPages", () => {
  it("goes on to the end, page by page", async () => {
    const pages = new JobPages(server(250).fetch, vi.fn());
    for (let page = 0; page < 3; page++) await pages.load(page);
    expect([pages.count, pages.ended, pages.row(0)?.id, pages.row(249)?.id]).toEqual([250, true, id(250), id(1)]);
  });

  it("drops pages that are far away and reads them again from the same place", async () => {
    const store = server(60 * PAGE);
    const pages = new JobPages(store.fetch, vi.fn());
    for (let page = 0; page < 60; page++) await pages.load(page);
    expect(pages.row(0)).toBeUndefined();
    pages.anchor();
    await pages.load(0);
    expect(pages.row(0)?.id).toBe(id(6000));
    expect(pages.row(5_999)?.id).toBe(id(1));
  });

  it("does not move anchored rows when jobs arrive, and says that there are newer ones", async () => {
    const store = server(150);
    const pages = new JobPages(store.fetch, vi.fn());
    await pages.load(0);
    await pages.load(1);
    pages.anchor();
    store.add(151);
    await pages.refresh(100, 120, false);
    expect([pages.row(0)?.id, pages.row(100)?.id, pages.newer]).toEqual([id(150), id(50), true]);
  });

  it("follows the newest jobs at the top", async () => {
    const store = server(5);
    const pages = new JobPages(store.fetch, vi.fn());
    await pages.load(0);
    store.add(6);
    await pages.refresh(0, 5, true);
    expect([pages.count, pages.row(0)?.id, pages.newer]).toEqual([6, id(6), false]);
  });

  it("keeps what it has when the server does not answer", async () => {
    let fails = false;
    const store = server(5);
    const pages = new JobPages((cursor) => (fails ? Promise.reject(new Error("away")) : store.fetch(cursor)), vi.fn());
    await pages.load(0);
    fails = true;
    await pages.load(0);
    expect([pages.row(0)?.id, (pages.error as Error).message]).toEqual([id(5), "away"]);
  });
});

it("a cursor that includes a job is the id above it", () => {
  expect(cursorIncluding("019a0000-0000-7000-8000-0000000000ff")).toBe("019a0000-0000-7000-8000-000000000100");
});
