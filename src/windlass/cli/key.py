"""`windlass key`: API keys, for programs. Each is shown once, when it is made."""

from typing import Annotated, Any
from uuid import UUID

import typer

from windlass.cli import remote
from windlass.cli.filters import seconds
from windlass.cli.output import Json, Yes, ago, confirm, note, say, say_json, table
from windlass.cli.quotas import (
    AllThreads,
    Longest,
    Namespace,
    Rate,
    Waiting,
    Widest,
    namespace_words,
    quota_said,
    quota_words,
)

app = typer.Typer(help="Make, list and revoke API keys for programs.", no_args_is_help=True)

Scopes = Annotated[
    str, typer.Option("--scope", help="What it may do: submit, read, operate, admin; several as a,b.", metavar="SCOPES")
]

KeyId = Annotated[UUID, typer.Argument(help="The key, by the id that `list` shows.", metavar="ID")]


@app.command()
def create(
    name: Annotated[str, typer.Argument(help="What it is for.", metavar="NAME")],
    scope: Scopes = "submit,read",
    ttl: Annotated[str | None, typer.Option(help="How long it is good for: 12h, 90d; else for ever.")] = None,
    waiting: Waiting = None,
    threads: AllThreads = None,
    thread_demand: Widest = None,
    timeout: Longest = None,
    rate: Rate = None,
    namespace: Namespace = None,
    as_json: Json = False,
) -> None:
    """Make an API key and print it. It is shown this once: only a digest is kept.

    Examples: windlass key create shop --scope submit,read · windlass key create ci --scope submit --ttl 90d --waiting
    100
    """
    quota = quota_said(waiting, threads, thread_demand, timeout, rate)
    ttl_s = seconds("--ttl", ttl)
    with remote.client() as client:
        from windlass import wire  # noqa: PLC0415 - help and completion do without
        from windlass.sdk import asks  # noqa: PLC0415

        key = wire.NewKey(name=name, scopes=scopes(scope), ttl_s=ttl_s, quota=quota, namespace=namespace)
        made = client.ask(asks.add_key(key))
    if as_json:
        say_json(made)
    else:
        say(made.key or "")
        note(f"id {made.id}; keep the key now, it is not shown again")


@app.command("list")
def list_(as_json: Json = False) -> None:
    """List API keys, by the beginning of each.

    Example: windlass key list
    """
    with remote.client() as client:
        from windlass.sdk import asks  # noqa: PLC0415

        found = client.ask(asks.keys())
    if as_json:
        say_json(found)
        return
    table(
        ["id", "key", "scopes", "created", "used", "state", "quota", "name"],
        (
            (
                each.id,
                f"{each.prefix}…",
                ",".join(each.scopes),
                ago(each.created_at),
                ago(each.last_used_at) or "never",
                _state(each),
                quota_words(each.quota),
                each.name,
            )
            for each in found.keys
        ),
        empty="no keys",
    )


@app.command("quota")
def set_quota(
    key_id: KeyId,
    waiting: Waiting = None,
    threads: AllThreads = None,
    thread_demand: Widest = None,
    timeout: Longest = None,
    rate: Rate = None,
    as_json: Json = False,
) -> None:
    """Set what an API key may submit. What is not given has no limit.

    Example: windlass key quota 0190a4f2-7b1c-7def-8a35-2f4bb1a9c0de --waiting 1000 --rate 50
    """
    quota = quota_said(waiting, threads, thread_demand, timeout, rate)
    with remote.client() as client:
        from windlass.sdk import asks  # noqa: PLC0415

        changed = client.ask(asks.set_quota(key_id, quota))
    say_json(changed) if as_json else say(f"{key_id} has the quota: {quota_words(changed.quota)}")


@app.command("namespace")
def set_namespace(
    key_id: KeyId,
    namespace: Annotated[str | None, typer.Argument(help="Left out: the key's own.", metavar="[NAMESPACE]")] = None,
    as_json: Json = False,
) -> None:
    """Set with whom an API key shares idempotency keys and ids.

    Example: windlass key namespace 0190a4f2-7b1c-7def-8a35-2f4bb1a9c0de shop
    """
    with remote.client() as client:
        from windlass import wire  # noqa: PLC0415
        from windlass.sdk import asks  # noqa: PLC0415

        changed = client.ask(asks.set_namespace(key_id, wire.NewNamespace(namespace=namespace)))
    say_json(changed) if as_json else say(f"{key_id} uses {namespace_words(changed.namespace)}")


@app.command()
def revoke(
    key_id: KeyId,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Revoke an API key, for good.

    Example: windlass key revoke 0190a4f2-7b1c-7def-8a35-2f4bb1a9c0de --yes
    """
    if not yes:
        confirm(f"Revoke {key_id}? Programs that use it will be refused.")
    with remote.client() as client:
        from windlass.sdk import asks  # noqa: PLC0415

        client.ask(asks.revoke_key(key_id))
    say_json({"id": key_id, "revoked": True}) if as_json else say(f"{key_id} is revoked")


def scopes(text: str) -> Any:
    """The scopes that were said; an unknown one is refused here, with those there are."""
    from windlass.auth.scopes import parsed  # noqa: PLC0415

    return list(parsed(text))


def _state(key: Any) -> str:
    if key.revoked_at is not None:
        return "revoked"
    return "good" if key.expires_at is None else f"ends {ago(key.expires_at)}"
