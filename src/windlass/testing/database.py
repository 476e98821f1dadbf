"""A database for each test: one server, one template with our schema, and a clone of it for whoever asks.

A clone takes some tens of milliseconds, where migrating an empty database takes half a second. It is dropped when the next
one is made, or with the server: connections that a test left open must not fail its end.
"""

import atexit
import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self
from uuid import uuid4

from windlass.app import App
from windlass.config import StoreConfig
from windlass.errors import Misconfigured
from windlass.sdk.portal import Portal
from windlass.store.connections import open_postgres
from windlass.store.postgres import Postgres
from windlass.store.testing import create_database, database_url, drop_databases, make_template

SERVER_VARIABLE: Final = "WINDLASS_TEST_DATABASE_URL"
_DATABASE_VARIABLE: Final = "WINDLASS_DATABASE_URL"
Prepare = Callable[[str], None]
# Nothing in a test outlives the machine.
_SETTINGS: Final = {"fsync": "off", "full_page_writes": "off", "synchronous_commit": "off", "shared_buffers": "64MB"}


class DatabaseServer:
    """A PostgreSQL for tests: that of `url` or WINDLASS_TEST_DATABASE_URL, whose role must be allowed to create databases,
    or else an embedded one."""

    def __init__(self, url: str | None = None) -> None:
        self._url = url or os.environ.get(SERVER_VARIABLE)
        self._templates: dict[Prepare | None, str] = {}
        self._to_drop: list[str] = []
        self._started = contextlib.ExitStack()
        self._portal = Portal(_nothing_to_leave)

    def start(self) -> Self:
        try:
            self._url = self._url or self._embedded()
        except BaseException:
            self._started.close()
            raise
        return self

    def close(self) -> None:
        self._to_drop += self._templates.values()
        try:
            self._drop()
        finally:
            self._portal.close()
            self._started.close()

    @contextlib.contextmanager
    def database(self, prepare: Prepare | None = None) -> Iterator[str]:
        """The address of a new database, with our schema and nothing in it but what `prepare` makes. That is called once, with
        the address of the template that databases are cloned from."""
        url, template = self._running_url(), self._template(prepare)
        name = f"windlass_test_{uuid4().hex[:12]}"
        self._drop()
        self._portal.run(lambda: create_database(url, name, template))
        try:
            yield database_url(url, name)
        finally:
            self._to_drop.append(name)

    def _template(self, prepare: Prepare | None) -> str:
        if prepare not in self._templates:
            url, name = self._running_url(), f"windlass_template_{uuid4().hex[:12]}"
            self._to_drop.append(name)  # if something goes wrong
            self._portal.run(lambda: make_template(url, name))
            if prepare is not None:
                prepare(database_url(url, name))
            self._to_drop.remove(name)
            self._templates[prepare] = name
        return self._templates[prepare]

    def _drop(self) -> None:
        doomed, self._to_drop = self._to_drop, []
        if doomed:
            url = self._running_url()
            self._portal.run(lambda: drop_databases(url, doomed))

    def _running_url(self) -> str:
        if self._url is None:
            raise Misconfigured("the server for tests is not started: use `with DatabaseServer() as server`")
        return self._url

    def _embedded(self) -> str:
        from windlass.embedded.postgres import EmbeddedPostgres  # noqa: PLC0415 - not where another server is given

        folder = Path(tempfile.mkdtemp(prefix="windlass-test-"))
        self._started.callback(shutil.rmtree, folder, ignore_errors=True)
        server = self._started.enter_context(EmbeddedPostgres(folder / "postgres", settings=_SETTINGS))
        return server.url

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass(frozen=True, slots=True)
class TemporaryDatabase:
    """The database that the kit's functions work on, and the Apps that use it."""

    url: str
    apps: tuple[App, ...]

    @property
    def config(self) -> StoreConfig:
        return StoreConfig(database_url=self.url, pool_min=0)

    def ask(self, work: Callable[[Postgres], Any]) -> Any:
        """Run a coroutine with a connection, from a thread or from under a running loop."""

        async def asked() -> Any:
            async with open_postgres(self.config) as postgres:
                return await work(postgres)

        return _portal.run(asked)


@contextlib.contextmanager
def temporary_database(
    *apps: App, server: DatabaseServer | None = None, prepare: Prepare | None = None
) -> Iterator[TemporaryDatabase]:
    """Have these Apps use an empty database of their own inside the block, and `drain` and the assertions as well.

    WINDLASS_DATABASE_URL is its address meanwhile. `prepare` makes tables of your own, in the template that it is cloned
    from. Without `server` one is started with the first call, for the program.
    """
    with contextlib.ExitStack() as stack:
        url = stack.enter_context((server or _server_of_the_program()).database(prepare))
        database = TemporaryDatabase(url, apps)
        stack.enter_context(_variable(_DATABASE_VARIABLE, url))
        for app in apps:
            stack.enter_context(app.using(database.config))
        _entered.append(database)
        stack.callback(_entered.remove, database)
        yield database


def current_database() -> TemporaryDatabase:
    if not _entered:
        raise Misconfigured(
            "no database to work on: ask for the fixture windlass_app, or use `with temporary_database(app)`"
        )
    return _entered[-1]


@contextlib.contextmanager
def _variable(name: str, value: str) -> Iterator[None]:
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = before


def _server_of_the_program() -> DatabaseServer:
    if not _servers:
        _servers.append(DatabaseServer().start())
        atexit.register(_servers[0].close)
    return _servers[0]


async def _nothing_to_leave() -> None: ...


_portal: Final = Portal(_nothing_to_leave)
_entered: Final[list[TemporaryDatabase]] = []
_servers: Final[list[DatabaseServer]] = []
