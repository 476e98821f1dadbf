import { describe, expect, it } from "vitest";
import { formatJson, rawField } from "@/lib/json";

describe("rawField", () => {
  const text = '{"id": "a", "payload": {"n": 12345678901234567890, "s": "x\\"},{"}, "result": [1, [2]], "last": "é"}';
  it("keeps numbers as they were written", () => {
    expect(rawField(text, "payload")).toBe('{"n": 12345678901234567890, "s": "x\\"},{"}');
  });
  it("finds arrays, texts and the last field", () => {
    expect(rawField(text, "result")).toBe("[1, [2]]");
    expect(rawField(text, "id")).toBe('"a"');
    expect(rawField(text, "last")).toBe('"é"');
  });
  it("finds numbers and null", () => {
    expect(rawField('{"a":1.50,"b":null}', "a")).toBe("1.50");
    expect(rawField('{"a":1.50,"b":null}', "b")).toBe("null");
  });
  it("says null for a field that is not there", () => {
    expect(rawField(text, "n")).toBeNull();
    expect(rawField("{}", "n")).toBeNull();
  });
});

describe("formatJson", () => {
  it("indents and leaves numbers and texts alone", () => {
    expect(formatJson('{"a":12345678901234567890,"b":[1.0,{"c":"x, {y}: z"}],"d":{},"e":[ ]}')).toBe(
      '{\n  "a": 12345678901234567890,\n  "b": [\n    1.0,\n    {\n      "c": "x, {y}: z"\n    }\n  ],\n  "d": {},\n  "e": []\n}',
    );
  });
  it("reads the same as before", () => {
    const value = { a: [1, "\\", { b: null, c: [[], {}] }], d: '"', e: true };
    expect(JSON.parse(formatJson(JSON.stringify(value)))).toEqual(value);
  });
});
