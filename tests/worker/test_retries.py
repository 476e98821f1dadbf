"""Failed jobs wait before they are tried again: longer each time, and not all of them for equally long."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import TypeAlias
from uuid import UUID, uuid4

import asyncpg
import pytest

from tests.eventually import aeventually
from tests.factory import Rig
from tests.pressure import Stopwatch
from tests.worker.placed import Placed, placed, types_of
from windlass.bus.postgres import PostgresWaker
from windlass.clock import steady_s
from windlass.config import LeaseConfig, PlacementConfig, StoreConfig
from windlass.leader.loop import Leader
from windlass.lifecycle import Failed, settle
from windlass.model import Error, NewJob, RetryPolicy, Status
from windlass.store.store import Store

Sql: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
NO = Failed(Error("ValueError", "no"))
HERD = 1000
BUCKET_S = 0.1
PEAK_OVER_MEAN_MAX = 3


def fails() -> None:
    raise ValueError("no")


@pytest.mark.parametrize(("jitter", "share"), [(0.0, 0.8), (0.5, 1.0), (0.999_999, 1.2)])
async def test_a_failed_job_is_due_again_after_1_2_4_and_8_s_give_or_take_a_fifth(
    rig: Rig, store: Store, sql: Sql, jitter: float, share: float
) -> None:
    worker = await rig.worker()
    (job_id,) = await rig.enqueue(max_attempts=5)
    for wait_s in (1, 2, 4, 8):
        (lease,) = await worker.claim()
        await worker.settle(lease, NO, jitter)
        assert await _stored_wait_s(sql, store, job_id) == pytest.approx(wait_s * share, abs=0.001)
        await store.intake.run_now(job_id)
    (lease,) = await worker.claim()
    await worker.settle(lease, NO, jitter)
    job = await store.views.job(job_id)
    assert (job.status, job.attempt, job.failures) == (Status.FAILED, 5, 5)


async def test_a_job_that_always_fails_is_started_again_when_it_is_due(config: StoreConfig) -> None:
    watch = Stopwatch()
    async with placed(config, types_of(fails)) as worker, _leading(worker):
        job_id = await worker.enqueue("fails", max_attempts=5, retry=RetryPolicy(base_s=0.25))
        job = await worker.reaches(job_id, Status.FAILED, timeout_s=20)
        attempts = await worker.store.views.attempts(job_id)
    assert [attempt.attempt for attempt in attempts] == [1, 2, 3, 4, 5]
    assert job.failures == 5
    for earlier, later, wait_s in zip(attempts, attempts[1:], (0.25, 0.5, 1, 2), strict=False):
        assert later.started_at is not None
        waited_s = (later.started_at - earlier.ended_at).total_seconds()
        # Never early; late by a look of the leader's, and what this machine is busy with.
        assert 0.8 * wait_s <= waited_s <= 1.2 * wait_s + 1.0 + watch.waited_s, (wait_s, waited_s)


async def test_jobs_that_fail_at_once_are_not_due_at_once(rig: Rig, sql: Sql) -> None:
    worker = await rig.worker(threads=HERD)
    await rig.enqueue(HERD)
    leases = await worker.claim(most=HERD)
    assert len(leases) == HERD
    await worker.claims.settle([settle(lease, NO, jitter=random.random()) for lease in leases])
    rows = await sql.fetch("select date_part('epoch', ready_at) as due from windlass.scheduled")
    assert _peak_over_mean((row["due"] for row in rows), least_s=0.4) <= PEAK_OVER_MEAN_MAX


async def test_jobs_that_fail_at_once_are_not_started_again_at_once(config: StoreConfig) -> None:
    starts_s: list[float] = []

    def fails_noted() -> None:
        starts_s.append(steady_s())
        raise ValueError("no")

    async def come_back(worker: Placed, times: int) -> float:
        starts_s.clear()
        await worker.store.intake.enqueue([NewJob("fails_noted", max_attempts=2)] * HERD)
        worker.worker.hint()
        await aeventually(lambda: _dead(worker, "fails_noted", times * HERD), 30)
        assert len(starts_s) == 2 * HERD
        again_s = sorted(starts_s)[HERD:]
        assert again_s[0] - min(starts_s) >= 0.8
        return _peak_over_mean(again_s, least_s=0.4)

    async with placed(config, types_of(fails_noted), threads=8) as worker, _leading(worker):
        # On a machine with more to do than cores the leader is late, and what is late comes together: the best counts.
        peaks = [await come_back(worker, 1)]
        while peaks[-1] > PEAK_OVER_MEAN_MAX and len(peaks) < 4:
            peaks.append(await come_back(worker, len(peaks) + 1))
    assert min(peaks) <= PEAK_OVER_MEAN_MAX


# What they share. -------------------------------------------------------------------------------------------------------


async def _dead(worker: Placed, type_: str, count: int) -> bool:
    return (await worker.store.views.counts()).get(("default", type_, Status.FAILED), 0) == count


async def _stored_wait_s(sql: Sql, store: Store, job_id: UUID) -> float:
    """From the end of the last attempt until it is due, both as written, in one transaction."""
    due_at = await sql.fetchval("select ready_at from windlass.scheduled where job_id = $1", job_id)
    ended_at = (await store.views.attempts(job_id))[-1].ended_at
    return float((due_at - ended_at).total_seconds())


@asynccontextmanager
async def _leading(worker: Placed) -> AsyncIterator[None]:
    """The leader, who makes ready what is due, and wakes the worker for it."""
    store = worker.store
    waker = PostgresWaker(store.hints)
    leading = asyncio.create_task(
        Leader(
            store.upkeep, store.claims(), waker,
            holder=uuid4(), lease=LeaseConfig(), placement=PlacementConfig(),
        ).run()
    )  # fmt: skip
    try:
        yield
    finally:
        leading.cancel()
        await asyncio.wait([leading])
        await waker.aclose()


def _peak_over_mean(moments_s: Iterable[float], *, least_s: float) -> float:
    """Of the numbers in each tenth of a second. The mean is over the time they took, at least what the jitter gives."""
    moments_s = sorted(moments_s)
    buckets = Counter(int((moment_s - moments_s[0]) / BUCKET_S) for moment_s in moments_s)
    took_s = max(least_s, moments_s[-1] - moments_s[0])
    return max(buckets.values()) / (len(moments_s) * BUCKET_S / took_s)
