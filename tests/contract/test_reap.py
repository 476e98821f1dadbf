"""Dead is final: a worker without a valid lease loses its jobs to the living, each job once, and never comes back."""

import asyncio
from uuid import UUID, uuid4

import asyncpg
import pytest

from tests.factory import Rig, WorkerRig
from windlass.errors import NotPossible
from windlass.leader.chores import reap
from windlass.model import Declared, Error, Lease, NewWorker, Status, start_key
from windlass.store.store import Store

Sql = asyncpg.Connection


async def reap_all(store: Store) -> int:
    moved = 0
    while page := await reap(store.upkeep, store.claims(), lambda: 0.5):
        moved += page
    return moved


async def lapse(sql: Sql, worker_id: UUID) -> None:
    """Let a minute pass for one lease, which was of that length."""
    await sql.execute(
        "update windlass.worker set renewed_at = now() - interval '61 s', lease_until = now() - interval '1 s' where id = $1",
        worker_id,
    )


async def holding(rig: Rig, count: int = 1) -> tuple[WorkerRig, list[Lease]]:
    await rig.enqueue(count)
    worker = await rig.worker()
    return worker, await worker.claim(1, budget=count, most=count)


# Workers. -------------------------------------------------------------------------------------------------------------


async def test_a_worker_is_registered_as_it_says(store: Store) -> None:
    new = NewWorker(uuid4(), "node-1", 16, ["a", "b"], ["echo"], uuid4())
    await store.upkeep.register(new, lease_ttl_s=30)
    (worker,) = await store.views.workers()
    assert (worker.id, worker.name, worker.threads) == (new.id, "node-1", 16)
    assert (worker.queues, worker.types, worker.supervisor_id) == (["a", "b"], ["echo"], new.supervisor_id)
    assert (worker.busy_threads, worker.jobs, worker.draining, worker.died_at) == (0, 0, False, None)
    assert worker.alive
    assert 20 < worker.lease_left_s <= 30


async def test_a_renewal_pushes_out_the_leases_of_the_living_only(rig: Rig, store: Store) -> None:
    living, draining, dead = await rig.worker(), await rig.worker(), await rig.worker()
    await store.upkeep.drain([draining.id])
    await store.upkeep.bury([dead.id], "crashed")
    answer = await store.upkeep.renew([living.id, draining.id, dead.id, uuid4()], lease_ttl_s=1000)
    assert answer == {living.id: False, draining.id: True}
    left_s = {worker.id: worker.lease_left_s for worker in await store.views.workers()}
    assert left_s[living.id] > 900
    assert left_s[draining.id] > 900
    assert left_s[dead.id] <= 60
    assert await store.upkeep.renew([], lease_ttl_s=1000) == {}


async def test_the_dead_stay_dead(rig: Rig, store: Store, sql: Sql) -> None:
    worker = await rig.worker()
    assert await store.upkeep.bury([worker.id], "left") == {worker.id}
    assert await store.upkeep.bury([worker.id], "crashed") == set()
    assert await store.upkeep.drain([worker.id]) == set()
    assert await store.upkeep.renew([worker.id], lease_ttl_s=60) == {}
    assert await store.upkeep.bury_expired() == set()
    row = await sql.fetchrow("select cause, died_at from windlass.worker")
    assert row
    assert (row["cause"], row["died_at"] is not None) == ("left", True)
    with pytest.raises(NotPossible):
        await store.upkeep.register(NewWorker(worker.id, "again", 1, ["default"], ["echo"]), lease_ttl_s=60)


async def test_exactly_the_expired_are_buried(rig: Rig, store: Store, sql: Sql) -> None:
    living, lapsed = await rig.worker(), await rig.worker()
    await lapse(sql, lapsed.id)
    assert await store.upkeep.bury_expired() == {lapsed.id}
    assert {worker.id: worker.alive for worker in await store.views.workers()} == {living.id: True, lapsed.id: False}


