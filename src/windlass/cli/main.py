"""The commands, and how each ends: an error is one line on stderr and an exit code that says whose fault it was."""

import sys
from importlib.metadata import version
from typing import Annotated

import typer
from rich.console import Console

from windlass.cli import migrate, up, worker
from windlass.errors import Unavailable, WindlassError
from windlass.redaction import redact


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"windlass {version('windlass')}")
        raise typer.Exit


app = typer.Typer(
    name="windlass",
    help="A distributed, fault-tolerant job scheduler on PostgreSQL that knows threads.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.command("up")(up.up)
app.command("worker")(worker.worker)


@app.callback()
def options(
    _version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """A distributed, fault-tolerant job scheduler on PostgreSQL that knows threads."""


app.add_typer(migrate.app, name="migrate")


def main() -> None:
    try:
        app()
    except WindlassError as error:
        hint = " (is PostgreSQL running, and WINDLASS_DATABASE_URL right?)" if isinstance(error, Unavailable) else ""
        Console(stderr=True, soft_wrap=True).print(
            f"windlass: {redact(str(error))}{hint}", markup=False, highlight=False
        )
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)
