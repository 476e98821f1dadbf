"""Real parts for every test: one embedded PostgreSQL a run, a fresh database cloned from a migrated template a test."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import asyncpg
import pytest
from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

from tests.factory import Rig
from tests.in_memory import memory_folder
from windlass.config import StoreConfig
from windlass.embedded.postgres import EmbeddedPostgres
from windlass.embedded.valkey import EmbeddedValkey
from windlass.store import migrate
from windlass.store.store import Store, open_store

TEMPLATE = "windlass_template"


# Folders whose tests share what is costly to make, or look at what all of them did: one process runs them.
_TOGETHER = {"contract", "dashboard", "plans"}


# The slow ones first: a file that runs for a minute must not be the last, with the other processes idle.
_FIRST = ("contract", "dashboard", "plans", "faults", "e2e", "api", "worker", "jobs", "testing", "unit")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    places = {folder: n for n, folder in enumerate(_FIRST)}
    items.sort(key=lambda item: places.get(item.nodeid.split("/")[1], len(places)))  # those of examples/ last


class Together(LoadScopeScheduling):  # type: ignore[misc]
    """Shares files out among the processes of a run (`-n`), and some folders whole."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        folder = file.split("/")[1]
        return folder if folder in _TOGETHER else file


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Together:
    return Together(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """What a test logs on purpose, half a character say, must not keep its report from reaching the other process."""
    report = yield
    report.sections = [(name, text.encode(errors="backslashreplace").decode()) for name, text in report.sections]
    return report


@pytest.fixture(scope="session")
def in_memory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder for databases, in memory where there is enough of it."""
    with memory_folder(otherwise=tmp_path_factory.mktemp("databases")) as folder:
        yield folder


@pytest.fixture(scope="session")
def postgres_server(in_memory: Path) -> Iterator[EmbeddedPostgres]:
    """The server for tests that do not kill it. fsync is off: no test here pulls the plug (tests/faults has its own).

    WINDLASS_TEST_BIN_DIR runs the tests on another PostgreSQL, such as /usr/lib/postgresql/15/bin.
    """
    other = os.environ.get("WINDLASS_TEST_BIN_DIR")
    settings = {"fsync": "off", "full_page_writes": "off", "max_connections": "300", "max_wal_size": "256MB"}
    folder = in_memory / "postgres"
    with EmbeddedPostgres(folder, bin_dir=Path(other) if other else None, settings=settings) as server:
        asyncio.run(_make_template(server.url))
        yield server


async def _make_template(url: str) -> None:
    connection = await asyncpg.connect(url)
    await connection.execute(f"create database {TEMPLATE}")
    await connection.close()
    connection = await asyncpg.connect(database_url(url, TEMPLATE))
    await migrate.upgrade(connection)
    # Tests set leases back: the server must have been there for longer than that, and have been reached all the while.
    await connection.execute(
        "update windlass.server set clock_since = '-infinity', reached_since = '-infinity', reached_at = now() + interval '1 day'"
    )
    await connection.close()


def database_url(server_url: str, database: str) -> str:
    return server_url.replace("/windlass?", f"/{database}?", 1)


Administer = Callable[[str], object]


@pytest.fixture(scope="session")
def administer(postgres_server: EmbeddedPostgres) -> Iterator[Administer]:
    """Executes a statement for all tests over one connection, in a loop of its own: a new one is half a new database."""
    with asyncio.Runner() as runner:
        connection = runner.run(asyncpg.connect(postgres_server.url))
        yield lambda statement: runner.run(connection.execute(statement))
        runner.run(connection.close())


@pytest.fixture
def url(postgres_server: EmbeddedPostgres, administer: Administer) -> Iterator[str]:
    """A database of this test's own, migrated and empty."""
    name = f"test_{uuid4().hex[:12]}"
    administer(f"create database {name} template {TEMPLATE} strategy wal_log")
    yield database_url(postgres_server.url, name)
    administer(f"drop database {name} with (force)")


@contextmanager
def database(server: EmbeddedPostgres, name: str) -> Iterator[str]:
    """The same for the tests of a module, or of a folder, together."""

    async def run(statement: str) -> None:
        admin = await asyncpg.connect(server.url)
        await admin.execute(statement)
        await admin.close()

    asyncio.run(run(f"create database {name} template {TEMPLATE} strategy wal_log"))
    yield database_url(server.url, name)
    asyncio.run(run(f"drop database {name} with (force)"))


@pytest.fixture(scope="module")
def valkey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedValkey]:
    """A Valkey for the tests of a module that do not harm it. Each finds what the others left in it, as in life."""
    with EmbeddedValkey(tmp_path_factory.mktemp("valkey")) as server:
        yield server


@pytest.fixture
def config(url: str) -> StoreConfig:
    return StoreConfig(database_url=url, pool_min=0, pool_max=20, lock_timeout_s=0.3)


@pytest.fixture
async def store(config: StoreConfig) -> AsyncIterator[Store]:
    """The store; afterwards nothing may be lost, doubled or miscounted, whatever the test did."""
    async with open_store(config) as opened:
        yield opened
        assert (await opened.views.check()).clean, await opened.views.check()


@pytest.fixture
async def sql(url: str) -> AsyncIterator["asyncpg.Connection[asyncpg.Record]"]:
    """A bare connection to look behind the store, or to stand in its way."""
    connection = await asyncpg.connect(url)
    yield connection
    await connection.close()


@pytest.fixture
def rig(store: Store) -> Rig:
    return Rig(store)
