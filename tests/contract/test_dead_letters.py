"""Dead letters are discarded, expire after their retention and are measured; nothing is lost or counted twice meanwhile."""

import asyncio
from dataclasses import replace
from uuid import UUID

import asyncpg
import pytest

from tests.contract.aging import finished_long_ago, old_jobs
from tests.factory import Rig
from windlass.config import StoreConfig
from windlass.errors import JobNotFound, NotPossible, WindlassError
from windlass.lifecycle import Failed
from windlass.model import Error, Status
from windlass.store.store import Store, open_store

Sql = asyncpg.Connection


async def failed(rig: Rig, count: int = 1, *, final: bool = True, **fields: object) -> list[UUID]:
    ids = await rig.enqueue(count, **fields)
    worker = await rig.worker(threads=count)
    for lease in await worker.claim():
        await worker.settle(lease, Failed(Error("ValueError", f"no {lease.attempt}"), final=final))
    return ids


async def rows_about(sql: Sql, job_id: UUID) -> dict[str, int]:
    tables = {"job": "id", "job_kept": "id"} | dict.fromkeys(
        ("outcome", "outcome_kept", "attempt", "attempt_kept", "tag", "tag_kept", "idempotency"), "job_id"
    )
    counts = {
        table: await sql.fetchval(f"select count(*) from windlass.{table} where {column} = $1", job_id)
        for table, column in tables.items()
    }
    return {table: n for table, n in counts.items() if n}


# Discarding. ----------------------------------------------------------------------------------------------------------


async def test_a_discarded_job_is_cancelled_and_keeps_its_failure_among_its_attempts(rig: Rig, store: Store) -> None:
    (job_id,) = await failed(rig, tags=["t"])
    assert await store.intake.discard(job_id, "sent by hand") is Status.CANCELLED
    job = await store.views.job(job_id)
    assert (job.status, job.error, job.expires_at) == (Status.CANCELLED, Error("Discarded", "sent by hand"), None)
    (attempt,) = await store.views.attempts(job_id)
    assert (attempt.status, attempt.error, attempt.attempt) == ("failed", Error("ValueError", "no 1"), 1)
    assert job.started_at == attempt.started_at
    assert (await store.views.dead_letter_groups()).groups == []
    assert await store.views.counts() == {("default", "echo", Status.CANCELLED): 1}
    assert (await store.views.check()).clean


@pytest.mark.parametrize("status", [status for status in Status if status is not Status.FAILED])
async def test_only_failed_jobs_are_discarded(rig: Rig, store: Store, status: Status) -> None:
    job_id = await rig.job(status)
    with pytest.raises(NotPossible):
        await store.intake.discard(job_id)
    assert await rig.status(job_id) is status
    assert (await store.views.check()).clean


async def test_a_job_that_outlived_its_partition_can_be_discarded_and_run_again(
    rig: Rig, store: Store, sql: Sql
) -> None:
    (job_id,) = await old_jobs(rig, sql)
    worker = await rig.worker()
    (lease,) = await worker.claim()
    await worker.settle(lease, Failed(Error("E", "x"), final=True))
    await store.upkeep.roll_partitions()
    assert await rows_about(sql, job_id) == {"job_kept": 1, "outcome_kept": 1}
    assert await store.intake.discard(job_id) is Status.CANCELLED
    assert await rows_about(sql, job_id) == {"job_kept": 1, "outcome_kept": 1, "attempt_kept": 1}
    assert await store.intake.retry(job_id) is Status.READY
    assert (await store.views.check()).clean


async def test_of_a_replay_and_a_discard_at_once_one_has_the_job(rig: Rig, store: Store) -> None:
    ids = await failed(rig, 40)

    async def race(job_id: UUID) -> list[Status | WindlassError]:
        discards = store.intake.discard_many([job_id])
        replays = store.intake.retry_many([job_id], among=[Status.FAILED])
        return [answers[job_id] for answers in await asyncio.gather(discards, replays)]

    for answers in await asyncio.gather(*map(race, ids)):
        assert sum(isinstance(answer, Status) for answer in answers) == 1, answers
    assert (await store.views.check()).clean


# Retention. -----------------------------------------------------------------------------------------------------------


