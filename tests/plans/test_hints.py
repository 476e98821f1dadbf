"""A wake-up costs the line of idle workers, never the backlog."""

from typing import Final
from uuid import uuid4

from tests.plans.conftest import Sample
from tests.plans.probe import Probe
from windlass.model import Want
from windlass.store.hints import Hints
from windlass.store.store import Store

WANTS: Final = [Want("default", "echo", 1, 3), Want("default", "other", 2, 1)]


async def test_rouse_reads_the_idle_and_nothing_that_grows(pinned: Probe, sample: Sample) -> None:
    async def act(store: Store) -> None:
        for worker_id in sample.workers:
            await store.hints.rest(worker_id, queues=["default"], types=["echo", "other"], free=8)
        assert len(await store.hints.rouse(WANTS)) == 1

    seen = await pinned.best(act, runs=3)
    print(f"rouse among {len(sample.workers)}: {seen.buffers} buffers")
    assert seen[-1].visited == 0
    assert seen.buffers < 100


async def test_who_rests_looks_at_what_he_has_and_no_further(pinned: Probe, sample: Sample) -> None:
    async def act(store: Store) -> int:
        return await store.hints.rest(sample.workers[0], queues=["default"], types=["echo"], free=8, hand_key=uuid4())

    held = await pinned.store.claims().held(sample.workers[0])
    seen = await pinned.best(act, runs=3)
    print(f"rest with {len(held)} jobs: {seen.buffers} buffers")
    assert seen.visited <= len(held)


async def test_with_nobody_idle_a_wake_up_costs_next_to_nothing(pinned: Probe) -> None:
    seen = await pinned.best(lambda store: Hints(store.postgres).rouse(WANTS))
    assert seen.visited == 0
    assert seen.buffers < 30


async def test_nudge_looks_up_the_running_jobs_it_was_given(pinned: Probe, sample: Sample) -> None:
    ids = [lease.job_id for lease in sample.running]
    seen = await pinned.best(lambda store: store.hints.nudge(ids))
    assert seen.visited <= len(ids)
    assert seen.buffers < 10 * len(ids)
