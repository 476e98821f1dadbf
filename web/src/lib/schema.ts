/** Payload schemas as form fields: what people fill in, and the JSON that comes of it. */

export interface Schema {
  type?: string | string[];
  title?: string;
  description?: string;
  default?: unknown;
  enum?: unknown[];
  const?: unknown;
  properties?: Record<string, Schema>;
  required?: string[];
  items?: Schema | boolean;
  anyOf?: Schema[];
  oneOf?: Schema[];
  $ref?: string;
  $defs?: Record<string, Schema>;
  format?: string;
  contentEncoding?: string;
  minimum?: number;
  maximum?: number;
  maxLength?: number;
}

export type FieldKind = "text" | "long" | "number" | "integer" | "boolean" | "choice" | "file" | "json";

export interface FormField {
  name: string;
  kind: FieldKind;
  required: boolean;
  nullable: boolean;
  description: string;
  choices: string[];
  placeholder: string;
}

function resolve(schema: Schema, root: Schema): Schema {
  const name = schema.$ref?.split("/").at(-1);
  return name
    ? { ...(root.$defs?.[name] ?? {}), ...(schema.description ? { description: schema.description } : {}) }
    : schema;
}

/** The fields of an object's schema; null where a form cannot show it, and JSON has to. */
export function formFields(schema: Schema | null | undefined): FormField[] | null {
  if (!schema) return null;
  const root = resolve(schema, schema);
  if (!root.properties) return null;
  return Object.entries(root.properties).map(([name, given]) => {
    const whole = resolve(given, schema);
    const options = (whole.anyOf ?? whole.oneOf ?? [whole]).map((one) => resolve(one, schema));
    const real = options.filter((one) => one.type !== "null");
    const numeric = real.length > 1 && real.every(({ type }) => type === "integer" || type === "number");
    const one: Schema = numeric ? { type: "number" } : real.length === 1 ? (real[0] as Schema) : {};
    return {
      name,
      kind: kindOf(one, name),
      required: (root.required ?? []).includes(name),
      nullable: real.length < options.length,
      description: whole.description ?? one.description ?? "",
      choices: (one.enum ?? []).map(String),
      placeholder: whole.default === undefined || whole.default === null ? "" : JSON.stringify(whole.default),
    };
  });
}

function kindOf(schema: Schema, name: string): FieldKind {
  if (schema.enum) return "choice";
  if (schema.contentEncoding === "base64") return "file";
  switch (schema.type) {
    case "string":
      return /image|picture|file/.test(name) ? "file" : /body|text|message|html|content/.test(name) ? "long" : "text";
    case "integer":
      return "integer";
    case "number":
      return "number";
    case "boolean":
      return "boolean";
    default:
      return "json";
  }
}

/** The JSON of what was filled in. Numbers go as they were typed: 12345678901234567890 stays what it is. Throws with the field. */
export function formJson(fields: readonly FormField[], values: Readonly<Record<string, string>>): string {
  const parts: string[] = [];
  for (const field of fields) {
    const value = values[field.name] ?? "";
    if (value === "" && !(field.required && (field.kind === "text" || field.kind === "long"))) {
      if (field.required) throw new FieldError(field.name, "is missing");
      continue;
    }
    parts.push(`${JSON.stringify(field.name)}: ${valueJson(field, value)}`);
  }
  return `{${parts.join(", ")}}`;
}

export class FieldError extends Error {
  readonly field: string;

  constructor(field: string, problem: string) {
    super(problem);
    this.field = field;
  }
}

const NUMBER = /^-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?$/;

function valueJson(field: FormField, value: string): string {
  switch (field.kind) {
    case "number":
    case "integer":
      if (!NUMBER.test(value.trim())) throw new FieldError(field.name, "is no number");
      return value.trim();
    case "boolean":
      return value;
    case "json":
      try {
        JSON.parse(value);
      } catch {
        throw new FieldError(field.name, "is no JSON");
      }
      return value;
    case "choice":
      return /^-?\d+$/.test(value) && field.choices.every((one) => /^-?\d+$/.test(one)) ? value : JSON.stringify(value);
    default:
      return JSON.stringify(value);
  }
}
