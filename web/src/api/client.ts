/** Requests to the API: JSON both ways, problem+json as one kind of error, a lost session leads to the login page. */
import { rootPath, serverPath } from "@/api/base";
import type { Problem } from "@/api/schema";

export type Query = Record<string, string | number | boolean | readonly string[] | null | undefined>;

export class ApiError extends Error {
  readonly status: number;
  readonly code: string;
  readonly field: string | null;

  constructor(status: number, problem: Partial<Problem>) {
    super(problem.detail ?? problem.title ?? `the server answered ${status}`);
    this.status = status;
    this.code = problem.code ?? "unknown";
    this.field = (problem.field as string | null | undefined) ?? null;
  }
}

export function queryString(query: Query = {}): string {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value === null || value === undefined || value === "") continue;
    if (Array.isArray(value)) for (const one of value) search.append(name, one);
    else search.append(name, String(value));
  }
  const text = search.toString();
  return text ? `?${text}` : "";
}

interface Options {
  query?: Query;
  body?: unknown;
  signal?: AbortSignal;
  headers?: Record<string, string>;
}

/** The text of an answer. Numbers stay as they were written, which JSON.parse would round. */
export async function requestText(method: string, path: string, options: Options = {}): Promise<string> {
  const { query, body, signal, headers } = options;
  const answer = await fetch(serverPath(path) + queryString(query), {
    method,
    credentials: "same-origin",
    headers: {
      accept: "application/json",
      ...(body === undefined ? {} : { "content-type": "application/json" }),
      ...headers,
    },
    ...(body === undefined ? {} : { body: typeof body === "string" ? body : JSON.stringify(body) }),
    ...(signal ? { signal } : {}),
  });
  const text = await answer.text();
  if (answer.ok) return text;
  if (answer.status === 401) goToLogin();
  throw new ApiError(answer.status, parseProblem(text));
}

export async function request<T>(method: string, path: string, options: Options = {}): Promise<T> {
  const text = await requestText(method, path, options);
  return (text ? JSON.parse(text) : null) as T;
}

export const get = <T>(path: string, query?: Query, signal?: AbortSignal): Promise<T> =>
  request<T>("GET", path, { ...(query ? { query } : {}), ...(signal ? { signal } : {}) });

export const post = <T>(path: string, body: unknown = {}): Promise<T> => request<T>("POST", path, { body });

export function goToLogin(): void {
  const here = location.pathname.slice(rootPath.length) + location.search;
  location.assign(serverPath(`/login${queryString({ next: here })}`));
}

function parseProblem(text: string): Partial<Problem> {
  try {
    return JSON.parse(text) as Partial<Problem>;
  } catch {
    return {};
  }
}
