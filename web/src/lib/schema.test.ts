import { describe, expect, it } from "vitest";
import { type FieldError, formFields, formJson, type Schema } from "@/lib/schema";

const schema: Schema = {
  $ref: "#/$defs/P",
  $defs: {
    P: {
      type: "object",
      properties: {
        to: { type: "string" },
        count: { anyOf: [{ type: "integer" }, { type: "null" }], default: null },
        mode: { enum: ["fast", "slow"] },
        lines: { type: "array", items: { type: "string" } },
        image: { type: "string", contentEncoding: "base64" },
        sure: { type: "boolean", default: false },
      },
      required: ["to", "lines"],
    },
  },
};

describe("formFields", () => {
  it("reads kinds, requirements and choices", () => {
    const fields = formFields(schema);
    expect(fields?.map((field) => [field.name, field.kind, field.required])).toEqual([
      ["to", "text", true],
      ["count", "integer", false],
      ["mode", "choice", false],
      ["lines", "json", true],
      ["image", "file", false],
      ["sure", "boolean", false],
    ]);
  });
  it("leaves what is no object to JSON", () => {
    expect(formFields({ type: "array" })).toBeNull();
    expect(formFields(null)).toBeNull();
  });
});

describe("formJson", () => {
  const fields = formFields(schema) ?? [];
  it("leaves out what is empty and keeps numbers as they were typed", () => {
    expect(formJson(fields, { to: "ann", count: "12345678901234567890", lines: '["a"]', mode: "", sure: "true" })).toBe(
      '{"to": "ann", "count": 12345678901234567890, "lines": ["a"], "sure": true}',
    );
  });
  it.each([
    [{ to: "a" }, "lines", "is missing"],
    [{ to: "a", lines: "[" }, "lines", "is no JSON"],
    [{ to: "a", lines: "[]", count: "x" }, "count", "is no number"],
  ])("names the field that is wrong: %j", (values, field, problem) => {
    const attempt = () => formJson(fields, values as Record<string, string>);
    expect(attempt).toThrow(problem);
    try {
      attempt();
    } catch (error) {
      expect((error as FieldError).field).toBe(field);
    }
  });
});
