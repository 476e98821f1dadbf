import { expect, it } from "vitest";
import { readJobFilter } from "@/lib/job-filter";

it("keeps what it understands and drops the rest", () => {
  expect(readJobFilter({ status: ["failed", "nonsense"], type: "email", queue: "", tag: 7, page: 3 })).toEqual({
    status: ["failed"],
    type: "email",
    tag: "7",
  });
});

it("takes a single status", () => {
  expect(readJobFilter({ status: "ready" })).toEqual({ status: ["ready"] });
});
