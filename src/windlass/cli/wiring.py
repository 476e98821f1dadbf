"""What the commands share: settings from the environment, the data folder, and the database they speak of."""

import logging
import os
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, TypeVar

import uvloop

from windlass.cli.notices import say
from windlass.config import Config, load, variable
from windlass.embedded.postgres import EmbeddedPostgres
from windlass.errors import Misconfigured

T = TypeVar("T")

_ASIDE: Final = ("WINDLASS_APP", "WINDLASS_NAME")  # of `windlass up` and `windlass worker` alone, and no settings


def run(work: Coroutine[Any, Any, T]) -> T:
    return uvloop.run(work)


def settings(*, warn: bool = True, **said: object) -> Config:
    """The configuration; what is doubtful about it is said on stderr. What was `said` to a command, by the name of the
    setting, overrules the environment."""
    given = {variable(name): str(value) for name, value in said.items() if value is not None}
    environ = {name: value for name, value in os.environ.items() if name not in _ASIDE} | given
    config = load(environ, read=lambda path: Path(path).read_text())
    for warning in config.check().warnings if warn else ():
        say(f"warning: {warning}", logging.WARNING)
    return config


def default_data_dir() -> Path:
    """The user's data folder. Not root's home: where user namespaces are forbidden PostgreSQL could not enter it."""
    if os.geteuid() == 0:
        return Path("/var/lib/windlass")
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "windlass"


def data_folder(config: Config, said: Path | None = None) -> Path:
    """Where `windlass up` keeps its data: as said, as set, or the user's data folder."""
    configured = Path(config.store.data_dir) if config.store.data_dir else None
    return (said or configured or default_data_dir()).absolute()


@contextmanager
def home(config: Config, data_dir: Path | None, *, ephemeral: bool = False) -> Iterator[Path]:
    """The data folder; an ephemeral one is gone after the block."""
    if ephemeral and data_dir is not None:
        raise Misconfigured("--ephemeral keeps nothing: leave out --data-dir")
    if ephemeral and config.store.database_url is not None:
        raise Misconfigured("--ephemeral is for the embedded database; unset WINDLASS_DATABASE_URL")
    if not ephemeral:
        yield data_folder(config, data_dir)
        return
    with TemporaryDirectory(prefix="windlass-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


@contextmanager
def database(config: Config, folder: Path) -> Iterator[tuple[Config, EmbeddedPostgres | None]]:
    """The configuration with a database in it: the one configured, or the embedded one in `folder` for the block."""
    if config.store.database_url is not None:
        yield config, None
        return
    programs = config.store.postgres_bin_dir
    with EmbeddedPostgres(folder / "postgres", bin_dir=Path(programs) if programs else None) as server:
        yield replace(config, store=replace(config.store, database_url=server.url)), server
