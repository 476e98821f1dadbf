"""What tests of `windlass up` share: a data folder that one has run in before."""

import asyncio
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import asyncpg
import pytest

from windlass.embedded.postgres import EmbeddedPostgres
from windlass.store import migrate


@pytest.fixture(scope="session")
def prepared(in_memory: Path) -> Path:
    """To be copied: a database that is set up and migrated, and nothing else. A first start costs a second more."""
    folder = in_memory / "prepared"
    with EmbeddedPostgres(folder / "postgres") as server:
        asyncio.run(_migrate(server.url))
    return folder


async def _migrate(url: str) -> None:
    connection = await asyncpg.connect(url)
    await migrate.upgrade(connection)
    await connection.close()


@pytest.fixture
def data_dir(prepared: Path, in_memory: Path) -> Iterator[Path]:
    """A folder of this test's own, as an earlier `windlass up` left it."""
    with copied(prepared, in_memory) as folder:
        yield folder


@contextmanager
def copied(prepared: Path, beside: Path) -> Iterator[Path]:
    folder = beside / f"up-{uuid4().hex[:6]}"
    shutil.copytree(prepared, folder)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)
