"""`windlass user`: people who log in with a name and a password."""

import sys
from typing import Annotated

import typer

from windlass.cli import remote
from windlass.cli.key import Scopes, scopes
from windlass.cli.output import Json, Yes, clean, confirm, moment, say, say_json, table
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

app = typer.Typer(help="Add, list and remove people who log in.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="The name to log in with.", metavar="NAME")]


@app.command()
def create(
    name: Name,
    scope: Scopes = "read",
    waiting: Waiting = None,
    threads: AllThreads = None,
    thread_demand: Widest = None,
    timeout: Longest = None,
    rate: Rate = None,
    namespace: Namespace = None,
    as_json: Json = False,
) -> None:
    """Add a user. The password is asked for, or read from stdin where that is no terminal.

    Examples: windlass user create ann --scope operate,read · windlass user create ann --scope submit --waiting 100 <
    password.txt
    """
    quota = quota_said(waiting, threads, thread_demand, timeout, rate)
    password = new_password()
    with remote.client() as client:
        from windlass import wire  # noqa: PLC0415 - help and completion do without
        from windlass.sdk import asks  # noqa: PLC0415

        user = wire.NewUser(name=name, password=password, scopes=scopes(scope), quota=quota, namespace=namespace)
        made = client.ask(asks.add_user(user))
    say_json(made) if as_json else say(f"{clean(made.name)} may {', '.join(made.scopes)}")


@app.command("list")
def list_(as_json: Json = False) -> None:
    """List users and what they may do.

    Example: windlass user list
    """
    with remote.client() as client:
        from windlass.sdk import asks  # noqa: PLC0415

        found = client.ask(asks.users())
    if as_json:
        say_json(found)
        return
    table(
        ["name", "scopes", "created", "quota"],
        ((each.name, ",".join(each.scopes), moment(each.created_at), quota_words(each.quota)) for each in found.users),
        empty="no users",
    )


@app.command()
def remove(name: Name, yes: Yes = False, as_json: Json = False) -> None:
    """Remove a user; what that user is logged in with is refused from then on.

    Example: windlass user remove ann --yes
    """
    if not yes:
        confirm(f"Remove {clean(name)}?")
    with remote.client() as client:
        from windlass.sdk import asks  # noqa: PLC0415

        client.ask(asks.remove_user(name))
    say_json({"name": name, "removed": True}) if as_json else say(f"{clean(name)} is removed")


@app.command()
def password(name: Name, as_json: Json = False) -> None:
    """Give a user a new password; whoever is logged in as that user must log in again.

    Examples: windlass user password ann · windlass user password ann < password.txt
    """
    said = new_password()
    with remote.client() as client:
        from windlass import wire  # noqa: PLC0415
        from windlass.sdk import asks  # noqa: PLC0415

        client.ask(asks.set_password(name, wire.NewPassword(password=said)))
    say_json({"name": name, "changed": True}) if as_json else say(f"{clean(name)} has a new password")


@app.command("scopes")
def set_scopes(
    name: Name, scope: Annotated[str, typer.Argument(help="As submit,read.", metavar="SCOPES")], as_json: Json = False
) -> None:
    """Change what a user may do.

    Example: windlass user scopes ann read,operate
    """
    with remote.client() as client:
        from windlass import wire  # noqa: PLC0415
        from windlass.sdk import asks  # noqa: PLC0415

        changed = client.ask(asks.set_scopes(name, wire.NewScopes(scopes=scopes(scope))))
    say_json(changed) if as_json else say(f"{clean(changed.name)} may {', '.join(changed.scopes)}")


@app.command("quota")
def set_quota(
    name: Name,
    waiting: Waiting = None,
    threads: AllThreads = None,
    thread_demand: Widest = None,
    timeout: Longest = None,
    rate: Rate = None,
    as_json: Json = False,
) -> None:
    """Set what a user may submit. What is not given has no limit.

    Examples: windlass user quota ann --waiting 100 --thread-demand 4 --timeout 10m · windlass user quota ann
    """
    quota = quota_said(waiting, threads, thread_demand, timeout, rate)
    with remote.client() as client:
        from windlass.sdk import asks  # noqa: PLC0415

        changed = client.ask(asks.set_quota(name, quota))
    say_json(changed) if as_json else say(f"{clean(changed.name)} has the quota: {quota_words(changed.quota)}")


@app.command("namespace")
def set_namespace(
    name: Name,
    namespace: Annotated[str | None, typer.Argument(help="Left out: the user's own.", metavar="[NAMESPACE]")] = None,
    as_json: Json = False,
) -> None:
    """Set with whom a user shares idempotency keys and ids.

    Examples: windlass user namespace ann shop · windlass user namespace ann
    """
    with remote.client() as client:
        from windlass import wire  # noqa: PLC0415
        from windlass.sdk import asks  # noqa: PLC0415

        changed = client.ask(asks.set_namespace(name, wire.NewNamespace(namespace=namespace)))
    say_json(changed) if as_json else say(f"{clean(changed.name)} uses {namespace_words(changed.namespace)}")


def new_password() -> str:
    """Asked for twice and not shown; or the first line of stdin, for scripts. Never an argument: those are seen by all."""
    if sys.stdin.isatty():
        asked: str = typer.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
        return asked
    return sys.stdin.readline().rstrip("\r\n")
