"""What the testing kit asks of the store: databases made and dropped whole, the jobs in one, and time that passes at once."""

from collections.abc import Iterable
from typing import Any
from urllib.parse import urlsplit

import asyncpg

from windlass.store import migrate
from windlass.store.foreign import adapted
from windlass.store.postgres import Postgres, translated
from windlass.store.statements import statements


def database_url(server_url: str, database: str) -> str:
    """The address of another database of the same server."""
    return urlsplit(server_url)._replace(path=f"/{database}").geturl()


async def make_template(server_url: str, name: str) -> None:
    """A database with our schema, to be cloned."""
    await create_database(server_url, name)
    with translated():
        connection = await asyncpg.connect(database_url(server_url, name))
        try:
            await migrate.upgrade(connection)
        finally:
            await connection.close()


async def create_database(server_url: str, name: str, template: str | None = None) -> None:
    await _execute(server_url, [f"create database {name}" + (f" template {template}" if template else "")])


async def drop_databases(server_url: str, names: Iterable[str]) -> None:
    await _execute(server_url, [f"drop database if exists {name} with (force)" for name in names])


async def _execute(server_url: str, statements: Iterable[str]) -> None:
    """Names of databases cannot be bound; these are made by us, of letters, digits and underscores."""
    with translated():
        connection = await asyncpg.connect(server_url)
        try:
            for statement in statements:
                await connection.execute(statement)
        finally:
            await connection.close()


async def stored_jobs(postgres: Postgres) -> list[Any]:
    """Every job that was enqueued, oldest first."""
    return await postgres.fetch("stored_jobs")


async def stored_jobs_seen_by(connection: Any) -> list[Any]:
    """The same as the transaction sees it that this connection of the caller's is in."""
    own = await adapted(connection)
    found: list[Any] = await own.fetch(statements("windlass")["stored_jobs"])
    return found


async def pass_time(postgres: Postgres, at_most_s: float) -> float | None:
    """Let time pass until the next scheduled job is due; returns how much, or None if there is none within `at_most_s`."""
    (row,) = await postgres.fetch("next_due")
    wait_s: float | None = row["wait_s"]
    if wait_s is None or wait_s > at_most_s:
        return None
    if wait_s > 0:
        await postgres.fetch("pass_time", wait_s)
    return max(0.0, wait_s)
