/** Which jobs a list shows. It lives in the address, so that a view can be kept, shared and gone back to. */
import type { Query } from "@/api/client";
import { STATUSES, type Status } from "@/ui/status";

export interface JobFilter {
  status?: Status[];
  type?: string;
  queue?: string;
  tag?: string;
  worker?: string;
  text?: string;
  reason?: string;
  created_after?: string;
  created_before?: string;
  finished_after?: string;
  finished_before?: string;
}

/** The fields that are one text, in the order in which their chips stand. */
export const TEXT_FIELDS = [
  "type",
  "queue",
  "tag",
  "worker",
  "text",
  "reason",
  "created_after",
  "created_before",
  "finished_after",
  "finished_before",
] as const;

export const FIELD_WORDS: Record<(typeof TEXT_FIELDS)[number] | "status", string> = {
  status: "status",
  type: "type",
  queue: "queue",
  tag: "tag",
  worker: "worker",
  text: "text",
  reason: "held for",
  created_after: "created after",
  created_before: "created before",
  finished_after: "finished after",
  finished_before: "finished before",
};

/** What the address says, less what nobody understands. */
export function readJobFilter(search: Record<string, unknown>): JobFilter {
  const filter: JobFilter = {};
  const given = Array.isArray(search.status) ? search.status : search.status ? [search.status] : [];
  const statuses = STATUSES.filter((status) => given.includes(status));
  if (statuses.length) filter.status = statuses;
  for (const field of TEXT_FIELDS) {
    const value = search[field];
    if ((typeof value === "string" && value) || typeof value === "number") filter[field] = String(value);
  }
  return filter;
}

export const isFiltered = (filter: JobFilter): boolean => Object.keys(filter).length > 0;

export const filterQuery = (filter: JobFilter): Query => ({ ...filter });
