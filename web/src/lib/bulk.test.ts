import { describe, expect, it, vi } from "vitest";
import type { BulkResult } from "@/api/schema";
import { countMatching, runBulk } from "@/lib/bulk";

const answer = (matched: number, next: string | null, refused: BulkResult["refused"] = []): BulkResult => ({
  matched,
  done: matched - refused.length,
  preview: false,
  refused,
  sample: [],
  next_cursor: next,
});

describe("countMatching", () => {
  it("adds the pages up", async () => {
    const ask = vi.fn().mockResolvedValueOnce(answer(10_000, "a")).mockResolvedValueOnce(answer(1_204, null));
    expect(await countMatching("retry", [{ filter: {} }], ask)).toEqual({ count: 11_204, more: false });
    expect(ask.mock.calls[1]?.[1]).toMatchObject({ preview: true, cursor: "a" });
  });
  it("ends somewhere", async () => {
    const ask = vi.fn().mockResolvedValue(answer(10_000, "a"));
    expect(await countMatching("retry", [{ filter: {} }], ask)).toEqual({ count: 100_000, more: true });
  });
});

describe("runBulk", () => {
  const options = (ask: unknown, more = {}) => ({
    signal: new AbortController().signal,
    onProgress: vi.fn(),
    ask: ask as never,
    wait: vi.fn().mockResolvedValue(undefined),
    ...more,
  });

  it("follows the cursors and counts what was refused", async () => {
    const refused = [{ code: "not_possible", detail: "it runs" }] as BulkResult["refused"];
    const ask = vi
      .fn()
      .mockResolvedValueOnce(answer(1000, "c1", refused))
      .mockResolvedValueOnce(answer(5, null));
    const result = await runBulk("cancel", [{ filter: { queue: "a" } }], options(ask));
    expect(result).toEqual({ matched: 1005, done: 1004, refused: 1, why: "it runs" });
    expect(ask.mock.calls.map((call) => call[1].cursor)).toEqual([undefined, "c1"]);
  });

  it("keeps the pace that was chosen", async () => {
    const ask = vi.fn().mockResolvedValueOnce(answer(10, "c")).mockResolvedValueOnce(answer(3, null));
    const all = options(ask, { rate: 10 });
    await runBulk("replay", [{ filter: {} }], all);
    expect(ask.mock.calls[0]?.[1].limit).toBe(10);
    expect(all.wait).toHaveBeenCalledExactlyOnceWith(1000);
  });

  it("stops where it is told to", async () => {
    const stop = new AbortController();
    const ask = vi.fn().mockImplementation(async () => {
      stop.abort();
      return answer(1000, "more");
    });
    expect((await runBulk("retry", [{ filter: {} }], options(ask, { signal: stop.signal }))).done).toBe(1000);
    expect(ask).toHaveBeenCalledOnce();
  });

  it("goes through several targets", async () => {
    const ask = vi.fn().mockResolvedValueOnce(answer(3, null)).mockResolvedValueOnce(answer(4, null));
    expect((await runBulk("discard", [{ filter: { type: "a" } }, { filter: { type: "b" } }], options(ask))).done).toBe(
      7,
    );
  });

  it("sends named jobs in parts", async () => {
    const ids = Array.from({ length: 1500 }, (_, n) => `id-${n}`);
    const ask = vi.fn().mockResolvedValueOnce(answer(1000, null)).mockResolvedValueOnce(answer(500, null));
    expect((await runBulk("retry", [{ ids }], options(ask))).done).toBe(1500);
  });
});