async def test_a_worker_is_overdue_when_its_lease_ended_that_long_ago_and_nobody_has_buried_it(
    rig: Rig, store: Store, sql: Sql
) -> None:
    worker = await rig.worker()
    assert not await store.upkeep.overdue(after_s=0)
    await lapse(sql, worker.id)  # by a second
    assert await store.upkeep.overdue(after_s=0.5)
    assert not await store.upkeep.overdue(after_s=60)
    await store.upkeep.bury_expired()
    assert not await store.upkeep.overdue(after_s=0.5)


async def test_an_expired_worker_whose_row_is_held_keeps_no_other_from_being_buried(
    rig: Rig, store: Store, sql: Sql
) -> None:
    held, lapsed = await rig.worker(), await rig.worker()
    for worker in (held, lapsed):
        await lapse(sql, worker.id)
    async with sql.transaction():
        await sql.execute("update windlass.worker set name = name where id = $1", held.id)
        assert await store.upkeep.bury_expired() == {lapsed.id}
    assert await store.upkeep.bury_expired() == {held.id}


async def test_workers_long_dead_are_forgotten_unless_they_hold_something(rig: Rig, store: Store, sql: Sql) -> None:
    holder, leases = await holding(rig)
    gone, fresh, living = await rig.worker(), await rig.worker(), await rig.worker()
    await store.upkeep.bury([holder.id, gone.id, fresh.id], "left")
    await sql.execute(
        "update windlass.worker set died_at = now() - interval '2 days' where id = any ($1)", [holder.id, gone.id]
    )
    assert await store.upkeep.forget_workers() == {gone.id}
    assert {worker.id for worker in await store.views.workers()} == {holder.id, fresh.id, living.id}
    assert await reap_all(store) == len(leases)
    assert await store.upkeep.forget_workers() == {holder.id}


# Reaping. -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["left", "crashed", "expired", "unknown"])
async def test_the_jobs_of_a_dead_worker_go_back_at_once_and_only_a_lost_machine_counts_as_a_start_that_died(
    rig: Rig, store: Store, sql: Sql, how: str
) -> None:
    worker, leases = await holding(rig, 3)
    _, kept = await holding(rig, 2)
    if how == "left":
        await store.upkeep.bury([worker.id], "left")
    elif how == "crashed":
        await store.upkeep.bury([worker.id], "crashed")
    elif how == "expired":
        await lapse(sql, worker.id)
    else:
        await sql.execute("delete from windlass.worker where id = $1", worker.id)
    assert await reap_all(store) == 3
    assert await reap_all(store) == 0
    for lease in leases:
        job = await store.views.job(lease.job_id)
        assert (job.status, job.attempt, job.failures) == (Status.READY, 1, int(how == "expired"))
        (attempt,) = await store.views.attempts(lease.job_id)
        assert (attempt.status, attempt.worker_id, attempt.token) == ("lost", worker.id, lease.token)
        assert attempt.error == Error("Lost", "its process died or its lease was lost before the attempt ended")
    assert {await rig.status(lease.job_id) for lease in kept} == {Status.RUNNING}
    ranks = {row["job_id"]: row["rank"] for row in await sql.fetch("select job_id, rank from windlass.ready")}
    assert ranks == {lease.job_id: lease.rank for lease in leases}


# What the database knows of its server. ---------------------------------------------------------------------------------

SERVED = {
    "restarted": "started_at = started_at - interval '1 min', clock_since = now() - interval '1 h'",
    "promoted": "started_at = started_at + interval '1 min', clock_since = now() - interval '1 h'",
    "jumped": "reached_at = now() - interval '90 s', clock_since = now() - interval '1 h'",
}


@pytest.mark.parametrize("how", SERVED)
async def test_a_lease_of_another_server_or_clock_gets_its_whole_length_again(
    rig: Rig, store: Store, sql: Sql, how: str
) -> None:
    lapsed, (spared,) = await holding(rig)
    buried, (reaped,) = await holding(rig)
    await lapse(sql, lapsed.id)
    await store.upkeep.bury([buried.id], "crashed")
    await sql.execute(f"update windlass.server set {SERVED[how]}")
    await store.upkeep.take_term(uuid4(), ttl_s=3, since_last_s=1)
    assert await reap_all(store) == 1, "workers that were declared dead need no evidence"
    assert await rig.status(reaped.job_id) is Status.READY
    assert await rig.status(spared.job_id) is Status.RUNNING
    await sql.execute("update windlass.server set clock_since = now() - interval '61 s'")  # its lease was of 60 s
    assert await reap_all(store) == 1
    assert await sql.fetchval("select suspect from windlass.ready where job_id = $1", spared.job_id) is False


