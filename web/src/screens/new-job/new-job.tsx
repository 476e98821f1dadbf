/** Submit a job: a type that workers have declared, its payload, and what differs from the type's defaults. */

import { useMutation } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { useMemo, useState } from "react";
import { ApiError, request } from "@/api/client";
import { useTypes } from "@/api/queries";
import type { JobType, Stored } from "@/api/schema";
import { formatDuration } from "@/lib/format";
import { FieldError, formFields, formJson, type Schema } from "@/lib/schema";
import { PayloadForm, type Values } from "@/screens/new-job/payload-form";
import { Button } from "@/ui/button";
import { Dialog } from "@/ui/dialog";
import { Field, INPUT } from "@/ui/field";
import { Text } from "@/ui/text";
import { toast } from "@/ui/toast";

const NOTHING: Values = {};

export function NewJob({ open, onClose }: { open: boolean; onClose: () => void }) {
  return (
    <Dialog open={open} onClose={onClose} title="New job" drawer>
      <NewJobForm onClose={onClose} />
    </Dialog>
  );
}

function NewJobForm({ onClose }: { onClose: () => void }) {
  const types = useTypes().data?.types ?? [];
  const [name, setName] = useState("");
  const type = types.find((one) => one.name === name);
  const fields = useMemo(() => formFields(type?.payload_schema as Schema | null | undefined), [type]);
  const [values, setValues] = useState<Values>(NOTHING);
  const [json, setJson] = useState<string | null>(null);
  const [options, setOptions] = useState<Values>(NOTHING);
  const [errors, setErrors] = useState<Values>(NOTHING);
  const navigate = useNavigate();
  const asJson = json !== null || fields === null;

  const submit = useMutation({
    mutationFn: () => {
      const payload = asJson ? checkedJson(json ?? "") : formJson(fields ?? [], values);
      const given = optionsJson(options);
      const body = `{"type": ${JSON.stringify(name)}, "payload": ${payload || "null"}${given}}`;
      return request<Stored>("POST", "/v1/jobs", { body });
    },
    onSuccess: (stored) => {
      toast(stored.duplicate ? "It was there already." : "Submitted.");
      onClose();
      void navigate({ to: "/jobs/$id", params: { id: stored.id } });
    },
    onError: (error) => setErrors(errorsOf(error)),
  });

  const choose = (next: string) => {
    setName(next);
    setValues(NOTHING);
    setJson(null);
    setErrors(NOTHING);
  };
  const toJson = () => {
    try {
      setJson(formJson(fields ?? [], values));
    } catch {
      setJson("{}");
    }
  };
  return (
    <form
      className="flex flex-col gap-5"
      onSubmit={(event) => {
        event.preventDefault();
        setErrors(NOTHING);
        submit.mutate();
      }}
    >
      <Field label="Type" required error={errors.type} help={type?.description ?? undefined}>
        {(props) => (
          <>
            <input
              {...props}
              list="job-types"
              required
              className={INPUT}
              placeholder="What picks the handler"
              value={name}
              onChange={(event) => choose(event.target.value)}
            />
            <datalist id="job-types">
              {types.map((one) => (
                <option key={one.name} value={one.name} />
              ))}
            </datalist>
          </>
        )}
      </Field>
      <fieldset className="flex flex-col gap-3">
        <legend className="mb-2 flex w-full items-center">
          <span className="flex-1 font-semibold">Payload</span>
          {fields !== null && (
            <Button look="quiet" onClick={() => (asJson ? setJson(null) : toJson())}>
              {asJson ? "As a form" : "As JSON"}
            </Button>
          )}
        </legend>
        {asJson ? (
          <Field label="JSON" error={errors.payload ?? errors.json}>
            {(props) => (
              <textarea
                {...props}
                rows={8}
                className={`${INPUT} h-auto py-1.5 font-mono text-xs`}
                placeholder='{"name": "value"}'
                value={json ?? ""}
                onChange={(event) => setJson(event.target.value)}
              />
            )}
          </Field>
        ) : (
          <PayloadForm fields={fields ?? []} values={values} errors={errors} onChange={setValues} />
        )}
      </fieldset>
      <Options type={type} values={options} errors={errors} onChange={setOptions} />
      {errors[""] && (
        <p role="alert" className="text-red">
          <Text>{errors[""]}</Text>
        </p>
      )}
      <div className="flex justify-end gap-2">
        <Button onClick={onClose}>Close</Button>
        <Button look="primary" type="submit" busy={submit.isPending} disabled={!name}>
          Submit
        </Button>
      </div>
    </form>
  );
}

