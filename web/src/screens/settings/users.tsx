/** Users: added with a password, given scopes, removed. */

import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { get, post, request } from "@/api/client";
import type { User, Users as UserList } from "@/api/schema";
import { formatMoment } from "@/lib/format";
import { isolated } from "@/lib/text";
import { type Scope, ScopesField } from "@/screens/settings/scopes-field";
import { Button } from "@/ui/button";
import { Dialog } from "@/ui/dialog";
import { Field, INPUT } from "@/ui/field";
import { Failure, Loading, Panel } from "@/ui/page";
import { Text } from "@/ui/text";
import { toast, toastError } from "@/ui/toast";

const USERS = ["users"];

export function Users() {
  const query = useQuery({ queryKey: USERS, queryFn: () => get<UserList>("/v1/users") });
  const [adding, setAdding] = useState(false);
  return (
    <Panel title="Users" aside={<Button onClick={() => setAdding(true)}>New user</Button>}>
      {query.isPending ? (
        <Loading />
      ) : query.isError ? (
        <Failure error={query.error} />
      ) : query.data.users.length === 0 ? (
        <p className="px-4 py-4 text-muted">No user. A user logs in here with name and password.</p>
      ) : (
        <ul className="px-4 py-1">
          {query.data.users.map((user) => (
            <UserRow key={user.name} user={user} />
          ))}
        </ul>
      )}
      {adding && <NewUser onClose={() => setAdding(false)} />}
    </Panel>
  );
}

function UserRow({ user }: { user: User }) {
  const client = useQueryClient();
  const remove = useMutation({
    mutationFn: () => request("DELETE", `/v1/users/${encodeURIComponent(user.name)}`),
    onSuccess: () => toast(`${isolated(user.name)} is removed; the sessions end within seconds.`),
    onError: toastError,
    onSettled: () => void client.invalidateQueries({ queryKey: USERS }),
  });
  return (
    <li className="flex items-center gap-3 border-line border-b py-2 last:border-b-0">
      <span className="min-w-0 flex-1">
        <span className="block truncate font-medium">
          <Text>{user.name}</Text>
        </span>
        <span className="block truncate text-muted text-xs">
          {user.scopes.join(", ")} · since {formatMoment(user.created_at)}
        </span>
      </span>
      <Button
        look="danger"
        busy={remove.isPending}
        onClick={() => remove.mutate()}
        aria-label={`Remove the user ${isolated(user.name)}`}
      >
        Remove
      </Button>
    </li>
  );
}

function NewUser({ onClose }: { onClose: () => void }) {
  const [name, setName] = useState("");
  const [password, setPassword] = useState("");
  const [scopes, setScopes] = useState<Scope[]>(["read"]);
  const client = useQueryClient();
  const add = useMutation({
    mutationFn: () => post<User>("/v1/users", { name, password, scopes }),
    onSuccess: () => {
      toast(`${isolated(name)} can log in.`);
      onClose();
    },
    onSettled: () => void client.invalidateQueries({ queryKey: USERS }),
  });
  return (
    <Dialog open onClose={onClose} title="New user">
      <form
        className="flex flex-col gap-4"
        onSubmit={(event) => {
          event.preventDefault();
          add.mutate();
        }}
      >
        <Field label="Name" required>
          {(props) => (
            <input
              {...props}
              required
              autoComplete="off"
              className={INPUT}
              value={name}
              onChange={(event) => setName(event.target.value)}
            />
          )}
        </Field>
        <Field label="Password" required help="at least 8 characters">
          {(props) => (
            <input
              {...props}
              required
              type="password"
              minLength={8}
              autoComplete="new-password"
              className={INPUT}
              value={password}
              onChange={(event) => setPassword(event.target.value)}
            />
          )}
        </Field>
        <ScopesField scopes={scopes} onScopes={setScopes} />
        {add.isError && (
          <p role="alert" className="text-red">
            <Text>{add.error.message}</Text>
          </p>
        )}
        <Button look="primary" type="submit" className="self-end" busy={add.isPending} disabled={scopes.length === 0}>
          Add
        </Button>
      </form>
    </Dialog>
  );
}
