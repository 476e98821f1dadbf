import { expect, it } from "vitest";
import { withTyped } from "@/screens/jobs/filter-bar";

it("takes a plain text as a search", () => {
  expect(withTyped({ queue: "mail" }, " timed out ")).toEqual({ queue: "mail", text: "timed out" });
});

it("makes a chip of a named field, and replaces the one before", () => {
  expect(withTyped({ queue: "mail" }, "queue:reports")).toEqual({ queue: "reports" });
  expect(withTyped({}, "tag: a:b ")).toEqual({ tag: "a:b" });
});

it("waits for the value of a field", () => {
  expect(withTyped({}, "queue:")).toBeNull();
  expect(withTyped({}, "   ")).toBeNull();
});

it("collects statuses by their beginning, each once, and takes no unknown one", () => {
  const one = withTyped({}, "status:fail");
  expect(one).toEqual({ status: ["failed"] });
  expect(withTyped(one ?? {}, "status:failed")).toEqual({ status: ["failed"] });
  expect(withTyped(one ?? {}, "status:HELD")).toEqual({ status: ["failed", "held"] });
  expect(withTyped({}, "status:lost")).toBeNull();
});

it("searches for what only looks like a field", () => {
  expect(withTyped({}, "https://example.org")).toEqual({ text: "https://example.org" });
});
