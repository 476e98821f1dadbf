"""What the commands share: settings from the environment, the data folder, and the database they speak of."""

import os
import sys
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, TypeVar

import uvloop

from windlass.config import Config, load, variable
from windlass.embedded.postgres import EmbeddedPostgres
from windlass.errors import Misconfigured

T = TypeVar("T")

_ASIDE: Final = ("WINDLASS_APP", "WINDLASS_NAME")  # of `windlass worker` alone, and no settings


def run(work: Coroutine[Any, Any, T]) -> T:
    return uvloop.run(work)


def settings(**said: object) -> Config:
    """The configuration; what is doubtful about it is said on stderr. What was `said` to a command, by the name of the
    setting, overrules the environment."""
    given = {variable(name): str(value) for name, value in said.items() if value is not None}
    environ = {name: value for name, value in os.environ.items() if name not in _ASIDE} | given
    config = load(environ, read=lambda path: Path(path).read_text())
    for warning in config.check().warnings:
        sys.stderr.write(f"windlass: warning: {warning}\n")
    return config


def default_data_dir() -> Path:
    """The user's data folder. Not root's home: where user namespaces are forbidden PostgreSQL could not enter it."""
    if os.geteuid() == 0:
        return Path("/var/lib/windlass")
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "windlass"


@contextmanager
def database(
    config: Config, data_dir: Path | None, *, ephemeral: bool = False
) -> Iterator[tuple[Config, EmbeddedPostgres | None]]:
    """The configuration with a database in it: the one configured, or the embedded one while the block lasts."""
    if ephemeral and data_dir is not None:
        raise Misconfigured("--ephemeral keeps nothing: leave out --data-dir")
    if config.store.database_url is not None:
        if data_dir is not None or ephemeral:
            raise Misconfigured("--data-dir and --ephemeral are for the embedded database; unset WINDLASS_DATABASE_URL")
        yield config, None
    elif ephemeral:
        with TemporaryDirectory(prefix="windlass-") as folder, _embedded(config, Path(folder)) as server:
            yield with_url(config, server.url), server
    else:
        said = Path(config.store.data_dir) if config.store.data_dir else None
        with _embedded(config, data_dir or said or default_data_dir()) as server:
            yield with_url(config, server.url), server


def _embedded(config: Config, folder: Path) -> EmbeddedPostgres:
    programs = config.store.postgres_bin_dir
    return EmbeddedPostgres(folder / "postgres", bin_dir=Path(programs) if programs else None)


def with_url(config: Config, url: str) -> Config:
    return replace(config, store=replace(config.store, database_url=url))
