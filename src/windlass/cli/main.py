"""The commands, and how each ends: an error is one line on stderr and an exit code that says whose fault it was.

A command's module is imported when the command is called for: listing queues needs no web server and no database driver.
"""

import difflib
import logging
import sys
from importlib import import_module
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup
from typer.main import get_group

from windlass.cli.notices import say
from windlass.cli.output import clean, set_verbose
from windlass.errors import Unavailable, WindlassError
from windlass.redaction import redact

_WRONG_WORDS: Final = 2
_ABORTED: Final = 1
_USAGE: Final[type[Exception]] = typer.BadParameter.__mro__[1]  # wrong options and arguments; typer has no name for it

# By panel of the help: the command, its module, and what the module calls it (`app`: a group of commands).
_PANELS: Final = {
    "Run it": [
        ("up", "up", "up"),
        ("api", "api", "api"),
        ("worker", "worker", "worker"),
        ("migrate", "migrate", "app"),
    ],
    "Submit and look": [
        ("submit", "submit", "submit"),
        ("jobs", "jobs", "app"),
        ("dead-letters", "dead_letters", "app"),
        ("stats", "stats", "stats"),
        ("types", "types", "app"),
        ("mail", "mail", "app"),
        ("top", "top", "top"),
    ],
    "Operate": [
        ("queues", "queues", "app"),
        ("workers", "workers", "app"),
        ("token", "token", "app"),
        ("login", "login", "login"),
        ("user", "user", "app"),
        ("key", "key", "app"),
        ("audit", "audit", "audit"),
    ],
    "Try it": [("load", "load", "load"), ("bench", "bench", "bench")],
}
_COMMANDS: Final = {name: (panel, *home) for panel, commands in _PANELS.items() for name, *home in commands}


class Commands(TyperGroup):
    """The commands by name, each made when it is asked for."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002
        return list(_COMMANDS)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that the first word names; one that is nearly right is named in the error."""
        if args[:2] == ["worker", "list"]:  # else it would ask for an --app, and never say what is wrong
            raise _USAGE("No such command 'worker list'. Did you mean 'workers list'?", ctx)
        try:
            return super().resolve_command(ctx, args)
        except _USAGE as error:
            near = difflib.get_close_matches(args[0], list(_COMMANDS), n=2)
            if near:
                error.message = f"No such command '{args[0]}'. Did you mean {' or '.join(map(repr, near))}?"  # type: ignore[attr-defined]
            raise

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002
        if cmd_name not in _COMMANDS:
            return None
        panel, module, attribute = _COMMANDS[cmd_name]
        found = getattr(import_module(f"windlass.cli.{module}"), attribute)
        alone = typer.Typer(add_completion=False, callback=lambda: None)
        if isinstance(found, typer.Typer):
            alone.add_typer(found, name=cmd_name, rich_help_panel=panel)
        else:
            alone.command(cmd_name, rich_help_panel=panel)(found)
        return get_group(alone).commands[cmd_name]


def _print_version(asked: bool) -> None:
    if asked:
        import windlass  # noqa: PLC0415 - its version takes 40 ms to find

        typer.echo(f"windlass {windlass.__version__}")
        raise typer.Exit


app = typer.Typer(
    name="windlass",
    help="A distributed, fault-tolerant job scheduler on PostgreSQL that knows threads.",
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def options(
    _version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="Say on stderr how the cluster is reached.")] = False,
) -> None:
    """A distributed, fault-tolerant job scheduler on PostgreSQL that knows threads."""
    set_verbose(verbose)


def main() -> None:
    sys.exit(_ended())


def _ended() -> int:
    """Run the command that the words name; its exit code."""
    try:
        return app(standalone_mode=False) or 0
    except WindlassError as error:
        return _failed(f"{redact(str(error))}{_hint(error)}", error.exit_code)
    except TimeoutError as error:
        return _failed(str(error), Unavailable.exit_code)
    except typer.Abort:
        return _failed("not done", _ABORTED)
    except KeyboardInterrupt:
        return 130
    except _USAGE as error:
        return _misspoken(error)


def _misspoken(error: BaseException) -> int:
    """Wrong options or arguments. Without any, where some are needed, the help was the answer."""
    context = getattr(error, "ctx", None)
    if type(error).__name__ == "NoArgsIsHelpError":  # which has printed it
        return _WRONG_WORDS
    said = error.format_message().rstrip(".") if hasattr(error, "format_message") else str(error)
    said = said.replace(": Value error, ", ": ")  # Pydantic's words, where typer finds it installed
    where = "" if context is None else f"{' S' if said.endswith('?') else '; s'}ee {context.command_path} --help"
    return _failed(said + where, _WRONG_WORDS)


def _failed(text: str, code: int) -> int:
    say(clean(text), logging.ERROR)
    return code


def _hint(error: WindlassError) -> str:
    notes = getattr(error, "__notes__", [])
    if notes:
        return f" ({'; '.join(notes)})"
    return " (is PostgreSQL running, and WINDLASS_DATABASE_URL right?)" if isinstance(error, Unavailable) else ""
