import { execFileSync } from "node:child_process";
import { expect, it } from "vitest";
import type { Job } from "@/api/schema";
import { copyAs, quote } from "@/screens/job/copy-as";

const job = (fields: Partial<Job> = {}): Job =>
  ({
    type: "send_mail",
    name: null,
    queue: "default",
    priority: 0,
    thread_demand: 1,
    max_attempts: 3,
    timeout_s: 3600,
    tags: [],
    ...fields,
  }) as Job;

/** The words a POSIX shell makes of a line. */
const words = (line: string): string[] =>
  execFileSync("sh", ["-c", `printf '%s\\0' ${line}`], { encoding: "utf8" })
    .split("\0")
    .slice(0, -1);

it.each(["plain", "it's", `"both" 'kinds'`, "$HOME `id` $(id)", "a\nb", "\\", "!x", "*", "", "שלום; rm -rf /"])(
  "quotes %j as one word of a shell",
  (text) => {
    expect(words(quote(text))).toEqual([text]);
  },
);

it("writes numbers as they were stored, and only what differs from the defaults", () => {
  const line = copyAs("cli", job({ priority: -5, tags: ["a b", "c"] }), '{"n": 12345678901234567890}');
  expect(words(line)).toEqual(
    'windlass|submit|send_mail|{"n": 12345678901234567890}|--priority|-5|--tag|a b|--tag|c'.split("|"),
  );
});

it("writes a curl whose body is the job", () => {
  const line = copyAs("curl", job({ name: 'it\'s "quoted"' }), '{"text": "it\'s"}').replace("\\\n", "");
  const body = words(line).at(-1) as string;
  expect(JSON.parse(body)).toEqual({ type: "send_mail", payload: { text: "it's" }, name: 'it\'s "quoted"' });
});

it("writes Python whose strings are Python's", () => {
  const text = copyAs("python", job({ queue: "mail", tags: ["x"] }), '{"a": "\\"b\\""}');
  expect(text).toContain("import json\n\nfrom windlass import Client");
  expect(text).toContain(
    'client.submit("send_mail", json.loads("{\\"a\\": \\"\\\\\\"b\\\\\\"\\"}"), queue="mail", tags=["x"])',
  );
});
