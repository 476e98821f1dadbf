"""Partitions come and go under load: nobody waits for them, and nothing that matters goes with them."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest

from tests.contract.aging import attached, finished_long_ago, old_jobs, partition_of
from tests.factory import Rig
from windlass.config import StoreConfig
from windlass.errors import JobNotFound
from windlass.leader.chores import reap
from windlass.lifecycle import Completed, Failed, settle
from windlass.model import Error, Status
from windlass.store import partitions
from windlass.store.postgres import Connection
from windlass.store.protocol import JobQuery
from windlass.store.store import Store


@asynccontextmanager
async def open_reader(url: str, isolation: str = "repeatable_read") -> AsyncIterator[Connection]:
    """A session that has read every partitioned table and keeps its snapshot."""
    connection = await asyncpg.connect(url)
    async with connection.transaction(isolation=isolation):  # type: ignore[arg-type]
        for table in ("job", "outcome", "attempt", "tag"):
            await connection.fetch(f"select count(*) from windlass.{table}")
        yield connection
    await connection.close()


async def test_partitions_are_made_ahead_under_an_open_reader(store: Store, config: StoreConfig, url: str) -> None:
    async with open_reader(url):
        rolled = await partitions.roll(StoreConfig(database_url=url, partitions_ahead=6))
    assert len(rolled.made) == 3 * 4
    assert (await partitions.roll(config)).made == []


async def test_look_ups_do_not_queue_behind_a_removal_that_waits_for_a_reader(
    rig: Rig, store: Store, sql: Connection, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partitions, "_LOCK_TIMEOUT_MS", 300)
    bounds = await partition_of(sql)
    worker = await rig.worker()
    async with open_reader(url):
        removal = asyncio.create_task(store.upkeep.roll_partitions())
        while not removal.done():
            (job_id,) = await asyncio.wait_for(rig.enqueue(), timeout=10)
            (lease,) = await asyncio.wait_for(worker.claim(), timeout=10)
            await asyncio.wait_for(worker.settle(lease, Completed()), timeout=10)
            assert (await asyncio.wait_for(store.views.job(job_id), timeout=10)).status is Status.COMPLETED
        assert (await removal).waiting == [bounds.suffix]
    assert (await store.upkeep.roll_partitions()).removed == [bounds.suffix]
    assert bounds.suffix not in await attached(store)


async def test_a_removal_keeps_what_is_unfinished_dead_lettered_keyed_or_recent(
    rig: Rig, store: Store, sql: Connection
) -> None:
    worker = await rig.worker()
    ready, scheduled, running, failed, keyed, done, recent = [
        (await old_jobs(rig, sql, **fields))[0]
        for fields in (
            {"queue": "later"},
            {"queue": "later", "delay_s": 86_400.0},
            {},
            {"tags": ["dead"]},
            {"idempotency_key": "k"},
            {"tags": ["gone"]},
            {},
        )
    ]
    leases = {lease.job_id: lease for lease in await worker.claim()}
    await worker.settle(leases[failed], Failed(Error("E", "m"), final=True))
    await worker.settle(leases[keyed], Completed())
    await worker.settle(leases[done], Completed())
    await finished_long_ago(sql)
    await worker.settle(leases[recent], Completed())

    assert len((await store.upkeep.roll_partitions()).removed) == 1

    expected = {
        ready: Status.READY,
        scheduled: Status.SCHEDULED,
        running: Status.RUNNING,
        failed: Status.FAILED,
        keyed: Status.COMPLETED,
        recent: Status.COMPLETED,
    }
    assert {job_id: await rig.status(job_id) for job_id in expected} == expected
    with pytest.raises(JobNotFound):
        await store.views.job(done)
    # What was kept lives on: it can be claimed, settled, retried, cancelled, listed.
    assert (await worker.settle(leases[running], Failed(Error("E", "m")))).moved == {running: Status.SCHEDULED}
    assert await store.intake.retry(failed) is Status.READY
    assert await store.intake.cancel(scheduled) is Status.CANCELLED
    late = await rig.worker(queues=["later", "default"])
    assert {lease.job_id for lease in await late.claim()} == {ready, failed}


async def test_a_job_that_finishes_into_a_partition_being_removed_is_kept(
    rig: Rig, store: Store, sql: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partitions, "_LOCK_TIMEOUT_MS", 300)
    worker = await rig.worker()
    (job_id,) = await old_jobs(rig, sql)
    (lease,) = await worker.claim()
    async with sql.transaction():
        # Its snapshot is from before the horizon is raised, so it writes into the partition.
        await sql.fetch(store.postgres.sql["settle"], *zip(settle(lease, Completed({"n": 1}), jitter=0), strict=True))
        assert len((await store.upkeep.roll_partitions()).waiting) == 1
    assert await rig.status(job_id) is Status.COMPLETED
    assert len((await store.upkeep.roll_partitions()).removed) == 1
    job = await store.views.job(job_id)
    assert (job.status, job.result, job.payload) == (Status.COMPLETED, '{"n":1}', "{}")


async def test_a_settle_that_meets_the_removal_half_way_is_tried_again(rig: Rig, store: Store, sql: Connection) -> None:
    worker = await rig.worker(threads=40)
    ids = await old_jobs(rig, sql, 40)
    leases = await worker.claim()
    assert len(leases) == 40
    batches = [[settle(lease, Completed(), jitter=0)] for lease in leases]
    removal = asyncio.create_task(store.upkeep.roll_partitions())
    receipts = [await worker.claims.settle(batch) for batch in batches]
    while (rolled := await removal).waiting:
        removal = asyncio.create_task(store.upkeep.roll_partitions())
    assert len(rolled.removed) == 1
    assert [len(receipt.moved) for receipt in receipts] == [1] * 40
    assert {await rig.status(job_id) for job_id in ids} == {Status.COMPLETED}


async def test_two_leaders_removing_one_partition_do_no_harm(rig: Rig, store: Store, sql: Connection) -> None:
    ids = await old_jobs(rig, sql, 20)
    bounds = await partition_of(sql)
    answers = await asyncio.gather(
        store.upkeep.roll_partitions(), store.upkeep.roll_partitions(), return_exceptions=True
    )
    assert not [answer for answer in answers if isinstance(answer, BaseException)]
    while (await store.upkeep.roll_partitions()).waiting:
        pass
    assert {await rig.status(job_id) for job_id in ids} == {Status.READY}
    assert bounds.suffix not in await attached(store)


async def test_an_interrupted_removal_is_taken_up_where_it_stopped(rig: Rig, store: Store, sql: Connection) -> None:
    (job_id,) = await old_jobs(rig, sql)
    bounds = await partition_of(sql)
    await sql.execute(f"alter table windlass.outcome detach partition windlass.outcome_{bounds.suffix}")
    await sql.execute(f"alter table windlass.job detach partition windlass.job_{bounds.suffix}")
    assert (await store.upkeep.roll_partitions()).removed == [bounds.suffix]
    assert await rig.status(job_id) is Status.READY
    worker = await rig.worker()
    assert [lease.job_id for lease in await worker.claim()] == [job_id]


async def test_a_job_whose_row_is_out_of_sight_goes_back_instead_of_running_blind(
    rig: Rig, store: Store, sql: Connection
) -> None:
    (job_id,) = await old_jobs(rig, sql)
    bounds = await partition_of(sql)
    await sql.execute(f"alter table windlass.job detach partition windlass.job_{bounds.suffix}")
    worker = await rig.worker()
    assert await worker.claim() == []
    await store.upkeep.roll_partitions()
    assert [lease.job_id for lease in await worker.claim()] == [job_id]


async def test_a_dead_worker_s_old_job_is_reaped_into_the_kept_tables(rig: Rig, store: Store, sql: Connection) -> None:
    worker = await rig.worker()
    (job_id,) = await old_jobs(rig, sql)
    await worker.claim()
    await store.upkeep.roll_partitions()
    await store.upkeep.bury([worker.id], "crashed")
    assert await reap(store.upkeep, store.claims(), random.random) == 1
    (attempt,) = await store.views.attempts(job_id)
    assert attempt.status == "lost"


async def test_kept_jobs_are_swept_once_they_are_old_and_finished(rig: Rig, store: Store, sql: Connection) -> None:
    worker = await rig.worker()
    done, failed = await old_jobs(rig, sql, 2, tags=["kept"])
    first, second = await worker.claim()
    await store.upkeep.roll_partitions()
    await worker.settle(first, Completed())
    await worker.settle(second, Failed(Error("E", "m"), final=True))
    await sql.execute("update windlass.outcome_kept set finished_at = finished_at - interval '30 days'")
    await store.upkeep.roll_partitions()
    with pytest.raises(JobNotFound):
        await store.views.job(done)
    assert await rig.status(failed) is Status.FAILED


async def test_an_enqueue_makes_the_partitions_it_finds_missing(rig: Rig, store: Store, sql: Connection) -> None:
    await partitions.drop_all(sql, "windlass")
    (job_id,) = await rig.enqueue()
    assert await rig.status(job_id) is Status.READY


async def test_a_job_that_fails_while_its_partition_waits_to_go_can_be_retried_at_every_step(
    rig: Rig, store: Store, sql: Connection, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partitions, "_LOCK_TIMEOUT_MS", 100)
    worker = await rig.worker()
    (job_id,) = await old_jobs(rig, sql, tags=["old"])
    (lease,) = await worker.claim()
    async with open_reader(url):
        assert (await store.upkeep.roll_partitions()).waiting  # the horizon is raised
        await worker.settle(lease, Failed(Error("E", "m"), final=True))
    detach, retried = partitions._detach, []

    async def and_retry(connection: Connection, *args: Any, shared: bool) -> None:
        await detach(connection, *args, shared=shared)
        retried.append((await store.intake.retry_many([job_id]))[job_id])

    monkeypatch.setattr(partitions, "_detach", and_retry)
    assert (await store.upkeep.roll_partitions()).removed
    assert retried.count(Status.READY) == 1
    assert [lease.job_id for lease in await worker.claim()] == [job_id]
    assert [job.id for job in (await store.views.jobs(JobQuery(tag="old"))).jobs] == [job_id]


async def test_a_finished_job_retried_while_its_partition_is_detached_is_whole_or_not_found(
    rig: Rig, store: Store, sql: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = await rig.worker()
    ids = await old_jobs(rig, sql, 4, tags=["old"])
    await worker.claims.settle([settle(lease, Completed(), jitter=0) for lease in await worker.claim()])
    await finished_long_ago(sql)
    detach, left, answers = partitions._detach, list(ids), []

    async def and_retry(connection: Connection, *args: Any, shared: bool) -> None:
        await detach(connection, *args, shared=shared)
        job_id = left.pop()
        answers.append((job_id, (await store.intake.retry_many([job_id]))[job_id]))

    monkeypatch.setattr(partitions, "_detach", and_retry)
    assert (await store.upkeep.roll_partitions()).removed
    revived = {job_id for job_id, answer in answers if answer is Status.READY}
    assert {lease.job_id for lease in await worker.claim()} == revived
    tagged = (await store.views.jobs(JobQuery(tag="old"))).jobs
    assert {job.id for job in tagged} == revived


async def test_making_partitions_leaves_no_setting_behind_for_whoever_shares_the_connection(
    config: StoreConfig, sql: Connection
) -> None:
    before = await sql.fetchval("show lock_timeout")
    async with sql.transaction():
        await partitions.create_missing(sql, "windlass", ahead=9)
    assert await sql.fetchval("show lock_timeout") == before