/** By field; the empty name has what belongs to none. The server names payload fields as `payload.lines[1].price`. */
export function errorsOf(error: unknown): Values {
  if (error instanceof FieldError) return { [error.field]: error.message };
  if (!(error instanceof ApiError)) return { "": error instanceof Error ? error.message : String(error) };
  const path = error.field ?? "";
  const top = /^payload\.([^.[]+)/.exec(path)?.[1];
  const problem = error.message.replace(/^[\w.[\]]+: /, "");
  if (top) return { [top]: path === `payload.${top}` ? problem : error.message, payload: error.message };
  return { [path]: problem };
}

function checkedJson(text: string): string {
  if (!text.trim()) return "";
  try {
    JSON.parse(text);
  } catch (error) {
    throw new FieldError("json", `is no JSON: ${(error as Error).message}`);
  }
  return text;
}

const NUMBERS = ["priority", "thread_demand", "max_attempts", "timeout_s", "delay_s"];

/** The options that were filled in, as the rest of the JSON object. */
export function optionsJson(options: Values): string {
  return Object.entries(options)
    .filter(([, value]) => value !== "")
    .map(([name, value]) => {
      if (NUMBERS.includes(name)) {
        if (Number.isNaN(Number(value))) throw new FieldError(name, "is no number");
        return `, "${name}": ${Number(value)}`;
      }
      if (name === "tags")
        return `, "tags": ${JSON.stringify(
          value
            .split(",")
            .map((tag) => tag.trim())
            .filter(Boolean),
        )}`;
      if (name === "scheduled_at") return `, "scheduled_at": ${JSON.stringify(new Date(value).toISOString())}`;
      return `, "${name}": ${JSON.stringify(value)}`;
    })
    .join("");
}

interface OptionsProps {
  type: JobType | undefined;
  values: Values;
  errors: Values;
  onChange: (values: Values) => void;
}

function Options({ type, values, errors, onChange }: OptionsProps) {
  const fields: [string, string, string, string?][] = [
    ["name", "Name", "for people"],
    ["queue", "Queue", type?.queue ?? "default"],
    ["priority", "Priority", String(type?.priority ?? 0)],
    ["thread_demand", "Threads", String(type?.thread_demand ?? 1)],
    ["max_attempts", "Attempts", String(type?.max_attempts ?? 3)],
    ["timeout_s", "Timeout, seconds", type ? `${type.timeout_s} (${formatDuration(type.timeout_s)})` : "3600"],
    ["scheduled_at", "Not before", "", "datetime-local"],
    ["tags", "Tags", "a, b"],
    ["idempotency_key", "Idempotency key", "none"],
  ];
  return (
    <details open={Object.keys(errors).some((name) => fields.some(([field]) => field === name)) || undefined}>
      <summary className="font-semibold">Options</summary>
      <div className="mt-3 grid grid-cols-2 gap-3">
        {fields.map(([name, label, placeholder, kind]) => (
          <Field key={name} label={label} error={errors[name]}>
            {(props) => (
              <input
                {...props}
                type={kind ?? "text"}
                className={INPUT}
                placeholder={placeholder}
                value={values[name] ?? ""}
                onChange={(event) => onChange({ ...values, [name]: event.target.value })}
              />
            )}
          </Field>
        ))}
      </div>
    </details>
  );
}
