"""`windlass key`: API keys, for programs. Each is shown once, when it is made."""

from typing import Annotated, Any
from uuid import UUID

import typer

from windlass.cli import remote
from windlass.cli.filters import seconds
from windlass.cli.output import Json, Yes, ago, confirm, note, say, say_json, table

app = typer.Typer(help="Make, list and revoke API keys for programs.", no_args_is_help=True)

Scopes = Annotated[
    str, typer.Option("--scope", help="What it may do: submit, read, operate, admin; several as a,b.", metavar="SCOPES")
]


@app.command()
def create(
    name: Annotated[str, typer.Argument(help="What it is for.", metavar="NAME")],
    scope: Scopes = "submit,read",
    ttl: Annotated[str | None, typer.Option(help="How long it is good for: 12h, 90d; else for ever.")] = None,
    as_json: Json = False,
) -> None:
    """Make an API key and print it. It is shown this once: only a digest is kept.

    Examples: windlass key create shop --scope submit,read · windlass key create ci --scope submit --ttl 90d
    """
    ttl_s = seconds("--ttl", ttl)
    with remote.client() as client:
        from windlass import wire  # noqa: PLC0415 - help and completion do without
        from windlass.sdk import asks  # noqa: PLC0415

        made = client.ask(asks.add_key(wire.NewKey(name=name, scopes=scopes(scope), ttl_s=ttl_s)))
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
        ["id", "key", "scopes", "created", "used", "state", "name"],
        (
            (
                each.id,
                f"{each.prefix}…",
                ",".join(each.scopes),
                ago(each.created_at),
                ago(each.last_used_at) or "never",
                _state(each),
                each.name,
            )
            for each in found.keys
        ),
        empty="no keys",
    )


@app.command()
def revoke(
    key_id: Annotated[UUID, typer.Argument(help="The key, by the id that `list` shows.", metavar="ID")],
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
