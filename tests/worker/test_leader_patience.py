"""Jobs that cannot run as things are: reserved for, narrowed, failed or set aside, each only after it was given its time."""

import logging

import asyncpg
import pytest

from tests.eventually import aeventually
from tests.factory import Rig
from windlass.config import PlacementConfig
from windlass.leader.chores import HoldUnknown, Reserve, TooWide
from windlass.model import Status
from windlass.placement import Reservation
from windlass.store.store import Store

Sql = asyncpg.Connection
AT_ONCE = PlacementConfig(reserve_after_s=0, too_wide_grace_s=0)


# Too wide for all, and of a type nobody knows. -------------------------------------------------------------------------


async def test_a_job_wider_than_all_is_narrowed_failed_or_waits_as_it_asked_after_the_grace(
    rig: Rig, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    asked = {wish: (await rig.enqueue(thread_demand=16, if_too_wide=wish))[0] for wish in ("narrow", "fail", "wait")}
    await rig.worker(threads=8)
    patient = TooWide(store.upkeep, PlacementConfig(too_wide_grace_s=60))
    await patient()
    await patient()
    assert {await rig.status(job_id) for job_id in asked.values()} == {Status.READY}
    with caplog.at_level(logging.INFO):
        await TooWide(store.upkeep, AT_ONCE)()
    assert [job.id for job in (await store.views.jobs()).jobs if job.status is Status.FAILED] == [asked["fail"]]
    (lease,) = await (await rig.worker(threads=8)).claim()
    assert (lease.job_id, lease.threads) == (asked["narrow"], 1)
    told = {record.__dict__["job_id"]: record for record in caplog.records if "job_id" in record.__dict__}
    narrowed, failed = told[str(asked["narrow"])], told[str(asked["fail"])]
    assert (narrowed.levelname, narrowed.message) == ("INFO", "job narrowed")
    assert (failed.levelname, failed.message) == ("ERROR", "job dead-lettered")
    assert failed.__dict__["error"] == "TooWide: asks for 16 threads, and no worker has more than 8"


async def test_a_job_is_not_narrowed_while_the_one_worker_wide_enough_drains_to_be_replaced(
    rig: Rig, store: Store
) -> None:
    (job_id,) = await rig.enqueue(thread_demand=16)
    wide, other = await rig.worker(threads=16), await rig.worker(threads=8)
    await store.upkeep.drain([wide.id])
    chore = TooWide(store.upkeep, AT_ONCE)
    await chore()
    assert await other.claim() == []
    await store.upkeep.bury([wide.id], "left")
    await chore()
    (lease,) = await other.claim()
    assert (lease.job_id, lease.threads) == (job_id, 1)


async def test_a_job_is_not_narrowed_in_the_moment_in_which_the_one_wide_worker_died(rig: Rig, store: Store) -> None:
    await rig.enqueue(thread_demand=16)
    wide, other = await rig.worker(threads=16), await rig.worker(threads=8)
    chore = TooWide(store.upkeep, PlacementConfig(too_wide_grace_s=0.5))

    async def narrowed_by_now() -> bool:
        await chore()
        return len(await other.claim()) == 1

    await aeventually(lambda: waited(store, 0.6))
    assert not await narrowed_by_now()
    await store.upkeep.bury([wide.id], "crashed")
    assert not await narrowed_by_now(), "it has waited for long, but its worker is missed only now"
    await aeventually(narrowed_by_now)


async def test_a_backlog_whose_only_worker_has_just_left_is_not_set_aside_at_once(
    rig: Rig, store: Store, sql: Sql
) -> None:
    await rig.worker(types=["other"])
    knower = await rig.worker(types=["echo"])
    await rig.enqueue(3)
    chore = HoldUnknown(store.upkeep, PlacementConfig(hold_unknown_after_s=0.5))

    async def held_by_now() -> bool:
        await chore()
        return bool(await sql.fetchval("select count(*) = 3 from windlass.held"))

    await aeventually(lambda: waited(store, 0.6))
    assert not await held_by_now()
    await store.upkeep.bury([knower.id], "left")
    assert not await held_by_now(), "its jobs have waited for long, but their type is unknown only now"
    again = await rig.worker(types=["echo"])
    assert not await held_by_now()
    await store.upkeep.bury([again.id], "left")
    await aeventually(held_by_now)


@pytest.mark.parametrize("kind", [HoldUnknown, TooWide])
async def test_what_a_leader_saw_in_an_earlier_term_is_not_taken_to_have_lasted(
    rig: Rig, store: Store, sql: Sql, kind: type[HoldUnknown] | type[TooWide]
) -> None:
    await rig.worker(types=["echo"], threads=2)
    await rig.enqueue(type="strange")
    await rig.enqueue(thread_demand=8)
    await sql.execute("update windlass.ready set ready_at = now() - interval '1 h'")
    chore = kind(store.upkeep, PlacementConfig(hold_unknown_after_s=60, too_wide_grace_s=60))
    await chore()
    _as_if_seen_long_ago(chore)
    chore._looked_s -= 100
    await chore()
    untouched = await sql.fetch("select thread_demand from windlass.ready order by thread_demand")
    assert [row[0] for row in untouched] == [1, 8]
    _as_if_seen_long_ago(chore)
    await chore()
    left = [row[0] for row in await sql.fetch("select thread_demand from windlass.ready order by thread_demand")]
    assert left == ([8] if kind is HoldUnknown else [1, 1])


def _as_if_seen_long_ago(chore: HoldUnknown | TooWide) -> None:
    if isinstance(chore, HoldUnknown):
        chore._since_s = {type_: since_s - 100 for type_, since_s in chore._since_s.items()}
    else:
        chore._seen = [(since_s - 100, widths) for since_s, widths in chore._seen]


async def waited(store: Store, for_s: float) -> bool:
    return all((queue.oldest_age_s or 0) > for_s for queue in await store.views.queues())


# Reservations. --------------------------------------------------------------------------------------------------------


async def test_by_age_threads_are_kept_for_the_first_wide_job_and_for_others_once_they_are_passed_over(
    rig: Rig, store: Store
) -> None:
    workers = [await rig.worker(threads=8) for _ in range(4)]
    await rig.enqueue(6)
    first = await workers[0].claim()
    wides = [(await rig.enqueue(thread_demand=8))[0] for _ in range(2)]
    await rig.enqueue(20)
    chore = Reserve(store.upkeep, AT_ONCE)
    for _ in range(2):
        await chore()
        assert [held.job_id for held in await store.upkeep.reservations()] == wides[:1], "the other waits for its turn"
    await workers[0].claim(2, busy=6)
    await chore()
    held = await store.upkeep.reservations()
    assert {reservation.job_id for reservation in held} == set(wides)
    kept = next(worker for worker in workers if worker.id == held[0].worker_id)
    assert await kept.claim(6, busy=2) == [], "and now nothing passes it there"
    await workers[0].claims.release(first)
    await Reserve(store.upkeep, PlacementConfig(reservations="off", reserve_after_s=0))()
    assert await store.upkeep.reservations() == []
    assert len(await kept.claim(6, busy=2)) == 6


async def test_a_job_is_passed_over_also_by_those_of_other_queues_of_the_same_worker(rig: Rig, store: Store) -> None:
    worker = await rig.worker(threads=8, queues=["a", "b"])
    (wide,) = await rig.enqueue(queue="a", thread_demand=8)
    await rig.enqueue(3, queue="b")
    assert len(await worker.claim(3, busy=5)) == 3
    await Reserve(store.upkeep, AT_ONCE)()
    assert await store.upkeep.reservations() == [Reservation(worker.id, wide, 8)]


async def test_a_job_once_passed_over_stays_due_and_is_served_before_those_behind_it(rig: Rig, store: Store) -> None:
    workers = [await rig.worker(threads=8) for _ in range(3)]
    wides = [(await rig.enqueue(thread_demand=8))[0] for _ in range(3)]
    await rig.enqueue(12)
    for worker in workers:
        await worker.claim(4, busy=4)
    chore = Reserve(store.upkeep, AT_ONCE)
    await chore()
    assert [held.job_id for held in await store.upkeep.reservations()] == [wides[0]], "half of three is one"
    await store.intake.cancel(wides[0])
    for worker in workers:
        await store.upkeep.bury([worker.id], "left")
    for _ in range(3):
        await rig.worker(threads=8)
    await chore()
    assert [held.job_id for held in await store.upkeep.reservations()] == [wides[1]], "nobody runs anything by now"


async def test_no_threads_are_kept_on_a_worker_that_drains_or_has_lost_too_many(
    rig: Rig, store: Store, sql: Sql
) -> None:
    worker = await rig.worker(threads=8)
    await rig.enqueue(thread_demand=8)
    await rig.enqueue(8)
    await worker.claim(1)
    await sql.execute("update windlass.worker set lost_threads = 1")
    await Reserve(store.upkeep, AT_ONCE)()
    assert await store.upkeep.reservations() == []
    await sql.execute("update windlass.worker set lost_threads = 0, draining = true")
    await Reserve(store.upkeep, AT_ONCE)()
    assert await store.upkeep.reservations() == []
    await sql.execute("update windlass.worker set draining = false")
    await Reserve(store.upkeep, AT_ONCE)()
    assert len(await store.upkeep.reservations()) == 1
