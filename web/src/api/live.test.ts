import { QueryClient } from "@tanstack/react-query";
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { LiveStream } from "@/api/live";
import { keys } from "@/api/queries";

/** The browser's side of a stream, driven by the test. */
class FakeSource extends EventTarget {
  static readonly CLOSED = 2;
  static made: FakeSource[] = [];
  readyState = 0;
  onopen: (() => void) | null = null;
  onerror: (() => void) | null = null;
  readonly url: string;

  constructor(url: string) {
    super();
    this.url = url;
    FakeSource.made.push(this);
  }

  open(): void {
    this.readyState = 1;
    this.onopen?.();
  }

  fail({ closed }: { closed: boolean }): void {
    this.readyState = closed ? FakeSource.CLOSED : 0;
    this.onerror?.();
  }

  send(name: string, data: unknown): void {
    this.dispatchEvent(new MessageEvent(name, { data: JSON.stringify(data) }));
  }

  close(): void {
    this.readyState = FakeSource.CLOSED;
  }
}

const latest = () => FakeSource.made.at(-1) as FakeSource;
const answer = vi.fn<() => Promise<Response>>();
let client: QueryClient;
let stream: LiveStream;
let hidden = false;

const hide = (is: boolean) => {
  hidden = is;
  document.dispatchEvent(new Event("visibilitychange"));
};

beforeEach(() => {
  vi.useFakeTimers();
  vi.stubGlobal("EventSource", FakeSource);
  vi.stubGlobal("fetch", answer);
  vi.spyOn(document, "hidden", "get").mockImplementation(() => hidden);
  answer.mockImplementation(async () => new Response("{}"));
  FakeSource.made = [];
  hidden = false;
  client = new QueryClient();
  stream = new LiveStream(client);
  stream.start();
});

afterEach(() => {
  stream.stop();
  vi.useRealTimers();
  vi.unstubAllGlobals();
  vi.restoreAllMocks();
});

it("is live once it is open, and tells who listens", () => {
  const listener = vi.fn();
  stream.subscribe(listener);
  expect(stream.state).toBe("connecting");
  latest().open();
  expect([stream.state, listener.mock.calls.length]).toEqual(["live", 1]);
});

it("puts what comes into the cache, and keeps slow fields that an event leaves out", () => {
  client.setQueryData(keys.stats, { total: 1, dead_letters: { count: 3 } });
  latest().send("stats", { total: 2, dead_letters: null });
  expect(client.getQueryData(keys.stats)).toEqual({ total: 2, dead_letters: { count: 3 } });
});

it("asks for a watched job again when it has moved", () => {
  client.setQueryData(keys.job("j1"), {});
  latest().send("job", { id: "j1", status: "completed" });
  expect(client.getQueryState(keys.job("j1"))?.isInvalidated).toBe(true);
});

it("opens one stream for several watches, and none of them when they ended", async () => {
  const stop = stream.watch("j1");
  stream.watch("j2");
  await vi.advanceTimersByTimeAsync(100);
  expect(FakeSource.made).toHaveLength(2);
  expect(FakeSource.made[0]?.readyState).toBe(FakeSource.CLOSED);
  expect(latest().url).toContain("job=j1&job=j2");
  stop();
  stream.watch("j3");
  await vi.advanceTimersByTimeAsync(100);
  expect(latest().url).toContain("job=j2&job=j3");
});

it("leaves a reconnect to the browser while that tries", async () => {
  latest().open();
  latest().fail({ closed: false });
  expect(stream.state).toBe("reconnecting");
  await vi.advanceTimersByTimeAsync(60_000);
  expect(FakeSource.made).toHaveLength(1);
  latest().open();
  expect(stream.state).toBe("live");
});

it("opens anew, with growing pauses, when the server refuses, and asks for jobs then", async () => {
  latest().open();
  answer.mockImplementationOnce(async () => new Response("{}", { status: 503 }));
  latest().fail({ closed: true });
  await vi.advanceTimersByTimeAsync(600);
  expect(FakeSource.made).toHaveLength(1); // the server is still away
  await vi.advanceTimersByTimeAsync(1_100);
  expect(FakeSource.made).toHaveLength(2);
  latest().open();
  expect(stream.state).toBe("live");
  expect(client.getQueryData(keys.jobs)).toBeTypeOf("number");
});

it("comes back when a server says that it ends", async () => {
  latest().open();
  latest().send("end", {});
  expect([stream.state, latest().readyState]).toEqual(["reconnecting", FakeSource.CLOSED]);
  await vi.advanceTimersByTimeAsync(600);
  expect(FakeSource.made).toHaveLength(2);
});

it("lets go in a tab that stays hidden, and not in one that is hidden for a moment", async () => {
  latest().open();
  hide(true);
  await vi.advanceTimersByTimeAsync(30_000);
  hide(false);
  await vi.advanceTimersByTimeAsync(60_000);
  expect(stream.state).toBe("live");
  hide(true);
  await vi.advanceTimersByTimeAsync(61_000);
  expect([stream.state, latest().readyState]).toEqual(["paused", FakeSource.CLOSED]);
  hide(false);
  await vi.advanceTimersByTimeAsync(100);
  latest().open();
  expect(stream.state).toBe("live");
});

it("goes on reconnecting in a tab that is hidden and shown meanwhile", async () => {
  latest().open();
  latest().fail({ closed: true });
  hide(true);
  hide(false);
  await vi.advanceTimersByTimeAsync(600);
  expect(FakeSource.made).toHaveLength(2);
});
