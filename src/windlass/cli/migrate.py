"""`windlass migrate`: bring the schema to what this version needs, undo it, or say where it stands."""

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict
from typing import Annotated, TypeVar
from urllib.parse import unquote, urlsplit

import typer

from windlass.cli.wiring import run, settings
from windlass.config import StoreConfig
from windlass.errors import Misconfigured, SchemaMismatch
from windlass.store import grants as rights
from windlass.store import migrate
from windlass.store.connections import connect
from windlass.store.grants import KINDS
from windlass.store.postgres import Connection
from windlass.store.protocol import Rolled
from windlass.store.setup_check import check_setup
from windlass.store.store import open_store

T = TypeVar("T")

app = typer.Typer(help="Bring the database's schema to what this version needs.", no_args_is_help=True)
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command()
def upgrade(as_json: Json = False) -> None:
    """Apply what is missing. Safe when several processes do it at once.

    Example: WINDLASS_DATABASE_URL=postgresql://localhost/app windlass migrate upgrade
    """
    applied = _with_connection(lambda c, s: migrate.upgrade(c, s.schema, ahead=s.partitions_ahead))
    _say({"applied": applied}, f"applied {applied}" if applied else "nothing to apply", as_json=as_json)


@app.command()
def downgrade(
    to: Annotated[int, typer.Option(help="The migration to go back to; 0 removes everything.", min=0)],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask; undoing the tables drops every job.")] = False,
    as_json: Json = False,
) -> None:
    """Undo migrations above --to, newest first. Undoing the tables drops every job.

    Example: windlass migrate downgrade --to 3
    """
    if not yes:
        typer.confirm(f"Undo every migration above {to}? Jobs may be lost.", abort=True)
    undone = _with_connection(lambda c, s: migrate.downgrade(c, s.schema, to=to))
    _say({"undone": undone}, f"undone {undone}" if undone else "nothing to undo", as_json=as_json)


@app.command()
def status(as_json: Json = False) -> None:
    """Say which migrations are applied, which are to come, and what is wrong.

    Example: windlass migrate status --json
    """
    state = _with_connection(lambda c, s: migrate.status(c, s.schema))
    found = {"applied": state.applied, "pending": state.pending, "newer": state.newer, "problems": state.problems}
    lines = [f"applied: {list(state.applied)}", f"pending: {list(state.pending)}"]
    lines += [f"newer than this version, and serve it: {list(state.newer)}"] if state.newer else []
    lines += state.problems
    _say(found, "\n".join(lines), as_json=as_json)
    if state.problems:
        raise typer.Exit(SchemaMismatch.exit_code)


@app.command()
def check(as_json: Json = False) -> None:
    """Exit with an error unless this version can work with the schema. Tells what else matters: a pooler, rights, partitions.

    Example: windlass migrate check && windlass worker --app tasks:app
    """
    report = run(check_setup(settings().store))
    _say(report.as_json(), "\n".join(report.lines()), as_json=as_json)


@app.command()
def grants(
    role: Annotated[str, typer.Option(help="The role that gets the rights. It must exist.")],
    kind: Annotated[
        list[str], typer.Option("--for", help="What the role is for; may be repeated.", metavar="|".join(KINDS))
    ],
) -> None:
    """Print the least rights that a role needs, as SQL: to enqueue, to serve the API, to run workers, to own the schema.

    Example: windlass migrate grants --role shop --for enqueuer | psql "$OWNER_URL"
    """
    kinds = [known for known in KINDS if known in kind]
    if unknown := sorted(set(kind) - set(kinds)):
        raise typer.BadParameter(f"--for {unknown[0]}: must be one of {', '.join(KINDS)}")
    config = settings().store
    database = urlsplit(config.database_url).path[1:] if config.database_url else None
    typer.echo(rights.grants(role, kinds, config.schema, unquote(database) if database else None), nl=False)


@app.command(name="partitions")
def roll(as_json: Json = False) -> None:
    """Make partitions ahead and remove old ones, as the leader does every ten minutes. For cron, as the schema's owner, where the
    workers' role must not (WINDLASS_LEAD=without-partitions).

    Example: windlass migrate partitions
    """
    rolled = run(_roll(settings().store))
    lines = [
        f"made {rolled.made}" if rolled.made else "nothing to make",
        f"removed {rolled.removed}",
        f"not yet removed {rolled.waiting}",
    ]
    _say(asdict(rolled), "; ".join(lines), as_json=as_json)


@app.command()
def sql(after: Annotated[int, typer.Option(help="Leave out migrations up to this one.", min=0)] = 0) -> None:
    """Print the upgrade as SQL, for teams with their own migration tool.

    Example: windlass migrate sql --after 3 > windlass.sql
    """
    typer.echo(migrate.sql(settings().store.schema, after=after), nl=False)


async def _roll(config: StoreConfig) -> Rolled:
    async with open_store(config) as store:
        if problem := await store.upkeep.partition_problem():
            raise Misconfigured(problem)
        return await store.upkeep.roll_partitions()


def _with_connection(act: Callable[[Connection, StoreConfig], Awaitable[T]]) -> T:
    config = settings().store

    async def with_connection() -> T:
        connection = await connect(config, direct=True)
        try:
            return await act(connection, config)
        finally:
            await connection.close(timeout=5)

    return run(with_connection())


def _say(found: Mapping[str, object], text: str, *, as_json: bool) -> None:
    typer.echo(json.dumps(found) if as_json else text)
