/** What can be done to a worker: drain it, or stop it. Neither without a question: one leaves a place empty, the other cuts jobs off. */
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { post } from "@/api/client";
import { keys } from "@/api/queries";
import type { Worker } from "@/api/schema";
import { plural } from "@/lib/format";
import { Button } from "@/ui/button";
import { Dialog } from "@/ui/dialog";
import { Menu } from "@/ui/menu";
import { toast, toastError } from "@/ui/toast";

type Verb = "drain" | "stop";

const TEXTS: Record<Verb, { title: string; button: string; does: string; done: string }> = {
  drain: {
    title: "Drain",
    button: "Drain it",
    does: "It claims no more jobs, finishes those it runs, and goes. No other worker takes its place: start one when you need it again.",
    done: "finishes its jobs and goes.",
  },
  stop: {
    title: "Stop",
    button: "Stop it",
    does: "Its running jobs are given back at once and start again, here or elsewhere. No attempt is used up. Its supervisor starts another worker in its place.",
    done: "gives its jobs back and is replaced.",
  },
};

export function WorkerMenu({ worker }: { worker: Worker }) {
  const [asking, setAsking] = useState<Verb | null>(null);
  const client = useQueryClient();
  const act = useMutation({
    mutationFn: (verb: Verb) => post(`/v1/workers/${worker.id}/${verb}`),
    onSuccess: (_, verb) => toast(`${worker.name} ${TEXTS[verb].done}`),
    onError: toastError,
    onSettled: () => void client.invalidateQueries({ queryKey: keys.workers }),
  });
  const text = TEXTS[asking ?? "drain"];
  const running = worker.jobs - (worker.claimed ?? 0);
  return (
    <>
      <Menu
        label={`Actions on ${worker.name}`}
        trigger={<Button aria-label={`Actions on ${worker.name}`}>Actions</Button>}
        items={[
          {
            label: "Drain …",
            note: "finish what runs, then go",
            onSelect: () => setAsking("drain"),
            disabled: worker.status === "draining",
          },
          { label: "Stop …", note: "give jobs back, start anew", danger: true, onSelect: () => setAsking("stop") },
        ]}
      />
      <Dialog
        open={asking !== null}
        onClose={() => setAsking(null)}
        title={`${text.title} ${worker.name}`}
        footer={
          <>
            <Button onClick={() => setAsking(null)}>Close</Button>
            <Button
              look={asking === "stop" ? "danger" : "primary"}
              onClick={() => {
                if (asking) act.mutate(asking);
                setAsking(null);
              }}
            >
              {text.button}
            </Button>
          </>
        }
      >
        <p>{text.does}</p>
        <p className="mt-2 text-muted">{running ? `It runs ${plural(running, "job")} now.` : "It runs nothing now."}</p>
      </Dialog>
    </>
  );
}
