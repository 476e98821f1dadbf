"""The log of a running attempt is written for those who follow it, by the holder of its lease, and forgotten after."""

from typing import Any
from uuid import uuid4

import asyncpg

from tests.factory import Rig
from windlass.store.protocol import RunningLog
from windlass.store.store import Store


async def test_a_log_that_nobody_follows_is_not_written_and_an_old_one_is_forgotten(
    rig: Rig, store: Store, sql: "asyncpg.Connection[Any]"
) -> None:
    worker = await rig.worker()
    followed, other = await rig.enqueue(2)
    leases = await worker.claim()
    assert await store.views.follow_log(followed) is None
    assert await store.views.follow_log(uuid4()) is None
    assert await worker.claims.followed([followed, other]) == {followed}
    await worker.claims.show_logs([(lease, f"log of {lease.job_id}") for lease in leases])
    assert await store.views.follow_log(followed) == RunningLog(1, f"log of {followed}")
    assert [row["job_id"] for row in await sql.fetch("select job_id from windlass.followed_log")] == [followed]
    stale = leases[0]._replace(token=uuid4())
    await worker.claims.show_logs([(stale, "from a lease that is lost")])
    assert await store.views.follow_log(followed) == RunningLog(1, f"log of {followed}")
    assert await store.upkeep.forget_followed_logs() == 0
    await sql.execute("update windlass.followed_log set until = now() - interval '2 minutes'")
    assert await worker.claims.followed([followed, other]) == set()
    assert await store.upkeep.forget_followed_logs() == 1
