// JSON Schema in words and tables, and an example of what it allows.

import { el, prose } from "./dom.js";

const DEPTH_MAX = 6;
const FORMATS = { uuid: "UUID", "date-time": "moment (RFC 3339)", date: "day", byte: "base64", binary: "bytes" };
const TYPES = { string: "text", integer: "whole number", number: "number", boolean: "true or false", null: "null", object: "object" };

export class Schemas {
  constructor(document) {
    this.document = document;
  }

  // What a reference stands for; `named` is the name it had.
  resolve(schema) {
    let named = null;
    let found = schema ?? {};
    for (let hops = 0; found.$ref && hops < DEPTH_MAX; hops += 1) {
      named = found.$ref.split("/").pop();
      found = found.$ref.split("/").slice(1).reduce((at, key) => at?.[key], this.document) ?? {};
    }
    return { ...found, named };
  }

  // Null aside, what may be there.
  choices(schema) {
    const whole = this.resolve(schema);
    const options = whole.anyOf ?? whole.oneOf;
    if (options) return options.flatMap((option) => this.choices(option));
    if (Array.isArray(whole.type)) return whole.type.map((type) => ({ ...whole, type }));
    return [whole];
  }

  // "text, 1 to 200 characters, or null"
  words(schema) {
    const parts = this.choices(schema).map((choice) => this.word(choice));
    return [...new Set(parts)].join(", or ");
  }

  word(schema) {
    if ("const" in schema) return JSON.stringify(schema.const);
    if (schema.enum) return schema.enum.map((one) => (typeof one === "string" ? one || "(empty)" : JSON.stringify(one))).join(" | ");
    if (schema.type === "array") return `list of ${this.words(schema.items)}${limits(schema.minItems, schema.maxItems, "")}`;
    if (schema.named && schema.type === "object") return schema.named;
    if (schema.type === "object" && typeof schema.additionalProperties === "object") {
      return `object of ${this.words(schema.additionalProperties)}`;
    }
    if (schema.type === undefined) return "any JSON value";
    const type = FORMATS[schema.format] ?? TYPES[schema.type] ?? schema.type;
    const least = schema.minimum ?? schema.exclusiveMinimum;
    return (
      type +
      limits(schema.minLength, schema.maxLength, " characters") +
      limits(least, schema.maximum ?? schema.exclusiveMaximum, "") +
      (schema.pattern ? `, matching ${schema.pattern}` : "")
    );
  }

  // The object behind a schema, or behind the items of a list of them.
  object(schema) {
    for (const choice of this.choices(schema)) {
      if (choice.properties) return choice;
      if (choice.type === "array" && choice.items) {
        const inner = this.object(choice.items);
        if (inner) return inner;
      }
    }
    return null;
  }

  // The fields of an object as a table; objects within it can be opened.
  table(schema, depth = 0) {
    const object = this.object(schema);
    if (!object) return el("p", { class: "type" }, this.words(schema));
    const required = new Set(object.required ?? []);
    const rows = Object.entries(object.properties).map(([name, field]) =>
      this.row(name, field, required.has(name), depth));
    return el("table", { class: "fields" },
      el("thead", { class: "unseen" }, el("tr", {}, el("th", { scope: "col" }, "Field"), el("th", { scope: "col" }, "Meaning"))),
      el("tbody", {}, rows));
  }

  row(name, field, required, depth) {
    const whole = this.resolve(field);
    const about = whole.description ?? this.choices(field).map((one) => one.description).find(Boolean);
    const inner = depth < DEPTH_MAX && this.object(field);
    const cell = el("td", {}, el("span", { class: "type" }, this.words(field), defaulted(whole)));
    if (about) cell.append(el("p", {}, prose(about)));
    if (inner) {
      const more = el("details", {}, el("summary", {}, `Fields of ${inner.named ?? name}`));
      more.addEventListener("toggle", () => more.append(this.table(field, depth + 1)), { once: true });
      cell.append(more);
    }
    return el("tr", {},
      el("th", { scope: "row" }, el("code", {}, name), required ? el("span", { class: "required" }, "required") : null),
      cell);
  }

  // A value that fits: its own example, its default, or the plainest one. Only what must be there, unless `all`.
  example(schema, all = false, depth = 0) {
    const whole = this.resolve(schema);
    for (const one of [whole, ...this.choices(schema)]) {
      if (one.examples?.length) return one.examples[0];
      if (one.example !== undefined) return one.example;
      if (one.default !== undefined && one.default !== null) return one.default;
    }
    const first = this.choices(schema).find((choice) => choice.type !== "null") ?? {};
    if ("const" in first) return first.const;
    if (first.enum) return first.enum[0];
    if (first.type === "array") return depth < DEPTH_MAX ? [this.example(first.items, all, depth + 1)] : [];
    if (first.properties && depth < DEPTH_MAX) {
      const names = Object.keys(first.properties).filter((name) => all || (first.required ?? []).includes(name));
      return Object.fromEntries(names.map((name) => [name, this.example(first.properties[name], all, depth + 1)]));
    }
    return plainest(first);
  }
}

function plainest(schema) {
  if (schema.format === "uuid") return "01900000-0000-7000-8000-000000000000";
  if (schema.format === "date-time") return "2030-01-01T09:00:00Z";
  return { string: "text", integer: Math.max(0, schema.minimum ?? 0), number: schema.minimum ?? 0, boolean: false, null: null }[schema.type] ?? {};
}

function limits(least, most, unit) {
  if (least === undefined && most === undefined) return "";
  if (least === undefined) return `, at most ${number(most)}${unit}`;
  if (most === undefined) return `, at least ${number(least)}${unit}`;
  return `, ${number(least)} to ${number(most)}${unit}`;
}

const number = (value) => (typeof value === "number" ? value.toLocaleString("en") : String(value));

function defaulted(schema) {
  if (schema.default === undefined || schema.default === null) return null;
  const shown = JSON.stringify(schema.default);
  return shown === "[]" || shown === "{}" ? null : el("span", { class: "default" }, ` default ${shown}`);
}
