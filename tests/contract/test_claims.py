"""A claim hands out each job once, lowest rank first, to workers that live, know its type and have room for it."""

import asyncio
import time
from typing import Any, cast
from uuid import UUID, uuid4

import asyncpg
import pytest

from tests.factory import OnConnection, Rig, WorkerRig
from windlass.config import StoreConfig
from windlass.lifecycle import Completed, Lost, settle
from windlass.model import NewJob
from windlass.placement import fit
from windlass.store.claims import Claims
from windlass.store.floors import Floors
from windlass.store.postgres import Postgres
from windlass.store.protocol import Ask
from windlass.store.store import Store, open_store

Sql = asyncpg.Connection


def demands(widths: list[int], **fields: Any) -> list[NewJob]:
    return [NewJob("echo", thread_demand=width, **fields) for width in widths]


# What fits. -----------------------------------------------------------------------------------------------------------


async def test_a_claim_takes_the_head_of_the_line_that_fits_and_nothing_behind_it(rig: Rig, store: Store) -> None:
    cases = [[1] * 12, [3, 3, 3, 1], [4, 8, 1, 1], [8, 1], [1, 2, 3, 4], [2, 7, 1], [5, 3, 1], [1, 1, 1, 8, 1]]
    for n, widths in enumerate(cases):
        ids = [answer.id for answer in await store.intake.enqueue(demands(widths, queue=f"q{n}"))]
        worker = await rig.worker(threads=8, queues=[f"q{n}"])
        leases = await worker.claim()
        assert [lease.job_id for lease in leases] == ids[: fit(8, widths, 1000)], widths
        assert [lease.threads for lease in leases] == widths[: len(leases)]


async def test_jobs_wider_than_what_is_free_are_passed_by(rig: Rig, store: Store) -> None:
    answers = await store.intake.enqueue(demands([5, 1, 4, 3, 8, 1]))
    worker = await rig.worker(threads=8)
    assert [lease.job_id for lease in await worker.claim(4)] == [answers[1].id]
    assert [lease.job_id for lease in await worker.claim(3)] == [answers[3].id]
    assert [lease.threads for lease in await worker.claim(0)] == []


async def test_a_claim_takes_no_more_than_it_asked_for(rig: Rig) -> None:
    await rig.enqueue(20)
    worker = await rig.worker(threads=8)
    assert len(await worker.claim(most=3)) == 3
    assert len(await worker.claim(most=0)) == 0
    assert len(await worker.claim()) == 8
    assert len(await worker.claim(2, budget=5)) == 5
    assert len(await worker.claim(2, budget=0)) == 0


async def test_several_queues_are_merged_by_rank(rig: Rig, store: Store) -> None:
    jobs = [NewJob("echo", queue=q, priority=p, thread_demand=d) for q in "abc" for p in (0, 3, 1) for d in (1, 2)]
    await store.intake.enqueue(jobs)
    worker = await rig.worker(threads=27, queues=["a", "b", "c"])
    leases = await worker.claim()
    assert len(leases) == 18
    assert [lease.rank for lease in leases] == sorted(lease.rank for lease in leases)
    assert [lease.priority for lease in leases] == [3] * 6 + [1] * 6 + [0] * 6


async def test_a_worker_gets_only_types_it_knows_from_its_queues(rig: Rig) -> None:
    (mine,) = await rig.enqueue(type="other", queue="b")
    await rig.enqueue(type="echo", queue="b")
    await rig.enqueue(type="other", queue="a")
    worker = await rig.worker(queues=["b", "empty"], types=["other", "unused"])
    assert [lease.job_id for lease in await worker.claim()] == [mine]
    assert await worker.claim() == []