async def test_a_dead_letter_past_its_retention_goes_with_everything_about_it(rig: Rig, store: Store, sql: Sql) -> None:
    (retried,) = await failed(rig, final=False, tags=["a", "b"], max_attempts=2)
    await store.intake.run_now(retried)
    worker = await rig.worker()
    (lease,) = await worker.claim()
    await worker.settle(lease, Failed(Error("E", "x")))
    (young, done) = [await rig.job(Status.FAILED), await rig.job(Status.COMPLETED)]
    await sql.execute(
        "update windlass.outcome set finished_at = now() - interval '91 days' where job_id = any ($1)", [retried, done]
    )
    assert await rows_about(sql, retried) == {"job": 1, "outcome": 1, "attempt": 1, "tag": 2}
    assert await store.upkeep.expire_dead_letters() == 1
    assert await rows_about(sql, retried) == {}
    with pytest.raises(JobNotFound):
        await store.views.job(retried)
    assert [await rig.status(job_id) for job_id in (young, done)] == [Status.FAILED, Status.COMPLETED]
    assert (await store.views.check()).clean
    assert await store.upkeep.expire_dead_letters() == 0


async def test_dead_letters_that_outlived_their_partition_expire_in_pages(
    rig: Rig, store: Store, sql: Sql, config: StoreConfig
) -> None:
    ids = await old_jobs(rig, sql, 5, tags=["t"])
    worker = await rig.worker()
    for lease in await worker.claim():
        await worker.settle(lease, Failed(Error("E", "x"), final=True))
    await finished_long_ago(sql)
    await store.upkeep.roll_partitions()
    assert await store.upkeep.expire_dead_letters() == 0  # 30 of 90 days
    async with open_store(replace(config, dead_letter_retention_days=29)) as strict:
        assert [await strict.upkeep.expire_dead_letters(limit=3) for _ in range(3)] == [3, 2, 0]
    assert [await rows_about(sql, job_id) for job_id in ids] == [{}] * 5
    assert (await store.views.check()).clean


async def test_a_keyed_dead_letter_stays_until_its_key_has_expired(rig: Rig, store: Store, sql: Sql) -> None:
    (job_id,) = await failed(rig, idempotency_key="k")
    await sql.execute("update windlass.outcome set finished_at = now() - interval '91 days'")
    assert await store.upkeep.expire_dead_letters() == 0
    await sql.execute("update windlass.idempotency set created_at = now() - interval '91 days'")
    assert (await store.upkeep.expire_keys(), await store.upkeep.expire_dead_letters()) == (1, 1)
    assert await rows_about(sql, job_id) == {}


async def test_a_job_whose_row_is_locked_is_left_for_the_next_time(rig: Rig, store: Store, sql: Sql) -> None:
    (job_id,) = await failed(rig)
    await sql.execute("update windlass.outcome set finished_at = now() - interval '91 days'")
    async with sql.transaction():
        await sql.fetch("select from windlass.job where id = $1 for update", job_id)
        assert await store.upkeep.expire_dead_letters() == 0
    assert await store.upkeep.expire_dead_letters() == 1
    assert (await store.views.check()).clean


async def test_a_retention_of_zero_keeps_them_for_ever_and_says_so(
    rig: Rig, store: Store, sql: Sql, config: StoreConfig
) -> None:
    (job_id,) = await failed(rig)
    await sql.execute("update windlass.outcome set finished_at = now() - interval '9 years'")
    shown = await store.views.job(job_id)
    assert shown.expires_at is not None
    assert shown.finished_at is not None
    assert (shown.expires_at - shown.finished_at).days == 90
    async with open_store(replace(config, dead_letter_retention_days=0)) as patient:
        assert await patient.upkeep.expire_dead_letters() == 0
        assert (await patient.views.job(job_id)).expires_at is None


# Size. ----------------------------------------------------------------------------------------------------------------


async def test_the_oldest_dead_letter_and_their_size_are_told(rig: Rig, store: Store, sql: Sql) -> None:
    nothing = await store.views.dead_letter_size()
    assert (nothing.oldest_at, nothing.bytes_per_job) == (None, 0.0)
    await failed(rig, 3, payload={"noise": "".join(chr(33 + n * n % 89) for n in range(5000))})
    oldest = await sql.fetchval(
        "update windlass.outcome set finished_at = now() - interval '7 days'"
        " where job_id = (select job_id from windlass.outcome order by job_id desc limit 1) returning finished_at"
    )
    size = await store.views.dead_letter_size()
    assert size.oldest_at == oldest  # not the first submitted, but the first that failed
    assert size.retention_days == 90
    assert 500 < size.bytes_per_job < 7_000
