"""What a leader makes of leases after the server that granted them was killed and started again: a real server, killed for it."""

from collections.abc import AsyncIterator
from pathlib import Path
from uuid import uuid4

import asyncpg
import pytest

from tests.eventually import aeventually, eventually
from tests.factory import Rig
from windlass.config import StoreConfig
from windlass.embedded.postgres import EmbeddedPostgres
from windlass.leader.chores import reap
from windlass.model import Status
from windlass.store import migrate
from windlass.store.store import Store, open_store


@pytest.fixture
async def server(in_memory: Path) -> AsyncIterator[EmbeddedPostgres]:
    with EmbeddedPostgres(in_memory / f"restarted-{uuid4().hex[:6]}") as made:
        connection = await asyncpg.connect(made.url)
        await migrate.upgrade(connection)
        await connection.close()
        yield made


async def test_after_a_restart_of_the_server_a_lease_of_before_may_be_renewed_for_its_whole_length(
    server: EmbeddedPostgres,
) -> None:
    lease_s = 3.0
    async with open_store(StoreConfig(database_url=server.url, pool_min=0)) as store:
        rig = Rig(store)
        dead, living = await rig.worker(lease_ttl_s=lease_s), await rig.worker(lease_ttl_s=lease_s)
        ids = await rig.enqueue(2)
        await dead.claim(1, budget=1)
        await living.claim(1, budget=1)
        assert await store.upkeep.take_term(uuid4(), ttl_s=0) == 1
    server.kill()
    eventually(lambda: not server.alive)
    server.start()
    async with open_store(StoreConfig(database_url=server.url, pool_min=0)) as store:
        await aeventually(lambda: _expired(store))  # while nobody led: the supervisors may be about to come back
        assert await _reap(store) == 0, "no leader has noted this server"
        assert await store.upkeep.take_term(uuid4(), ttl_s=60) == 2
        assert await _reap(store) == 0, "their clock is another one"
        assert await store.upkeep.renew([living.id], lease_ttl_s=60) == {living.id: False}
        assert await aeventually(lambda: _reap(store), 30) == 1
        jobs = [await store.views.job(job_id) for job_id in ids]
        assert sorted(job.status for job in jobs) == [Status.READY, Status.RUNNING]
        assert [job.failures for job in jobs] == [0, 0], "the database was away: nobody is to blame"


async def _reap(store: Store) -> int:
    return await reap(store.upkeep, store.claims(), lambda: 0.5)


async def _expired(store: Store) -> bool:
    return all(worker.lease_left_s < 0 for worker in await store.views.workers())