async def test_a_lease_that_this_server_granted_is_over_when_it_says_so_however_young_the_leader(
    rig: Rig, store: Store, sql: Sql
) -> None:
    worker, _ = await holding(rig)
    await lapse(sql, worker.id)
    await sql.execute("update windlass.server set clock_since = (select renewed_at from windlass.worker)")
    await store.upkeep.take_term(uuid4(), ttl_s=3)
    assert await reap_all(store) == 1


async def test_nobody_is_buried_on_a_server_that_no_leader_has_asked_yet(rig: Rig, store: Store, sql: Sql) -> None:
    """A leader's chore may reach the promoted standby before its term does."""
    worker, _ = await holding(rig)
    await lapse(sql, worker.id)
    await sql.execute("update windlass.server set started_at = started_at - interval '1 min'")
    assert await reap_all(store) == 0
    assert await store.upkeep.renew([worker.id], lease_ttl_s=60) == {worker.id: False}


async def test_a_contender_that_does_not_lead_says_nothing_of_the_server(store: Store, sql: Sql) -> None:
    await store.upkeep.take_term(uuid4(), ttl_s=60)
    before = await sql.fetchrow("select * from windlass.server")
    assert await store.upkeep.take_term(uuid4(), ttl_s=60) is None
    assert await sql.fetchrow("select * from windlass.server") == before


async def test_the_server_counts_as_reached_through_a_change_of_leaders_but_not_through_a_longer_gap(
    store: Store, sql: Sql
) -> None:
    first, second = uuid4(), uuid4()
    since = "select reached_since from windlass.server"
    clock = await sql.fetchval("select clock_since from windlass.server")
    await store.upkeep.take_term(first, ttl_s=3)
    began = await sql.fetchval(since)
    await sql.execute("update windlass.leader set expires_at = now()")
    await sql.execute("update windlass.server set reached_at = now() - interval '4 s'")
    assert await store.upkeep.take_term(second, ttl_s=3) == 2
    assert await sql.fetchval(since) == began
    await sql.execute("update windlass.server set reached_at = now() - interval '7 s'")
    assert await store.upkeep.take_term(second, ttl_s=3, since_last_s=7) == 2
    assert await sql.fetchval(since) != began
    assert await sql.fetchval("select clock_since from windlass.server") == clock, "its clock has not jumped"


async def test_a_lease_lost_while_the_database_was_out_of_reach_is_no_crash(rig: Rig, store: Store, sql: Sql) -> None:
    worker, (lease,) = await holding(rig)
    other = await rig.worker()
    await lapse(sql, worker.id)
    await sql.execute("update windlass.server set reached_at = now() - interval '20 s'")
    await store.upkeep.take_term(uuid4(), ttl_s=3)
    await store.upkeep.renew([other.id], lease_ttl_s=60)
    assert await reap_all(store) == 1
    job = await store.views.job(lease.job_id)
    assert (job.status, job.failures) == (Status.READY, 0)
    assert await sql.fetchval("select suspect from windlass.ready where job_id = $1", lease.job_id) is False


@pytest.mark.parametrize("renewed", [True, False])
async def test_a_lost_lease_is_a_crash_only_if_others_renewed_meanwhile(
    rig: Rig, store: Store, sql: Sql, renewed: bool
) -> None:
    worker, (lease,) = await holding(rig)
    other = await rig.worker()
    await lapse(sql, worker.id)
    await sql.execute("update windlass.worker set renewed_at = now() - interval '1 h'")
    if renewed:
        await store.upkeep.renew([other.id], lease_ttl_s=60)
    assert await reap_all(store) == 1
    assert await sql.fetchval("select suspect from windlass.ready where job_id = $1", lease.job_id) is renewed


