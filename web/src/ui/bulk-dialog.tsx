/** Before many jobs are touched: how many that is. While it happens: how far it is, and a way to stop. */

import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useEffect, useRef, useState } from "react";
import { askForJobs } from "@/api/queries";
import { type BulkProgress, type BulkTarget, type BulkVerb, countMatching, runBulk } from "@/lib/bulk";
import { formatCount, plural } from "@/lib/format";
import { isolated } from "@/lib/text";
import { Button } from "@/ui/button";
import { Dialog } from "@/ui/dialog";
import { Text } from "@/ui/text";
import { toast, toastError } from "@/ui/toast";

const WORDS: Record<BulkVerb, { title: string; button: string; done: string; note: string; danger: boolean }> = {
  cancel: {
    title: "Cancel jobs",
    button: "Cancel them",
    done: "cancelled",
    note: "Waiting jobs end at once. Running ones are asked to stop.",
    danger: true,
  },
  retry: {
    title: "Retry jobs",
    button: "Retry them",
    done: "retried",
    note: "Finished jobs run again, with all their attempts anew.",
    danger: false,
  },
  "run-now": {
    title: "Run jobs now",
    button: "Run them now",
    done: "made ready",
    note: "Scheduled and held jobs become ready at once.",
    danger: false,
  },
  replay: {
    title: "Replay dead letters",
    button: "Replay them",
    done: "replayed",
    note: "They run again, with all their attempts anew.",
    danger: false,
  },
  discard: {
    title: "Discard dead letters",
    button: "Discard them",
    done: "discarded",
    note: "They become cancelled, keep their attempts, and are removed with the other finished jobs.",
    danger: true,
  },
};

const RATES = [undefined, 1, 10, 100, 1000] as const;

interface Props {
  verb: BulkVerb | null;
  targets: readonly BulkTarget[];
  onClose: () => void;
  onDone?: () => void;
  /** Offer a pace: a replay of 100,000 jobs at once may be what broke the receiver. */
  paced?: boolean;
}

export function BulkDialog({ verb, targets, onClose, onDone, paced = false }: Props) {
  return verb && <OpenBulkDialog verb={verb} targets={targets} onClose={onClose} onDone={onDone} paced={paced} />;
}

function OpenBulkDialog({
  verb,
  targets,
  onClose,
  onDone,
  paced,
}: {
  verb: BulkVerb;
  targets: readonly BulkTarget[];
  onClose: () => void;
  onDone: (() => void) | undefined;
  paced: boolean;
}) {
  const words = WORDS[verb];
  const client = useQueryClient();
  const [rate, setRate] = useState<number | undefined>(undefined);
  const [progress, setProgress] = useState<BulkProgress | null>(null);
  const [running, setRunning] = useState(false);
  const stop = useRef<AbortController | null>(null);
  useEffect(() => () => stop.current?.abort(), []);
  const preview = useQuery({
    queryKey: ["bulk", verb, targets],
    queryFn: () => countMatching(verb, targets),
    gcTime: 0,
    refetchOnWindowFocus: false,
  });
  const count = preview.data?.count;
  const start = async () => {
    stop.current = new AbortController();
    setRunning(true);
    try {
      const result = await runBulk(verb, targets, { rate, signal: stop.current.signal, onProgress: setProgress });
      toast(
        `${plural(result.done, "job")} ${words.done}${result.refused ? `, ${formatCount(result.refused)} not: ${isolated(result.why ?? "")}` : ""}.`,
      );
      onDone?.();
      onClose();
    } catch (error) {
      toastError(error);
    } finally {
      setRunning(false);
      askForJobs(client);
      void client.invalidateQueries({ queryKey: ["dead-letters"] });
    }
  };
  return (
    <Dialog
      open
      onClose={running ? () => undefined : onClose}
      title={words.title}
      note={words.note}
      footer={
        running ? (
          <Button look="danger" onClick={() => stop.current?.abort()}>
            Stop
          </Button>
        ) : (
          <>
            <Button onClick={onClose}>Close</Button>
            <Button look={words.danger ? "danger" : "primary"} disabled={!count} onClick={() => void start()}>
              {words.button}
            </Button>
          </>
        )
      }
    >
      <p className="text-base" aria-live="polite">
        {preview.isPending && "Counting …"}
        {preview.isError && (
          <span className="text-red">
            <Text>{(preview.error as Error).message}</Text>
          </span>
        )}
        {count !== undefined && (
          <>
            This will affect <strong className="tabular">{plural(count, "job")}</strong>
            {preview.data?.more && " or more"}.
          </>
        )}
      </p>
      {paced && !running && (
        <label className="mt-4 flex items-center gap-3">
          Pace
          <select
            value={rate ?? ""}
            onChange={(event) => setRate(event.target.value ? Number(event.target.value) : undefined)}
            className="h-8 rounded-md border border-line-strong bg-raised px-2"
          >
            {RATES.map((each) => (
              <option key={each ?? "all"} value={each ?? ""}>
                {each ? `${formatCount(each)} a second` : "as fast as possible"}
              </option>
            ))}
          </select>
        </label>
      )}
      {progress && (
        <div className="mt-4">
          <progress
            className="w-full accent-accent"
            aria-label="Progress"
            max={Math.max(count ?? 0, progress.matched)}
            value={progress.done}
          />
          <p className="tabular text-muted">
            {formatCount(progress.done)} of {formatCount(Math.max(count ?? 0, progress.matched))} {words.done}
            {progress.refused > 0 && `, ${formatCount(progress.refused)} not`}
          </p>
        </div>
      )}
    </Dialog>
  );
}
