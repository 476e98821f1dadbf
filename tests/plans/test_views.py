"""What people look at costs the same at any number of jobs."""

import pytest

from tests.plans.conftest import Sample
from tests.plans.probe import Probe
from windlass.store.store import Store


async def test_counts_after_a_fold(probe: Probe) -> None:
    seen = await probe.best(lambda store: store.views.counts())
    assert seen.visited == 0
    assert seen.buffers < 50
    assert await probe.quickest_ms(lambda store: store.views.counts()) < 20


async def test_counts_with_10_000_deltas_not_yet_folded(probe: Probe) -> None:
    async def act(store: Store) -> None:
        async with store.postgres.connection() as connection:
            await connection.execute(
                "insert into windlass.counter (n, status, queue, type) select (-1) ^ n, 'ready', 'q' || n % 4, 't' || n % 8"
                " from generate_series(1, 10000) n"
            )
        probe._plans.clear()
        await store.views.counts()

    seen = await probe.best(act, runs=3)
    took_ms = await probe.quickest_ms(act, runs=3)
    print(f"counts with 10,000 deltas: {took_ms:.1f} ms, {seen.buffers} buffers")
    assert seen.buffers < 10_000 / 50
    assert took_ms < 20


async def test_queues(probe: Probe) -> None:
    seen = await probe.best(lambda store: store.views.queues())
    print(f"queues: {seen.buffers} buffers, {seen.visited} rows visited")
    assert seen.visited <= 6 * 8 * 100 + 100
    assert seen.buffers < 2 * 6 * 8 * 100
    assert await probe.quickest_ms(lambda store: store.views.queues()) < 20


async def test_workers(probe: Probe) -> None:
    # The jobs of each worker are sorted, 200 at a time.
    seen = await probe.best(lambda store: store.views.workers(), most_sorted=5_000)
    assert seen.buffers < 8_000
    assert await probe.quickest_ms(lambda store: store.views.workers()) < 20


async def test_the_thread_map(probe: Probe) -> None:
    """200 workers and their running jobs, each job looked up by key in one partition."""
    seen = await probe.best(lambda store: store.views.thread_map(), most_sorted=5_000)
    took_ms = await probe.quickest_ms(lambda store: store.views.thread_map())
    print(f"thread map: {seen.buffers} buffers, {seen.visited} rows visited, {took_ms:.1f} ms")
    (plan,) = seen
    assert plan.scanned() == []
    assert len(plan.touched("job")) <= 2
    assert seen.buffers < 60_000
    assert took_ms < 60


@pytest.mark.parametrize("where", ["ready", "scheduled", "held", "finished", "kept"])
async def test_one_job_is_looked_up_by_key_in_one_partition(probe: Probe, sample: Sample, where: str) -> None:
    job_id = getattr(sample, where)[0]
    seen = await probe.best(lambda store: store.views.job(job_id))
    (plan,) = seen
    print(f"one {where} job: {seen.buffers} buffers")
    assert len(plan.touched("job")) <= 1
    assert len(plan.touched("outcome")) <= 1
    assert seen.visited <= 3  # a job between tries has a last attempt, too: a quarter of the scheduled ones
    assert seen.buffers < 50


async def test_attempts_are_looked_up_by_key_in_one_partition(probe: Probe, sample: Sample) -> None:
    (plan,) = await probe.best(lambda store: store.views.attempts(sample.finished[0]))
    assert len(plan.touched("attempt")) == 1
    assert len(plan.touched("outcome")) == 1
    assert plan.buffers < 30
