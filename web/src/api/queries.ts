/** What the screens read, one hook each. The live stream patches the same keys. */
import { type QueryClient, queryOptions, useQuery } from "@tanstack/react-query";
import { get, requestText } from "@/api/client";
import type { Attempts, Explanation, Job, JobTypes, Logs, Me, Queues, Stats, Workers } from "@/api/schema";
import { rawField } from "@/lib/json";

export const keys = {
  me: ["me"] as const,
  stats: ["stats"] as const,
  queues: ["queues"] as const,
  workers: ["workers"] as const,
  types: ["types"] as const,
  jobs: ["jobs"] as const,
  job: (id: string) => ["job", id] as const,
};

/** Lists of jobs keep their own pages (job-pages.ts) and read them again when this is called. */
export const askForJobs = (client: QueryClient): void => {
  client.setQueryData(keys.jobs, Date.now());
};

/** A job with its payload and result as the texts that were stored. */
export interface JobText {
  job: Job;
  payload: string | null;
  result: string | null;
}

export const meQuery = queryOptions({ queryKey: keys.me, queryFn: () => get<Me>("/v1/auth/me"), staleTime: 60_000 });
export const statsQuery = queryOptions({ queryKey: keys.stats, queryFn: () => get<Stats>("/v1/stats") });
export const queuesQuery = queryOptions({ queryKey: keys.queues, queryFn: () => get<Queues>("/v1/queues") });
export const workersQuery = queryOptions({ queryKey: keys.workers, queryFn: () => get<Workers>("/v1/workers") });
export const typesQuery = queryOptions({
  queryKey: keys.types,
  queryFn: () => get<JobTypes>("/v1/types"),
  staleTime: 30_000,
});

export const jobQuery = (id: string) =>
  queryOptions({
    queryKey: keys.job(id),
    queryFn: async ({ signal }): Promise<JobText> => {
      const text = await requestText("GET", `/v1/jobs/${id}`, { signal, headers: { "cache-control": "no-cache" } });
      return { job: JSON.parse(text) as Job, payload: rawField(text, "payload"), result: rawField(text, "result") };
    },
  });

export const attemptsQuery = (id: string) =>
  queryOptions({
    queryKey: [...keys.job(id), "attempts"],
    queryFn: () => get<Attempts>(`/v1/jobs/${id}/attempts`),
  });

export const explainQuery = (id: string) =>
  queryOptions({ queryKey: [...keys.job(id), "explain"], queryFn: () => get<Explanation>(`/v1/jobs/${id}/explain`) });

export const logsQuery = (id: string) =>
  queryOptions({ queryKey: [...keys.job(id), "logs"], queryFn: () => get<Logs>(`/v1/jobs/${id}/logs`) });

export const useStats = () => useQuery(statsQuery);
export const useQueues = () => useQuery(queuesQuery);
export const useWorkers = () => useQuery(workersQuery);
export const useTypes = () => useQuery(typesQuery);

/** What the caller may do. Buttons for what is not allowed are not shown. */
export function useScopes(): { operate: boolean; submit: boolean; admin: boolean; subject: string } {
  const scopes = useQuery(meQuery).data;
  const has = (scope: string) => !!scopes && (scopes.scopes.includes(scope) || scopes.scopes.includes("admin"));
  return { operate: has("operate"), submit: has("submit"), admin: has("admin"), subject: scopes?.subject ?? "" };
}
