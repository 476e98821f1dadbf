"""Jobs that are started once at most, while PostgreSQL is killed with SIGKILL under the node that runs them.

Claims are not durable, so a crash forgets some of the last ones and their jobs are claimed again. What the handlers wrote
down says whether one of them began twice.
"""

import asyncio
import contextlib
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Final
from uuid import UUID, uuid4

import asyncpg
import psutil
import pytest

from tests.eventually import aeventually, eventually
from tests.faults.ledger import starts
from tests.faults.node import node
from windlass.config import StoreConfig
from windlass.embedded.postgres import EmbeddedPostgres
from windlass.errors import Unavailable
from windlass.model import Job, NewJob, Status
from windlass.store import migrate
from windlass.store.protocol import JobQuery
from windlass.store.store import Store, open_store

JOBS: Final = 400
KILLS: Final = 4


@pytest.fixture
async def server(in_memory: Path) -> AsyncIterator[EmbeddedPostgres]:
    with EmbeddedPostgres(in_memory / f"once-{uuid4().hex[:6]}") as server:
        connection = await asyncpg.connect(server.url)
        await migrate.upgrade(connection)
        await connection.close()
        yield server


async def test_no_job_begins_twice_however_often_the_database_crashes(server: EmbeddedPostgres, tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    async with open_store(StoreConfig(database_url=server.url, pool_min=0, pool_max=2)) as store:
        handlers = ("launch", "launch_blocking")
        new = [NewJob(handlers[n % 2], {"seconds": 0.01}, max_attempts=1) for n in range(JOBS)]
        ids = {job.id for job in await store.intake.enqueue(new)}
        with node(server.url, ledger, threads=4) as here:
            here.ready()
            for kill in range(1, KILLS + 1):
                await aeventually(partial(_have_begun, ledger, kill * JOBS // (KILLS + 2)), 60)
                await asyncio.to_thread(_crash, server)
            jobs = await aeventually(lambda: _finished(store, ids), 120)
        assert (await store.views.check()).clean
    began = Counter(entry.job_id for entry in starts(ledger))
    assert max(began.values()) == 1
    for job in jobs:
        assert job.status is Status.COMPLETED or (job.error and job.error.type) == "MayHaveRun", job
        assert began[job.id] == 1 or job.status is Status.FAILED
    print(f"\n{dict(Counter(job.status for job in jobs))}, never begun: {len(ids - began.keys())}")
    assert sum(job.status is Status.COMPLETED for job in jobs) > JOBS // 2


def _crash(server: EmbeddedPostgres) -> None:
    pids = [child.pid for child in psutil.Process(server.pid).children()]
    server.kill()
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):  # it has seen its parent's end
            os.kill(pid, signal.SIGKILL)
    eventually(lambda: not server.alive)
    server.start()


async def _have_begun(ledger: Path, least: int) -> bool:
    return len(starts(ledger)) >= least


async def _finished(store: Store, ids: set[UUID]) -> list[Job]:
    try:
        found = await store.views.ids(JobQuery(statuses=(Status.COMPLETED, Status.FAILED)))
        return [await store.views.job(job_id) for job_id in found.ids] if set(found.ids) == ids else []
    except Unavailable:
        return []
