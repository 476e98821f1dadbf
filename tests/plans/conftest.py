"""One full database a run, twice: with statistics as they should be, and with those of when it was empty."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Literal
from uuid import UUID

import asyncpg
import pytest

from tests.conftest import database_url
from tests.plans import fill
from tests.plans.probe import Probe, probing
from windlass.embedded.postgres import EmbeddedPostgres
from windlass.model import Lease

Statistics = Literal["analysed", "empty"]


@dataclass(frozen=True, slots=True)
class Sample:
    """Some jobs of every kind, by id, from all over their tables; the same in both databases."""

    ready: list[UUID]
    scheduled: list[UUID]
    held: list[UUID]
    running: list[Lease]
    finished: list[UUID]
    kept: list[UUID]
    workers: list[UUID]
    keys: list[str]


@pytest.fixture(scope="session")
def full(postgres_server: EmbeddedPostgres) -> dict[Statistics, str]:
    return asyncio.run(_fill(postgres_server.url))


async def _fill(server_url: str) -> dict[Statistics, str]:
    admin = await asyncpg.connect(server_url)
    empty, analysed = (database_url(server_url, name) for name in ("plans_empty", "plans_analysed"))
    await admin.execute("create database plans_empty template windlass_template strategy file_copy")
    await fill.fill(empty)
    await admin.execute("create database plans_analysed template plans_empty strategy file_copy")
    await admin.close()
    await fill.analyse(analysed)
    return {"analysed": analysed, "empty": empty}


@pytest.fixture(scope="session")
def sample(full: dict[Statistics, str]) -> Sample:
    return asyncio.run(_sample(full["analysed"]))


async def _sample(url: str) -> Sample:
    connection = await asyncpg.connect(url)

    async def some(column: str, table: str, order: str = "md5(job_id::text)") -> list[UUID]:
        rows = await connection.fetch(f"select {column} from windlass.{table} order by {order} limit 200")
        return [row[0] for row in rows]

    leases = await connection.fetch(
        "select job_id, attempt, token, worker_id, type, queue, thread_demand, rank, failures, suspect, 0, 3, 60.0, null,"
        " '{}', null, 0, thread_demand, null, null, null, 0.0 from windlass.running order by token limit 200"
    )
    some_keys = await connection.fetch("select key from windlass.idempotency order by md5(key) limit 200")
    found = Sample(
        await some("job_id", "ready"),
        await some("job_id", "scheduled"),
        await some("job_id", "held"),
        [Lease._make(row) for row in leases],
        await some("job_id", "outcome"),
        await some("job_id", "outcome_kept"),
        await some("id", "worker where died_at is null", "name"),
        [row["key"] for row in some_keys],
    )
    await connection.close()
    return found


@pytest.fixture
async def probe(full: dict[Statistics, str]) -> AsyncIterator[Probe]:
    """Statistics as they should be."""
    async with probing(full["analysed"]) as opened:
        yield opened


@pytest.fixture(params=["analysed", "empty"])
async def pinned(full: dict[Statistics, str], request: pytest.FixtureRequest) -> AsyncIterator[Probe]:
    """For statements whose plans are pinned: right, too, with statistics taken while the tables were empty."""
    async with probing(full[request.param]) as opened:
        yield opened
