"""`windlass migrate`: bring the schema to what this version needs, undo it, or say where it stands."""

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, TypeVar

import typer

from windlass.cli.wiring import run, settings
from windlass.config import StoreConfig
from windlass.errors import SchemaMismatch
from windlass.store import migrate
from windlass.store.connections import connect
from windlass.store.postgres import Connection

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
    """Exit with an error unless the schema is exactly what this version needs.

    Example: windlass migrate check && windlass worker --app tasks:app
    """
    _with_connection(lambda c, s: migrate.check(c, s.schema))
    _say({"fits": True}, "the schema fits", as_json=as_json)


@app.command()
def sql(after: Annotated[int, typer.Option(help="Leave out migrations up to this one.", min=0)] = 0) -> None:
    """Print the upgrade as SQL, for teams with their own migration tool.

    Example: windlass migrate sql --after 3 > windlass.sql
    """
    typer.echo(migrate.sql(settings().store.schema, after=after), nl=False)


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
