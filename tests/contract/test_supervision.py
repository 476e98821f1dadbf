"""What supervisors ask of the store: renewals with lost threads, what a worker holds, and who was asked to cancel."""

from uuid import uuid4

import asyncpg

from tests.factory import Rig
from windlass.lifecycle import Lost, settle
from windlass.model import Status
from windlass.store.store import Store

Sql = asyncpg.Connection


async def test_a_renewal_notes_the_threads_that_are_lost(rig: Rig, store: Store, sql: Sql) -> None:
    one, other = await rig.worker(), await rig.worker()
    await store.upkeep.renew([one.id, other.id], lease_ttl_s=60, lost_threads={one.id: 3})
    lost = {row["id"]: row["lost_threads"] for row in await sql.fetch("select id, lost_threads from windlass.worker")}
    assert lost == {one.id: 3, other.id: 0}
    await store.upkeep.renew([one.id], lease_ttl_s=60)
    assert await sql.fetchval("select lost_threads from windlass.worker where id = $1", one.id) == 0


async def test_what_a_worker_holds_is_told_whether_it_lives_or_not(rig: Rig, store: Store) -> None:
    await rig.enqueue(3, max_attempts=7, timeout_s=12.5)
    worker, other = await rig.worker(), await rig.worker()
    mine = await worker.claim(2)
    theirs = await other.claim()
    held = await store.upkeep.held_by([worker.id])
    assert [lease.job_id for lease in held] == sorted(lease.job_id for lease in mine)
    assert {(lease.worker_id, lease.max_attempts, lease.timeout_s) for lease in held} == {(worker.id, 7, 12.5)}
    assert {lease.token for lease in held} == {lease.token for lease in mine}
    await store.upkeep.bury([worker.id], "crashed")
    assert len(await store.upkeep.held_by([worker.id, other.id])) == len(mine) + len(theirs)
    assert await store.upkeep.held_by([uuid4()]) == []
    assert await store.upkeep.held_by([]) == []


async def test_what_a_worker_holds_comes_in_pages(rig: Rig, store: Store) -> None:
    await rig.enqueue(30)
    worker = await rig.worker()
    leases = await worker.claim(1, budget=30, most=30)
    page = await store.upkeep.held_by([worker.id], limit=10)
    assert len(page) == 10
    moved = (await store.claims().settle(settle(one, Lost(crashed=False), jitter=0) for one in page)).moved
    assert set(moved.values()) == {Status.READY}
    assert len(await store.upkeep.held_by([worker.id])) == len(leases) - 10


async def test_a_lease_read_back_says_how_often_it_crashed_within_a_day(rig: Rig, store: Store, sql: Sql) -> None:
    await rig.enqueue()
    worker = await rig.worker()
    await worker.claim()
    await sql.execute(
        "update windlass.running set crashed_at = array[now() - interval '2 days', now()], suspect = true"
    )
    (lease,) = await store.upkeep.held_by([worker.id])
    assert (lease.crashes, lease.suspect) == (1, True)


async def test_the_cancels_of_several_workers_are_told_apart(rig: Rig, store: Store) -> None:
    await rig.enqueue(4)
    one, other, idle = await rig.worker(), await rig.worker(), await rig.worker()
    first, second = await one.claim(2), await other.claim(2)
    assert await store.upkeep.cancels([one.id, other.id, idle.id]) == {}
    await store.intake.cancel(first[0].job_id)
    await store.intake.cancel(second[1].job_id)
    assert await store.upkeep.cancels([one.id, other.id, idle.id]) == {
        one.id: {first[0].job_id: first[0].token},
        other.id: {second[1].job_id: second[1].token},
    }
    assert await store.upkeep.cancels([idle.id]) == {}