async def test_a_lease_says_all_a_worker_needs(rig: Rig, store: Store) -> None:
    await rig.enqueue(
        payload={"n": 1},
        name="nightly",
        priority=7,
        thread_demand=3,
        max_attempts=5,
        timeout_s=12.5,
        trace="00-ab-cd-01",
    )
    worker = await rig.worker()
    (lease,) = await worker.claim()
    assert (lease.payload, lease.name, lease.priority, lease.thread_demand) == ('{"n":1}', "nightly", 7, 3)
    assert (lease.max_attempts, lease.timeout_s, lease.trace, lease.retry) == (5, 12.5, "00-ab-cd-01", None)
    assert (lease.attempt, lease.failures, lease.suspect, lease.crashes, lease.worker_id) == (1, 0, False, 0, worker.id)
    assert 0 <= lease.waited_s < 60
    job = await store.views.job(lease.job_id)
    assert (job.threads_granted, job.worker_id, job.attempt) == (3, worker.id, 1)


# Who may. -------------------------------------------------------------------------------------------------------------


async def test_only_a_living_worker_gets_jobs(rig: Rig, store: Store, sql: Sql) -> None:
    (job_id,) = await rig.enqueue()
    buried, draining, lapsed = await rig.worker(), await rig.worker(), await rig.worker(lease_ttl_s=0)
    await store.upkeep.bury([buried.id], "left")
    await store.upkeep.drain([draining.id])
    unknown = WorkerRig(uuid4(), store.claims(), 8, ["default"], ["echo"])
    for worker in (buried, draining, lapsed, unknown):
        assert await worker.claim() == []
    rows = await sql.fetch("select job_id, attempt from windlass.ready")
    assert [tuple(row) for row in rows] == [(job_id, 0)]
    assert [lease.job_id for lease in await (await rig.worker()).claim()] == [job_id]


async def test_a_lapsed_worker_that_is_renewed_before_its_burial_claims_again(rig: Rig, store: Store) -> None:
    await rig.enqueue()
    worker = await rig.worker(lease_ttl_s=0)
    assert await worker.claim() == []
    assert await store.upkeep.renew([worker.id], lease_ttl_s=60) == {worker.id: False}
    assert len(await worker.claim()) == 1


async def test_eight_claimers_at_once_claim_every_job_exactly_once(config: StoreConfig, store: Store, rig: Rig) -> None:
    await store.intake.enqueue([NewJob("echo", n) for n in range(20_000)])

    async def drain() -> list[UUID]:
        taken: list[UUID] = []
        async with open_store(config) as own:
            worker = await Rig(own).worker(threads=8)
            ask = Ask(worker.id, worker.queues, worker.types, free=1, budget=250)
            while leases := await worker.claims.claim(ask):
                taken += [lease.job_id for lease in leases]
                receipt = await worker.claims.settle([settle(lease, Completed(), jitter=0) for lease in leases])
                assert len(receipt.moved) == len(leases)
        return taken

    taken = await asyncio.gather(*(drain() for _ in range(8)))
    assert sum(map(len, taken)) == 20_000
    assert len({job_id for of_one in taken for job_id in of_one}) == 20_000
    assert await (await rig.worker()).claim() == []


# Floors. --------------------------------------------------------------------------------------------------------------


def test_a_floor_lives_twenty_looks_but_never_beyond_two_seconds() -> None:
    for look_s, life_s in ((0.0, 0.05), (0.001, 0.05), (0.01, 0.2), (0.1, 2.0), (30.0, 2.0)):
        floors: Floors[str, int] = Floors()
        floors.learn([("a", 5), ("b", 7), ("a", 6)], full=True, began_s=100, ended_s=100 + look_s)
        learnt_s = 100 + look_s
        assert floors.at(learnt_s + life_s - 0.001) == {"a": 5, "b": 7}
        assert floors.at(learnt_s + life_s + 0.001) == {}


def test_looks_from_a_floor_raise_it_but_do_not_prolong_its_life() -> None:
    floors: Floors[str, int] = Floors()
    floors.learn([("a", 5)], full=True, began_s=0, ended_s=0.1)
    floors.learn([("a", 50)], full=False, began_s=1.9, ended_s=2.0)
    assert floors.at(2.0) == {"a": 50}
    assert floors.at(2.2) == {}
    floors.learn([("a", 5)], full=True, began_s=3, ended_s=3.1)
    floors.forget()
    assert floors.at(3.1) == {}


