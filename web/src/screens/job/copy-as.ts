/** A job written as what would submit it again: it teaches the API, the client and the commands. */
import { serverPath } from "@/api/base";
import type { Job } from "@/api/schema";

export type Form = "curl" | "python" | "cli";

const DEFAULTS: Partial<Record<keyof Job, unknown>> = {
  queue: "default",
  priority: 0,
  thread_demand: 1,
  max_attempts: 3,
  timeout_s: 3600,
};

/** What differs from the defaults, besides type and payload. */
function options(job: Job): [string, unknown][] {
  const given: [string, unknown][] = [];
  for (const field of ["name", "queue", "priority", "thread_demand", "max_attempts", "timeout_s"] as const) {
    const value = job[field];
    if (value !== null && value !== undefined && value !== DEFAULTS[field]) given.push([field, value]);
  }
  if (job.tags.length) given.push(["tags", job.tags]);
  return given;
}

export function copyAs(form: Form, job: Job, payload: string | null): string {
  const body = payload ?? "null";
  if (form === "curl") {
    const extra = options(job).map(([name, value]) => `, ${JSON.stringify(name)}: ${JSON.stringify(value)}`);
    const json = `{"type": ${JSON.stringify(job.type)}, "payload": ${body}${extra.join("")}}`;
    return `curl -s ${location.origin}${serverPath("/v1/jobs")} -H "Authorization: Bearer $TOKEN" -H 'Content-Type: application/json' \\\n  -d ${quote(json)}`;
  }
  if (form === "cli") {
    const flags = options(job).flatMap(([name, value]) =>
      name === "tags"
        ? (value as string[]).map((tag) => ` --tag ${quote(tag)}`)
        : [` --${FLAGS[name]} ${quote(String(value))}`],
    );
    return `windlass submit ${quote(job.type)} ${quote(body)}${flags.join("")}`;
  }
  const named = options(job).map(([name, value]) => `, ${name}=${python(value)}`);
  return `from windlass import Client\n\nwith Client(${JSON.stringify(location.origin + serverPath(""))}) as client:\n    job = client.submit(${python(job.type)}, json.loads(${python(body)})${named.join("")})\n`.replace(
    /^/,
    "import json\n\n",
  );
}

const FLAGS: Record<string, string> = {
  name: "name",
  queue: "queue",
  priority: "priority",
  thread_demand: "threads",
  max_attempts: "max-attempts",
  timeout_s: "timeout",
};

/** As one word for a POSIX shell. */
export const quote = (text: string): string =>
  /^[\w./:@-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`;

const python = (value: unknown): string =>
  Array.isArray(value) ? `[${value.map(python).join(", ")}]` : JSON.stringify(value);
