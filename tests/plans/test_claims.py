"""Claim and settle cost what they move, whatever lies behind, before or beneath it."""

import time
from collections.abc import AsyncIterator
from uuid import UUID, uuid4

import asyncpg
import pytest

from tests.factory import Rig
from tests.plans import fill
from tests.plans.conftest import Sample
from tests.plans.plan import buffers
from tests.plans.probe import Act, Probe, probing
from windlass.lifecycle import Completed, Failed, Outcome, Released, settle
from windlass.model import Error, Lease, NewJob
from windlass.store.claims import Claims
from windlass.store.lines import page_of_lines
from windlass.store.protocol import Ask
from windlass.store.store import Store

BATCH = 200


def claiming(sample: Sample, **over: object) -> Act:
    fields = {"queues": ["default"], "types": fill.TYPES, "free": 1, "budget": BATCH, "most": BATCH, **over}
    ask = Ask(sample.workers[0], **fields)  # type: ignore[arg-type]

    async def act(store: Store) -> list[Lease]:
        leases = await store.claims().claim(ask)
        assert leases
        return leases

    return act


async def test_a_claim_touches_a_few_pages_per_job(pinned: Probe, sample: Sample) -> None:
    seen = await pinned.best(claiming(sample))
    print(f"claim of {BATCH}, one queue, one demand: {seen.buffers / BATCH:.1f} buffers per job")
    assert seen.visited <= 4 * BATCH
    assert seen.buffers < 40 * BATCH
    assert len(seen.of("ready").touched("job")) <= 2


async def test_a_claim_of_one_job_touches_few_pages(pinned: Probe, sample: Sample) -> None:
    seen = await pinned.best(claiming(sample, budget=1, most=1))
    print(f"claim of 1: {seen.buffers} buffers")
    assert seen.buffers < 80


