"""What every case needs: a migrated database, jobs to drain, and the two loops that drain them."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TypeVar
from uuid import UUID, uuid4

import asyncpg

from windlass.config import StoreConfig
from windlass.lifecycle import Completed, settle
from windlass.model import Lease, NewJob, NewWorker
from windlass.store import migrate
from windlass.store.protocol import Ask
from windlass.store.store import Store, open_store

B = TypeVar("B")

BATCH = 200
QUEUE, TYPE = "default", "noop"
PAYLOAD = {"to": "someone@example.org", "order": 12345, "lines": [1, 2, 3]}


@dataclass(frozen=True, slots=True)
class Bench:
    """One fresh database on the embedded server."""

    url: str
    store: Store
    worker_id: UUID

    async def enqueue(self, count: int, **fields: object) -> None:
        await self.store.intake.enqueue([NewJob(TYPE, PAYLOAD, **fields) for _ in range(count)])  # type: ignore[arg-type]

    async def connect(self) -> "asyncpg.Connection[asyncpg.Record]":
        return await asyncpg.connect(self.url)


@asynccontextmanager
async def fresh(server_url: str) -> AsyncIterator[Bench]:
    name = f"bench_{uuid4().hex[:8]}"
    admin = await asyncpg.connect(server_url)
    await admin.execute(f"create database {name}")
    url = server_url.replace("/windlass?", f"/{name}?", 1)
    connection = await asyncpg.connect(url)
    await migrate.upgrade(connection)
    await connection.close()
    async with open_store(StoreConfig(database_url=url)) as store:
        worker_id = uuid4()
        await store.upkeep.register(NewWorker(worker_id, "bench", 8, [QUEUE], [TYPE]), lease_ttl_s=3600)
        yield Bench(url, store, worker_id)
    await admin.execute(f"drop database {name} with (force)")
    await admin.close()


async def two_loops(claim: Callable[[], Awaitable[list[B]]], settle: Callable[[list[B]], Awaitable[int]]) -> float:
    """Drain with one loop that claims ahead and one that settles, as a worker does; jobs per second."""
    batches: asyncio.Queue[list[B]] = asyncio.Queue(maxsize=2)
    settled = 0

    async def claiming() -> None:
        while batch := await claim():
            await batches.put(batch)
        await batches.put([])

    async def settling() -> None:
        nonlocal settled
        while batch := await batches.get():
            settled += await settle(batch)

    began = time.perf_counter()
    await asyncio.gather(claiming(), settling())
    return settled / (time.perf_counter() - began)


async def drain_store(bench: Bench) -> float:
    """The store as a worker uses it: leases, outcomes, settlements, receipts."""
    claims = bench.store.claims()
    ask = Ask(bench.worker_id, [QUEUE], [TYPE], free=8, budget=BATCH, most=BATCH)

    async def settle_batch(leases: list[Lease]) -> int:
        receipt = await claims.settle([settle(lease, Completed(), jitter=0.5, execution_s=0.001) for lease in leases])
        return len(receipt.moved)

    return await two_loops(lambda: claims.claim(ask), settle_batch)


async def drain_bare(bench: Bench) -> float:
    """The same SQL on two plain connections, with nothing of ours around it."""
    one, two = await bench.connect(), await bench.connect()
    token = uuid4()
    nothing = [None] * BATCH
    floor = -(2**63)

    async def claim() -> list[asyncpg.Record]:
        nonlocal floor
        rows = await one.fetch(
            "select * from windlass.claim_v2($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)",
            bench.worker_id, token, [QUEUE], [1], [floor], [TYPE], BATCH, 0, BATCH, BATCH,
        )  # fmt: skip
        floor = rows[0]["rank"] if rows else floor
        return rows

    async def settle_batch(rows: list[asyncpg.Record]) -> int:
        n = len(rows)
        ids = sorted(row["job_id"] for row in rows)
        moved = await two.fetch(
            "select * from windlass.settle_v1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)",
            ids, [1] * n, [token] * n, [bench.worker_id] * n, ["completed"] * n, nothing[:n], [False] * n, [False] * n,
            [False] * n, ["completed"] * n, nothing[:n], nothing[:n], nothing[:n], [0.001] * n, nothing[:n],
        )  # fmt: skip
        return int(moved[0]["moved"])

    rate = await two_loops(claim, settle_batch)
    await one.close()
    await two.close()
    return rate