async def test_of_a_dead_machine_only_what_had_begun_is_charged_where_starts_are_recorded(
    rig: Rig, store: Store, sql: Sql
) -> None:
    """What was claimed ahead has certainly not begun: it runs, instead of becoming a dead letter that "may have run"."""
    await store.upkeep.declare([Declared("echo", max_attempts=1, at_most_once=True)])
    await rig.enqueue(2, max_attempts=1)
    worker, other = await rig.worker(), await rig.worker()
    began, waited = await worker.claim(1, budget=2, most=2)
    await worker.claims.intend(began, start_key, "ask")
    await lapse(sql, worker.id)
    await store.upkeep.renew([other.id], lease_ttl_s=60)
    assert await reap_all(store) == 2
    jobs = [await store.views.job(lease.job_id) for lease in (began, waited)]
    assert [(job.status, job.failures) for job in jobs] == [(Status.FAILED, 1), (Status.READY, 0)]
    assert await sql.fetchval("select suspect from windlass.ready where job_id = $1", waited.job_id) is False


async def test_a_job_that_was_asked_to_cancel_is_cancelled_by_the_reaper(rig: Rig, store: Store) -> None:
    worker, (lease,) = await holding(rig)
    await store.intake.cancel(lease.job_id)
    await store.upkeep.bury([worker.id], "left")
    assert await reap_all(store) == 1
    assert await rig.status(lease.job_id) is Status.CANCELLED


async def test_a_job_that_keeps_losing_its_workers_ends_as_a_poison_pill(rig: Rig, store: Store, sql: Sql) -> None:
    (job_id,) = await rig.enqueue(max_attempts=10)
    for _ in range(4):
        worker, other = await rig.worker(), await rig.worker()
        assert len(await worker.claim()) == 1
        await lapse(sql, worker.id)
        await store.upkeep.renew([other.id], lease_ttl_s=60)
        assert await reap_all(store) == 1
        if await rig.status(job_id) is Status.SCHEDULED:
            await store.intake.run_now(job_id)
    job = await store.views.job(job_id)
    assert (job.status, job.error and job.error.type, job.attempt) == (Status.FAILED, "PoisonPill", 4)


async def test_one_act_of_reaping_moves_a_page(rig: Rig, store: Store) -> None:
    worker, _ = await holding(rig, 1_200)
    await store.upkeep.bury([worker.id], "left")
    moved = [await reap(store.upkeep, store.claims(), lambda: 0.5) for _ in range(3)]
    assert moved == [1_000, 200, 0]


async def test_a_lost_job_whose_row_is_held_keeps_no_other_from_being_reaped(rig: Rig, store: Store, sql: Sql) -> None:
    worker, leases = await holding(rig, 5)
    await store.upkeep.bury([worker.id], "crashed")
    async with sql.transaction():
        await sql.execute("update windlass.running set progress = 0.5 where job_id = $1", leases[2].job_id)
        assert await reap_all(store) == 4
    assert await reap_all(store) == 1


async def test_two_reapers_at_once_reap_each_job_once(rig: Rig, store: Store) -> None:
    worker, leases = await holding(rig, 2_500)
    await store.upkeep.bury([worker.id], "left")
    moved = await asyncio.gather(*(reap_all(store) for _ in range(3)))
    assert sum(moved) + await reap_all(store) == 2_500
    counts = await store.views.counts()
    assert counts == {("default", "echo", Status.READY): 2_500}
    for lease in leases[::500]:
        assert len(await store.views.attempts(lease.job_id)) == 1


async def test_a_reaper_and_a_late_settle_of_the_worker_do_no_harm(rig: Rig, store: Store) -> None:
    worker, leases = await holding(rig, 300)
    await store.upkeep.bury([worker.id], "left")
    _, receipt = await asyncio.gather(reap_all(store), worker.claims.release(leases))
    assert await store.views.counts() == {("default", "echo", Status.READY): 300}
    assert len(receipt.moved) + len(receipt.repeated) + len(receipt.refused) == 300
