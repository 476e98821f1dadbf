import { expect, it } from "vitest";
import type { Job } from "@/api/schema";
import { stepsOf } from "@/screens/job/timeline";

const at = (s: number) => new Date(Date.UTC(2026, 0, 1, 12, 0, s)).toISOString();
const job = (fields: Partial<Job>): Job =>
  ({
    status: "ready",
    created_at: at(0),
    scheduled_at: null,
    ready_at: null,
    started_at: null,
    finished_at: null,
    attempts: 0,
    next_try_at: null,
    ...fields,
  }) as Job;
const labels = (fields: Partial<Job>) => stepsOf(job(fields), Date.parse(at(60))).map((step) => step.label);

it("tells the way of a job that has finished", () => {
  const done = {
    status: "completed" as const,
    ready_at: at(0),
    started_at: at(5),
    finished_at: at(9),
    queue_s: 5,
    execution_s: 4,
    total_s: 9,
    attempts: 1,
  };
  expect(labels(done)).toEqual(["Created", "Ready", "Started", "Completed"]);
  expect(stepsOf(job(done), 0).map((step) => step.note)).toEqual([null, "waited 5.0 s", "ran 4.0 s", "9.0 s in all"]);
});

it("tells that a job waits for its next try", () => {
  const waits = { status: "scheduled" as const, started_at: at(5), execution_s: 1, attempts: 2, next_try_at: at(70) };
  expect(labels(waits)).toEqual(["Created", "Last started", "Next try"]);
});

it("counts on while it goes on", () => {
  expect(stepsOf(job({ ready_at: at(30) }), Date.parse(at(60))).at(-1)).toMatchObject({
    label: "Ready",
    note: "waited 30 s",
    now: true,
  });
});
