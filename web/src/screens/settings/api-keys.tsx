/** API keys: made, shown once, revoked. */

import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { get, post, request } from "@/api/client";
import type { ApiKey, ApiKeys as Keys } from "@/api/schema";
import { formatRelative } from "@/lib/format";
import { useNow } from "@/lib/now";
import { isolated } from "@/lib/text";
import { type Scope, ScopesField } from "@/screens/settings/scopes-field";
import { Button } from "@/ui/button";
import { CopyButton } from "@/ui/copy";
import { Dialog } from "@/ui/dialog";
import { Field, INPUT } from "@/ui/field";
import { Failure, Loading, Panel } from "@/ui/page";
import { Text } from "@/ui/text";
import { toast, toastError } from "@/ui/toast";

const KEYS = ["keys"];

export function ApiKeys() {
  const query = useQuery({ queryKey: KEYS, queryFn: () => get<Keys>("/v1/keys") });
  const [adding, setAdding] = useState(false);
  const live = query.data?.keys.filter((key) => !key.revoked_at) ?? [];
  return (
    <Panel title="API keys" aside={<Button onClick={() => setAdding(true)}>New key</Button>}>
      {query.isPending ? (
        <Loading />
      ) : query.isError ? (
        <Failure error={query.error} />
      ) : live.length === 0 ? (
        <p className="px-4 py-4 text-muted">No API key. Programs exchange one for tokens.</p>
      ) : (
        <ul className="px-4 py-1">
          {live.map((key) => (
            <KeyRow key={key.id} apiKey={key} />
          ))}
        </ul>
      )}
      {adding && <NewKey onClose={() => setAdding(false)} />}
    </Panel>
  );
}

function KeyRow({ apiKey }: { apiKey: ApiKey }) {
  const now = useNow();
  const client = useQueryClient();
  const revoke = useMutation({
    mutationFn: () => request("DELETE", `/v1/keys/${apiKey.id}`),
    onSuccess: () => toast(`Key ${isolated(apiKey.name)} is revoked.`),
    onError: toastError,
    onSettled: () => void client.invalidateQueries({ queryKey: KEYS }),
  });
  const used = apiKey.last_used_at ? `used ${formatRelative(apiKey.last_used_at, now)}` : "never used";
  return (
    <li className="flex items-center gap-3 border-line border-b py-2 last:border-b-0">
      <span className="min-w-0 flex-1">
        <span className="block truncate font-medium">
          <Text>{apiKey.name}</Text>
        </span>
        <span className="block truncate text-muted text-xs">
          {apiKey.prefix}… · {apiKey.scopes.join(", ")} · {used}
          {apiKey.expires_at && ` · expires ${formatRelative(apiKey.expires_at, now)}`}
        </span>
      </span>
      <Button
        look="danger"
        busy={revoke.isPending}
        onClick={() => revoke.mutate()}
        aria-label={`Revoke the key ${isolated(apiKey.name)}`}
      >
        Revoke
      </Button>
    </li>
  );
}

function NewKey({ onClose }: { onClose: () => void }) {
  const [name, setName] = useState("");
  const [scopes, setScopes] = useState<Scope[]>(["submit"]);
  const client = useQueryClient();
  const make = useMutation({
    mutationFn: () => post<ApiKey>("/v1/keys", { name, scopes }),
    onError: toastError,
    onSettled: () => void client.invalidateQueries({ queryKey: KEYS }),
  });
  const key = make.data?.key;
  return (
    <Dialog open onClose={onClose} title="New API key">
      {key ? (
        <div className="flex flex-col gap-3">
          <p>This is the key. It is shown this once.</p>
          <p className="flex items-center gap-2 rounded-md border border-line bg-sunken px-3 py-2 font-mono text-xs">
            <span className="min-w-0 flex-1 break-all">{key}</span>
            <CopyButton text={key} label="Copy the key" />
          </p>
          <Button className="self-end" onClick={onClose}>
            Done
          </Button>
        </div>
      ) : (
        <form
          className="flex flex-col gap-4"
          onSubmit={(event) => {
            event.preventDefault();
            make.mutate();
          }}
        >
          <Field label="Name" required help="for people: the program or team that has it">
            {(props) => (
              <input
                {...props}
                required
                className={INPUT}
                value={name}
                onChange={(event) => setName(event.target.value)}
              />
            )}
          </Field>
          <ScopesField scopes={scopes} onScopes={setScopes} />
          <Button
            look="primary"
            type="submit"
            className="self-end"
            busy={make.isPending}
            disabled={!name || scopes.length === 0}
          >
            Make it
          </Button>
        </form>
      )}
    </Dialog>
  );
}