async def test_a_claim_over_many_queues_and_demands_looks_no_further_than_its_budget(
    pinned: Probe, sample: Sample
) -> None:
    queues = ["bulk", "default", "mail"]
    looked = len(queues) * sum(BATCH // demand + 1 for demand in range(1, 9))
    seen = await pinned.best(claiming(sample, queues=queues, free=8))
    print(f"claim of {BATCH} threads, 3 queues, 8 demands: {seen.buffers} buffers, {seen.visited} rows visited")
    assert seen.visited <= looked + 3 * BATCH
    assert seen.buffers < 40 * BATCH


async def test_a_claim_by_pattern_steps_over_lines_and_not_over_jobs(pinned: Probe, sample: Sample) -> None:
    seen = await pinned.best(lambda store: page_of_lines(store.postgres, ["m", "crowd"]))
    lines = 2 * 8 + 2  # mail and media in eight widths; crowded in two
    others = 3  # bulk, default, lonely: one step each, however many widths they have
    print(f"lines found by pattern: {seen.buffers} buffers, {seen.visited} rows visited")
    assert seen.visited <= lines + others
    assert seen.buffers < 8 * (lines + others)


async def test_wide_jobs_at_the_head_cost_a_narrow_claim_nothing(pinned: Probe, sample: Sample) -> None:
    act = claiming(sample, queues=["crowded"], free=4, budget=4)
    seen = await pinned.best(act)
    took_ms = await pinned.quickest_ms(act)
    print(f"narrow claim behind {fill.WIDE} wide jobs: {seen.buffers} buffers, {took_ms:.2f} ms")
    assert seen.visited < 50
    assert seen.buffers < 250
    assert took_ms < 1


async def test_a_settle_touches_a_few_pages_per_job(pinned: Probe, sample: Sample) -> None:
    done = [settle(lease, Completed({"ok": True}), jitter=0.5, execution_s=0.1) for lease in sample.running]
    seen = await pinned.best(lambda store: store.claims().settle(done))
    print(f"settle of {len(done)}, completed: {seen.buffers / len(done):.1f} buffers per job")
    assert seen.visited <= 2 * len(done)
    assert seen.buffers < 40 * len(done)


async def test_a_settle_of_mixed_outcomes_touches_a_few_pages_per_job(pinned: Probe, sample: Sample) -> None:
    ends: list[Outcome] = [Completed(1), Failed(Error("E", "no")), Failed(Error("E", "no"), final=True), Released()]
    mixed = [settle(lease, ends[n % 4], jitter=0.5, execution_s=0.1) for n, lease in enumerate(sample.running)]
    seen = await pinned.best(lambda store: store.claims().settle(mixed))
    print(f"settle of {len(mixed)}, mixed: {seen.buffers / len(mixed):.1f} buffers per job")
    assert seen.visited <= 2 * len(mixed)
    assert seen.buffers < 45 * len(mixed)


async def test_settlements_that_were_lost_are_looked_up_by_key(probe: Probe, sample: Sample) -> None:
    lost = [settle(lease._replace(token=uuid4()), Completed(1), jitter=0) for lease in sample.running]
    seen = await probe.best(lambda store: store.claims().settle(lost))
    assert seen.visited <= 4 * len(lost)
    assert seen.buffers < 30 * len(lost)


async def test_strays_and_held_leases_are_found_by_worker(probe: Probe, sample: Sample) -> None:
    worker = sample.workers[0]
    held = [lease.job_id for lease in sample.running]
    of_one = fill.RUNNING // (fill.LIVING + fill.DEAD)
    seen = await probe.best(lambda store: store.postgres.fetch("strays", worker, 5.0, held))
    assert seen.visited <= of_one
    assert seen.buffers <= of_one + 10
    seen = await probe.best(lambda store: store.claims().held(worker))
    assert seen.visited <= of_one
    assert seen.buffers <= of_one + 10


# Under a held snapshot: entries of finished jobs stay in the index. ---------------------------------------------------


@pytest.fixture
async def held_snapshot(url: str, store: Store) -> AsyncIterator[tuple[UUID, int]]:
    """30,000 jobs, a snapshot, and 20,000 of them finished under it; the rank where the rest begin."""
    worker = await Rig(store).worker()
    for _ in range(6):
        await store.intake.enqueue([NewJob("echo", {})] * 5_000)
    holder = await asyncpg.connect(url)
    await holder.execute("begin isolation level repeatable read; select 1 from windlass.ready limit 1")
    claims, floor = store.claims(), 0
    for _ in range(100):
        leases = await claims.claim(Ask(worker.id, ["default"], ["echo"], free=8, budget=BATCH, most=BATCH))
        floor = leases[0].rank
        await claims.settle([settle(lease, Completed(), jitter=0) for lease in leases])
    yield worker.id, floor
    await holder.close()


async def test_a_floored_claim_does_not_walk_over_what_is_finished(url: str, held_snapshot: tuple[UUID, int]) -> None:
    worker_id, floor = held_snapshot
    ask = Ask(worker_id, ["default"], ["echo"], free=8, budget=BATCH, most=BATCH)

    def floored(store: Store) -> Claims:
        claims, now_s = store.claims(), time.monotonic()
        claims._floors.learn([(("default", 1), floor)], full=True, began_s=now_s, ended_s=now_s + 60)
        return claims

    async with probing(url) as probe:
        full = await probe.best(lambda store: store.claims().claim(ask))
        quick = await probe.best(lambda store: floored(store).claim(ask))
    looks = [next(n for n in seen.of("ready").nodes if n.get("Index Name") == "ready_claim") for seen in (quick, full)]
    floored_look, full_look = (buffers(look) for look in looks)
    print(
        f"under a snapshot, after 20,000 jobs, the look alone: {floored_look} buffers with the floor, {full_look} without;"
        f" whole claim: {quick.buffers} and {full.buffers}, {quick.took_ms:.1f} and {full.took_ms:.1f} ms"
    )
    assert floored_look < 30
    assert full_look > 10 * floored_look
    assert quick.buffers < 40 * BATCH
