"""What callers do costs what it moves, at any backlog: rows by key, and one partition each."""

from uuid import uuid4

import asyncpg

from tests.factory import present
from tests.plans.conftest import Sample, Statistics
from tests.plans.probe import Probe
from windlass.model import NewJob
from windlass.store.store import Store


async def test_enqueue_touches_a_few_pages_per_job(probe: Probe) -> None:
    jobs = [NewJob("email", {"n": n}, tags=["a", "b"], delay_s=60 if n % 2 else None) for n in range(200)]
    seen = await probe.best(lambda store: store.intake.enqueue(jobs))
    print(f"enqueue of 200 with 2 tags each: {seen.buffers / 200:.1f} buffers per job")
    assert seen.visited == 0
    assert seen.buffers < 40 * len(jobs)


async def test_a_job_that_is_handed_over_touches_few_pages(
    probe: Probe, sample: Sample, full: dict[Statistics, str]
) -> None:
    key, worker_id = uuid4(), sample.workers[0]
    ears = [await asyncpg.connect(url) for url in full.values()]
    for ear in ears:
        await present(ear, key)

    async def act(store: Store) -> None:
        await store.hints.rest(worker_id, queues=["default"], types=["echo"], free=8, hand_key=key, hand_for_s=9)
        (stored,) = await store.intake.enqueue([NewJob("echo")])
        assert stored.id in {job_id for job_id, _ in await store.claims().held(worker_id)}

    seen = await probe.best(act)
    for ear in ears:
        await ear.close()
    print(f"rest, submission and hand-over of one job: {seen.buffers} buffers")
    assert seen.buffers < 200


async def test_keyed_enqueue_touches_a_few_pages_per_job(probe: Probe) -> None:
    jobs = [NewJob("email", {"n": n}, idempotency_key=f"new {n}") for n in range(200)]
    seen = await probe.best(lambda store: store.intake.enqueue(jobs))
    assert seen.visited <= 200
    assert seen.buffers < 40 * len(jobs)


async def test_a_repeated_enqueue_reads_the_bodies_by_id(probe: Probe) -> None:
    async def twice(store: Store) -> None:
        jobs = [NewJob("email", {"n": n}, id=one) for n, one in enumerate(store.intake._ids.make(200))]
        await store.intake.enqueue(jobs)
        await store.intake.enqueue(jobs)

    seen = await probe.best(twice)
    assert seen.visited <= 400
    assert len(seen[-1].touched("job")) <= 1


async def test_key_holders_are_found_by_key(probe: Probe, sample: Sample) -> None:
    seen = await probe.best(lambda store: store.postgres.fetch("key_holders", sorted(sample.keys), []))
    assert seen.visited <= 200
    assert seen.buffers <= 4 * 200


async def test_cancel_of_100(pinned: Probe, sample: Sample) -> None:
    ids = [*sample.ready[:40], *sample.scheduled[:30], *sample.held[:10], *(r.job_id for r in sample.running[:20])]
    seen = await pinned.best(lambda store: store.intake.cancel_many(ids))
    print(f"cancel of 100: {seen.buffers / 100:.1f} buffers per job")
    assert seen.visited <= 200
    assert seen.buffers < 40 * 100


async def test_cancel_of_100_that_have_finished_looks_for_them_by_key(pinned: Probe, sample: Sample) -> None:
    seen = await pinned.best(lambda store: store.intake.cancel_many(sample.finished[:100]))
    assert seen.visited <= 400
    assert seen.buffers < 40 * 100


async def test_retry_of_100(pinned: Probe, sample: Sample) -> None:
    ids = [*sample.finished[:90], *sample.kept[:10]]
    seen = await pinned.best(lambda store: store.intake.retry_many(ids))
    print(f"retry of 100: {seen.buffers / 100:.1f} buffers per job")
    assert seen.visited <= 400
    assert seen.buffers < 80 * 100


async def test_retry_of_one_touches_one_partition(pinned: Probe, sample: Sample) -> None:
    seen = await pinned.best(lambda store: store.intake.retry_many(sample.finished[:1]))
    plan = seen.of("outcome")
    assert len(plan.touched("outcome")) == 1
    assert len(plan.touched("job")) == 1
    assert seen.buffers < 150


async def test_run_now_of_100(pinned: Probe, sample: Sample) -> None:
    ids = [*sample.scheduled[:90], *sample.held[:10]]
    seen = await pinned.best(lambda store: store.intake.run_now_many(ids))
    print(f"run now of 100: {seen.buffers / 100:.1f} buffers per job")
    assert seen.visited <= 200
    assert seen.buffers < 40 * 100
