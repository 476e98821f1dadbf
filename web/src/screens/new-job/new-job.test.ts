import { expect, it } from "vitest";
import { ApiError } from "@/api/client";
import { errorsOf, optionsJson } from "@/screens/new-job/new-job";

it("puts the server's error at its field", () => {
  const at = (field: string, detail: string) => errorsOf(new ApiError(422, { field, detail }));
  expect(at("payload.to", "payload.to: is missing").to).toBe("is missing");
  expect(at("payload.lines[1].price", "payload.lines[1].price: is missing").lines).toBe(
    "payload.lines[1].price: is missing",
  );
  expect(at("priority", "priority: must be at most 100").priority).toBe("must be at most 100");
  expect(errorsOf(new Error("away"))).toEqual({ "": "away" });
});

it("sends only the options that were filled in", () => {
  expect(optionsJson({ priority: "5", queue: "", tags: "a, b ,", name: 'x"y' })).toBe(
    ', "priority": 5, "tags": ["a","b"], "name": "x\\"y"',
  );
  expect(() => optionsJson({ priority: "high" })).toThrow("is no number");
});
