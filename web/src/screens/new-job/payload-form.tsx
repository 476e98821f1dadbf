/** The payload of a new job: a form made from what the type's workers declared, or JSON. */
import type { FormField } from "@/lib/schema";
import { Field, INPUT } from "@/ui/field";

export type Values = Readonly<Record<string, string>>;

interface Props {
  fields: readonly FormField[];
  values: Values;
  errors: Values;
  onChange: (values: Values) => void;
}

export function PayloadForm({ fields, values, errors, onChange }: Props) {
  if (fields.length === 0) return <p className="text-muted">This type takes no arguments.</p>;
  return (
    <div className="flex flex-col gap-3">
      {fields.map((field) => (
        <Field
          key={field.name}
          label={field.name}
          required={field.required}
          help={field.description}
          error={errors[field.name]}
        >
          {(props) => (
            <Input
              {...props}
              field={field}
              value={values[field.name] ?? ""}
              onChange={(value) => onChange({ ...values, [field.name]: value })}
            />
          )}
        </Field>
      ))}
    </div>
  );
}

interface InputProps {
  id: string;
  "aria-describedby": string | undefined;
  "aria-invalid": true | undefined;
  field: FormField;
  value: string;
  onChange: (value: string) => void;
}

function Input({ field, value, onChange, ...props }: InputProps) {
  switch (field.kind) {
    case "boolean":
    case "choice":
      return (
        <select {...props} className={INPUT} value={value} onChange={(event) => onChange(event.target.value)}>
          <option value="">{field.placeholder ? `default: ${field.placeholder}` : "–"}</option>
          {(field.kind === "boolean" ? ["true", "false"] : field.choices).map((choice) => (
            <option key={choice}>{choice}</option>
          ))}
        </select>
      );
    case "file":
      return <FileInput {...props} value={value} onChange={onChange} />;
    case "long":
    case "json":
      return (
        <textarea
          {...props}
          rows={field.kind === "json" ? 2 : 3}
          className={`${INPUT} h-auto py-1.5 ${field.kind === "json" ? "font-mono text-xs" : ""}`}
          placeholder={field.placeholder || (field.kind === "json" ? "JSON" : "")}
          value={value}
          onChange={(event) => onChange(event.target.value)}
        />
      );
    default:
      return (
        <input
          {...props}
          className={INPUT}
          inputMode={field.kind === "text" ? "text" : "decimal"}
          placeholder={field.placeholder}
          value={value}
          onChange={(event) => onChange(event.target.value)}
        />
      );
  }
}

/** A file as base64, or the text itself. */
function FileInput({ value, onChange, ...props }: Omit<InputProps, "field">) {
  const read = async (file: File | undefined) => {
    if (!file) return;
    const bytes = new Uint8Array(await file.arrayBuffer());
    let text = "";
    for (let at = 0; at < bytes.length; at += 0x8000) text += String.fromCharCode(...bytes.subarray(at, at + 0x8000));
    onChange(btoa(text));
  };
  return (
    <div className="flex flex-col gap-1.5">
      <input
        {...props}
        type="file"
        onChange={(event) => void read(event.target.files?.[0])}
        className="text-muted file:mr-3 file:h-8 file:rounded-md file:border file:border-line file:bg-raised file:px-3 file:text-text"
      />
      <input
        className={`${INPUT} font-mono text-xs`}
        aria-label="The same as base64"
        placeholder="or base64"
        value={value}
        onChange={(event) => onChange(event.target.value)}
      />
    </div>
  );
}
