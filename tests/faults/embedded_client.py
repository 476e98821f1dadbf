"""A look into an embedded PostgreSQL, for tests that start, stop and kill it."""

import asyncio
import os
from pathlib import Path

import asyncpg
import pytest

from tests.faults.embedded_support import processes_of

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


def ask(url: str, sql: str) -> object:
    async def on_a_connection() -> object:
        connection = await asyncpg.connect(url)
        try:
            return await connection.fetchval(sql)
        finally:
            await connection.close()

    return asyncio.run(on_a_connection())


def write(url: str, value: int) -> None:
    ask(url, f"CREATE TABLE IF NOT EXISTS kept AS SELECT {value} AS value")


def kept(url: str) -> object:
    return ask(url, "SELECT value FROM kept")


def gone(data_dir: Path) -> bool:
    return not processes_of(data_dir)