async def test_a_more_urgent_job_is_overlooked_for_two_seconds_at_most(rig: Rig) -> None:
    await rig.enqueue(4_000)
    worker = await rig.worker(threads=1)
    ask = Ask(worker.id, worker.queues, worker.types, free=1, most=1)
    await worker.claims.claim(ask)
    (urgent,) = await rig.enqueue(priority=10)
    began_s = asked_s = time.monotonic()
    (lease,) = await worker.claims.claim(ask)
    while lease.job_id != urgent:
        assert asked_s - began_s < 2.0
        asked_s = time.monotonic()
        (lease,) = await worker.claims.claim(ask)


async def test_a_fresh_look_finds_a_more_urgent_job_at_once(rig: Rig) -> None:
    await rig.enqueue(20)
    worker = await rig.worker(threads=1)
    ask = Ask(worker.id, worker.queues, worker.types, free=1, most=1)
    await worker.claims.claim(ask)
    (urgent,) = await rig.enqueue(priority=10)
    worker.claims.look_afresh()
    assert [lease.job_id for lease in await worker.claims.claim(ask)] == [urgent]


async def test_a_short_answer_is_followed_by_a_full_look(rig: Rig) -> None:
    await rig.enqueue(3)
    worker = await rig.worker(threads=8)
    ask = Ask(worker.id, worker.queues, worker.types, free=4)
    assert len(await worker.claims.claim(ask)) == 3
    (wide,) = await rig.enqueue(thread_demand=4, priority=1)
    assert [lease.job_id for lease in await worker.claims.claim(ask)] == [wide]


async def test_a_released_job_is_found_again_at_once(rig: Rig) -> None:
    await rig.enqueue(20)
    worker = await rig.worker(threads=1)
    ask = Ask(worker.id, worker.queues, worker.types, free=1, most=1)
    (first,) = await worker.claims.claim(ask)
    await worker.claims.claim(ask)
    await worker.claims.release([first])
    assert [lease.job_id for lease in await worker.claims.claim(ask)] == [first.job_id]


# Durability, suspects. ------------------------------------------------------------------------------------------------


async def test_a_claim_waits_for_no_disk_and_everything_else_does(rig: Rig, store: Store, sql: Sql) -> None:
    await rig.enqueue()
    worker = await rig.worker()
    claims = Claims(cast("Postgres", OnConnection(store.postgres, sql)))
    setting = "select current_setting('synchronous_commit')"
    assert await sql.fetchval(setting) == "on"
    async with sql.transaction():
        (lease,) = await claims.claim(Ask(worker.id, worker.queues, worker.types, free=1))
        assert await sql.fetchval(setting) == "off"
    assert await sql.fetchval(setting) == "on"
    async with sql.transaction():
        await claims.settle([settle(lease, Completed(), jitter=0)])
        assert await sql.fetchval(setting) == "on"
        await store.intake.enqueue([NewJob("echo"), NewJob("echo", idempotency_key="k")], connection=sql)
        assert await sql.fetchval(setting) == "on"


@pytest.mark.parametrize(("hours", "counted"), [(23, 2), (25, 1)])
async def test_suspicion_and_the_crashes_of_a_day_travel_with_the_job(
    rig: Rig, store: Store, sql: Sql, hours: int, counted: int
) -> None:
    (job_id,) = await rig.enqueue(max_attempts=10)
    worker = await rig.worker()
    seen = []
    for _ in range(3):
        (lease,) = await worker.claim()
        seen.append((lease.suspect, lease.crashes))
        await worker.settle(lease, Lost(crashed=True))
        if len(seen) > 1:
            await store.intake.run_now(job_id)
    assert seen == [(False, 0), (True, 0), (True, 1)]
    await sql.execute(
        "update windlass.ready set crashed_at[1] = now() - make_interval(hours => $2) where job_id = $1", job_id, hours
    )
    (lease,) = await worker.claim()
    assert (lease.suspect, lease.crashes, lease.failures, lease.attempt) == (True, counted, 3, 4)
