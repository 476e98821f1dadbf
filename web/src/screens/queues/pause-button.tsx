import { useMutation, useQueryClient } from "@tanstack/react-query";
import { post } from "@/api/client";
import { keys, useScopes } from "@/api/queries";
import type { Queue, Queues } from "@/api/schema";
import { Button } from "@/ui/button";
import { toast, toastError } from "@/ui/toast";

export function PauseButton({ queue }: { queue: Queue }) {
  const { operate } = useScopes();
  const client = useQueryClient();
  const act = useMutation({
    mutationFn: () => post(`/v1/queues/${encodeURIComponent(queue.name)}/${queue.paused ? "resume" : "pause"}`),
    onSuccess: () => {
      const paused = !queue.paused;
      client.setQueryData<Queues>(keys.queues, (before) =>
        before
          ? { ...before, queues: before.queues.map((one) => (one.name === queue.name ? { ...one, paused } : one)) }
          : before,
      );
      toast(paused ? `Queue ${queue.name} is paused. What runs goes on.` : `Queue ${queue.name} is served again.`);
    },
    onError: toastError,
  });
  if (!operate) return null;
  return (
    <Button
      busy={act.isPending}
      onClick={() => act.mutate()}
      aria-label={`${queue.paused ? "Resume" : "Pause"} ${queue.name}`}
    >
      {queue.paused ? "Resume" : "Pause"}
    </Button>
  );
}
