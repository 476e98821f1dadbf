"""Hold a race open: a move that is made but not committed, and a wait until another statement is stuck behind it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import uuid4

import asyncpg

from tests.eventually import aeventually
from tests.factory import WorkerRig
from windlass.store.postgres import Connection
from windlass.store.store import Store


@asynccontextmanager
async def held_claim(connection: Connection, worker: WorkerRig) -> AsyncIterator[list[asyncpg.Record]]:
    """A claim whose transaction commits when the block ends."""
    async with connection.transaction():
        yield await connection.fetch(
            "select * from windlass.claim_v2($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)",
            worker.id, uuid4(), worker.queues, [1] * len(worker.queues), [-(2**63)] * len(worker.queues), worker.types,
            worker.threads, 0, 100, 100,
        )  # fmt: skip


async def waits_for_lock(store: Store) -> None:
    """Return once some statement in this database waits for another transaction."""

    async def stuck() -> bool:
        async with store.postgres.connection() as connection:
            waiting: int = await connection.fetchval(
                "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
            )
        return waiting > 0

    await aeventually(stuck)
