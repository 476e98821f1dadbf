/**
 * One stream of server-sent events for the whole tab, patched into the query cache.
 *
 * The server sends the newest state of each topic at most four times a second and nothing while nothing changes. After a
 * lost connection the browser reconnects by itself; when the server refuses (it restarts, or the session has ended) we open
 * anew with growing pauses, and find out by a request whether the session still holds.
 */
import type { QueryClient } from "@tanstack/react-query";
import { useSyncExternalStore } from "react";
import { serverPath } from "@/api/base";
import { get, queryString } from "@/api/client";
import { askForJobs, keys } from "@/api/queries";

export type LiveState = "connecting" | "live" | "reconnecting" | "paused";

const HIDDEN_MS = 60_000;
const PAUSES_MS = [500, 1000, 2000, 4000, 8000];
const TOPICS = ["stats", "queues", "workers", "jobs"] as const;

export class LiveStream {
  #client: QueryClient;
  #source: EventSource | null = null;
  #timer: ReturnType<typeof setTimeout> | undefined; // until the next opening
  #hiding: ReturnType<typeof setTimeout> | undefined; // until a hidden tab lets go
  #tries = 0;
  #jobs = new Set<string>();
  #listeners = new Set<() => void>();
  state: LiveState = "connecting";

  constructor(client: QueryClient) {
    this.#client = client;
  }

  start(): void {
    document.addEventListener("visibilitychange", this.#onVisibility);
    this.#open();
  }

  stop(): void {
    document.removeEventListener("visibilitychange", this.#onVisibility);
    clearTimeout(this.#timer);
    clearTimeout(this.#hiding);
    this.#source?.close();
    this.#source = null;
  }

  /** Follow one job until the returned function is called. */
  watch(id: string): () => void {
    this.#jobs.add(id);
    this.#reopen();
    return () => {
      this.#jobs.delete(id);
    };
  }

  subscribe = (listener: () => void): (() => void) => {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  };

  getState = (): LiveState => this.state;

  #set(state: LiveState): void {
    if (this.state === state) return;
    this.state = state;
    for (const listener of this.#listeners) listener();
  }

  /** A hidden tab follows nothing: a wall of forgotten tabs must not cost the server or the battery anything. */
  #onVisibility = (): void => {
    clearTimeout(this.#hiding);
    if (document.hidden) this.#hiding = setTimeout(() => this.#pause(), HIDDEN_MS);
    else if (this.state === "paused") this.#reopen();
  };

  #pause(): void {
    clearTimeout(this.#timer);
    this.#source?.close();
    this.#source = null;
    this.#set("paused");
  }

  #reopen(): void {
    if (this.state === "paused") this.#set("connecting");
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#open(), 20); // several watches of one screen become one stream
  }

  #open(): void {
    this.#source?.close();
    const query = queryString({ topic: TOPICS, job: [...this.#jobs].slice(-100) });
    const source = new EventSource(serverPath(`/v1/events${query}`));
    this.#source = source;
    source.onopen = () => {
      const lost = this.state === "reconnecting";
      this.#tries = 0;
      this.#set("live");
      // What changed meanwhile and does not come by the stream.
      if (lost) askForJobs(this.#client);
    };
    source.onerror = () => {
      this.#set("reconnecting");
      if (source.readyState === EventSource.CLOSED) this.#retry();
    };
    source.addEventListener("end", () => {
      source.close();
      this.#set("reconnecting");
      this.#retry();
    });
    source.addEventListener("stats", (event) => this.#put(keys.stats, event));
    source.addEventListener("queues", (event) => this.#put(keys.queues, event));
    source.addEventListener("workers", (event) => this.#put(keys.workers, event));
    source.addEventListener("job", (event) => {
      const { id } = JSON.parse((event as MessageEvent<string>).data) as { id: string };
      void this.#client.invalidateQueries({ queryKey: keys.job(id) });
    });
  }

  #put(key: readonly unknown[], event: Event): void {
    const value = JSON.parse((event as MessageEvent<string>).data) as Record<string, unknown>;
    // The stream leaves some slow fields out: what was read last stays.
    this.#client.setQueryData(key, (before: Record<string, unknown> | undefined) => {
      if (!before) return value;
      const kept = Object.entries(before).filter(([name]) => value[name] === null || value[name] === undefined);
      return { ...value, ...Object.fromEntries(kept) };
    });
  }

  #retry(): void {
    clearTimeout(this.#timer);
    const pause = PAUSES_MS[Math.min(this.#tries++, PAUSES_MS.length - 1)] as number;
    this.#timer = setTimeout(() => {
      get("/v1/auth/me").then(
        () => this.#open(),
        () => this.#retry(), // a 401 leads to the login page
      );
    }, pause);
  }
}

let stream: LiveStream | null = null;

export function startLive(client: QueryClient): LiveStream {
  stream ??= new LiveStream(client);
  stream.start();
  return stream;
}

export function liveStream(): LiveStream {
  if (stream === null) throw new Error("the live stream has not been started");
  return stream;
}

const noSubscription = () => () => undefined;

export function useLiveState(): LiveState {
  return useSyncExternalStore(stream?.subscribe ?? noSubscription, stream?.getState ?? (() => "connecting"));
}
