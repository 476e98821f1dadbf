/** What an empty cluster shows: a line to paste, and a button that fills it with a few jobs of every kind. */
import { useMutation } from "@tanstack/react-query";
import { serverPath } from "@/api/base";
import { post } from "@/api/client";
import { useScopes, useTypes } from "@/api/queries";
import type { StoredMany } from "@/api/schema";
import { Button } from "@/ui/button";
import { CopyButton } from "@/ui/copy";
import { Panel } from "@/ui/page";
import { toast, toastError } from "@/ui/toast";

/** A few jobs of each built-in kind: quick ones, slow ones, a wide one, some for later, some that fail. */
export function demonstration(): object[] {
  const tags = ["demo"];
  const many = (count: number, job: (n: number) => object) =>
    Array.from({ length: count }, (_, n) => ({ tags, ...job(n) }));
  return [
    ...many(40, (n) => ({ type: "add_numbers", payload: { a: n, b: 1 } })),
    ...many(20, (n) => ({ type: "reverse_string", payload: { text: `job ${n}` }, priority: 10 })),
    ...many(12, () => ({ type: "io_intensive", payload: { task: "demo", duration_s: 1.5 } })),
    ...many(3, () => ({
      type: "large_array_sum",
      payload: { count: 2_000_000 },
      thread_demand: 2,
      name: "a wide job",
    })),
    ...many(5, (n) => ({ type: "reverse_string", payload: { text: "later" }, delay_s: 20 + n, name: "for later" })),
    ...many(4, () => ({
      type: "default",
      payload: { task: "demo", fail: true },
      max_attempts: 2,
      name: "always fails",
    })),
  ];
}

export function FirstSteps() {
  const { submit } = useScopes();
  const known = useTypes().data?.types.some((type) => type.name === "add_numbers" && type.alive);
  const run = useMutation({
    mutationFn: () => post<StoredMany>("/v1/jobs/bulk", demonstration()),
    onSuccess: ({ ids }) => toast(`${ids.length} jobs were submitted.`),
    onError: toastError,
  });
  const curl = `curl -s ${location.origin}${serverPath("/v1/jobs")} -H "Authorization: Bearer $TOKEN" \\\n  -H 'Content-Type: application/json' -d '{"type": "add_numbers", "payload": {"a": 2, "b": 3}}'`;
  return (
    <Panel>
      <div className="mx-auto flex max-w-2xl flex-col gap-5 px-6 py-10">
        <div>
          <h2 className="font-semibold text-lg">No job has been submitted yet</h2>
          <p className="mt-1 text-muted">
            Submit one from a program, a shell or here. It is stored in PostgreSQL before you get an answer, and shows
            up on this page as it moves.
          </p>
        </div>
        <ol className="flex flex-col gap-4">
          <li>
            <p className="font-medium">Paste this into a terminal</p>
            <div className="relative mt-1.5">
              <pre
                tabIndex={0}
                className="overflow-x-auto rounded-md border border-line bg-sunken py-2.5 pr-10 pl-3 font-mono text-xs"
              >
                {`export TOKEN=$(windlass token create --scope submit --ttl 1h)\n${curl}`}
              </pre>
              <span className="absolute top-1.5 right-1.5">
                <CopyButton
                  label="Copy the command"
                  text={`export TOKEN=$(windlass token create --scope submit --ttl 1h)\n${curl}`}
                />
              </span>
            </div>
          </li>
          <li>
            <p className="font-medium">Or press “New job”</p>
            <p className="text-muted">The form is made from what the workers have declared.</p>
          </li>
          {submit && known && (
            <li>
              <p className="font-medium">Or watch a demonstration</p>
              <p className="mb-2 text-muted">
                Eighty-four small jobs of the built-in types: quick, slow and wide ones, some for later, and four that
                fail.
              </p>
              <Button look="primary" busy={run.isPending} onClick={() => run.mutate()}>
                Run a demonstration
              </Button>
            </li>
          )}
        </ol>
      </div>
    </Panel>
  );
}
