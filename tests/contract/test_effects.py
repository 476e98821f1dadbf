"""The ledger of effects: fenced by the lease, decided by a person, kept for as long as its job."""

import asyncio
from typing import Any
from uuid import uuid4

import asyncpg
import pytest

from tests.factory import Rig, WorkerRig
from windlass.errors import JobNotFound, LeaseLost, NotPossible
from windlass.leader.chores import reap
from windlass.lifecycle import Failed, Held, Released
from windlass.model import Declared, Error, IfUnknown, Lease, Status, needs_decision, start_key
from windlass.store.protocol import Intention, JobQuery
from windlass.store.store import Store

Sql = asyncpg.Connection
UNKNOWN, NEW = Intention("unknown"), Intention("new")


async def claimed(rig: Rig, **fields: Any) -> tuple[WorkerRig, Lease]:
    await rig.enqueue(**fields)
    worker = await rig.worker()
    (lease,) = await worker.claim()
    return worker, lease


async def claimed_again(rig: Rig, worker: WorkerRig, lease: Lease) -> tuple[WorkerRig, Lease]:
    """The next attempt at the job, on another worker, after the first was given back."""
    await worker.settle(lease, Released())
    other = await rig.worker()
    (again,) = await other.claim()
    assert again.job_id == lease.job_id
    return other, again


async def undecided(rig: Rig, *keys: str) -> Lease:
    """A job that waits for a decision about these effects."""
    worker, lease = await claimed(rig)
    for key in keys:
        await worker.claims.intend(lease, key, "ask")
    await worker.settle(lease, Held(needs_decision, Error("NeedsDecision", "who knows")))
    return lease


async def ledger(sql: Sql) -> dict[str, str]:
    return {row["key"]: row["state"] for row in await sql.fetch("select key, state from windlass.effect order by key")}


# What an attempt finds. -----------------------------------------------------------------------------------------------


async def test_an_effect_is_new_then_done_and_its_result_is_found(rig: Rig, sql: Sql) -> None:
    worker, lease = await claimed(rig)
    assert await worker.claims.effect_state(lease, "mail") == NEW
    assert await worker.claims.intend(lease, "mail", "ask") == NEW
    assert await ledger(sql) == {"mail": "intended"}
    assert await worker.claims.intend(lease, "mail", "ask") == NEW, "the answer was lost: our own write"
    await worker.claims.finish_effect(lease, "mail", '{"id": 7}')
    await worker.claims.finish_effect(lease, "mail", '{"id": 8}')
    assert await worker.claims.effect_state(lease, "mail") == Intention("done", '{"id": 7}')
    other, again = await claimed_again(rig, worker, lease)
    assert await other.claims.intend(again, "mail", "repeat") == Intention("done", '{"id": 7}')


@pytest.mark.parametrize(
    ("if_unknown", "state", "next_found"),
    [("repeat", "intended", "new"), ("skip", "done", "done"), ("ask", "intended", "unknown")],
)
async def test_what_another_attempt_intended_is_unknown_and_treated_as_chosen(
    rig: Rig, sql: Sql, if_unknown: IfUnknown, state: str, next_found: str
) -> None:
    worker, lease = await claimed(rig)
    await worker.claims.intend(lease, "mail", "ask")
    other, again = await claimed_again(rig, worker, lease)
    assert await other.claims.effect_state(again, "mail") == UNKNOWN
    assert await other.claims.intend(again, "mail", if_unknown) == UNKNOWN
    assert await ledger(sql) == {"mail": state}
    assert (await other.claims.intend(again, "mail", if_unknown)).found == next_found, "asked again after a lost answer"


async def test_what_this_attempt_left_unknown_itself_is_unknown(rig: Rig) -> None:
    worker, lease = await claimed(rig)
    await worker.claims.intend(lease, "mail", "skip")
    assert await worker.claims.intend(lease, "mail", "skip", unknown=True) == UNKNOWN
    assert (await worker.claims.effect_state(lease, "mail")).found == "done"


async def test_what_is_taken_back_is_new_again_and_what_is_done_stays(rig: Rig, sql: Sql) -> None:
    worker, lease = await claimed(rig)
    for key in ("mail", "sms"):
        await worker.claims.intend(lease, key, "ask")
    await worker.claims.finish_effect(lease, "sms", None)
    for key in ("mail", "sms"):
        await worker.claims.take_back_effect(lease, key)
    assert await ledger(sql) == {"sms": "done"}


# The fence. -----------------------------------------------------------------------------------------------------------


async def test_a_lost_lease_writes_nothing_whatever_it_tries(rig: Rig, sql: Sql) -> None:
    worker, lease = await claimed(rig)
    await worker.claims.intend(lease, "mail", "ask")
    other, again = await claimed_again(rig, worker, lease)
    for stale in (lease, again._replace(token=uuid4()), again._replace(worker_id=worker.id), again._replace(attempt=9)):
        for write in (
            worker.claims.intend(stale, "mail", "repeat"),
            worker.claims.intend(stale, "another", "ask"),
            worker.claims.finish_effect(stale, "mail", None),
            worker.claims.take_back_effect(stale, "mail"),
        ):
            with pytest.raises(LeaseLost):
                await write
    assert await ledger(sql) == {"mail": "intended"}
    assert await other.claims.intend(again, "mail", "ask") == UNKNOWN


async def test_an_attempt_whose_lease_is_lost_between_intended_and_done_leaves_the_effect_unknown(
    rig: Rig, store: Store
) -> None:
    worker, lease = await claimed(rig)
    await worker.claims.intend(lease, "mail", "ask")
    await store.upkeep.bury([worker.id], "left")
    await reap(store.upkeep, store.claims(), lambda: 0.5)
    with pytest.raises(LeaseLost):
        await worker.claims.finish_effect(lease, "mail", None)
    heir = await rig.worker()
    (again,) = await heir.claim()
    assert await heir.claims.intend(again, "mail", "ask") == UNKNOWN


async def test_an_intention_and_the_end_of_its_lease_wait_for_each_other(rig: Rig, store: Store, sql: Sql) -> None:
    """Whichever is first: either the reaper finds the intention written, or the writer finds its lease gone."""
    for _ in range(10):
        worker, lease = await claimed(rig)
        await store.upkeep.bury([worker.id], "left")
        outcomes = await asyncio.gather(
            worker.claims.intend(lease, "mail", "ask"),
            reap(store.upkeep, store.claims(), lambda: 0.5),
            return_exceptions=True,
        )
        written = await sql.fetchval("select count(*) from windlass.effect where job_id = $1", lease.job_id)
        assert written == (0 if isinstance(outcomes[0], LeaseLost) else 1)
        await store.intake.cancel(lease.job_id)


async def test_an_intention_is_durable_where_the_database_is_not_by_default(rig: Rig, store: Store, sql: Sql) -> None:
    _, lease = await claimed(rig)
    async with store.postgres.transaction() as connection:
        await connection.execute("set local synchronous_commit = off")
        await store.postgres.fetch("intend", *lease[:4], "mail", "ask", False, connection=connection)
        assert await connection.fetchval("show synchronous_commit") == "on"


# What a person decides. -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("decision", "left"), [("done", {"mail": "done"}), ("redo", {})])
async def test_a_decision_is_recorded_and_the_job_runs_on(
    rig: Rig, store: Store, sql: Sql, decision: str, left: dict[str, str]
) -> None:
    lease = await undecided(rig, "mail")
    told = await store.views.explain(lease.job_id)
    assert "whether its effect 'mail' happened" in told.summary
    assert await store.intake.decide(lease.job_id, decision) is Status.READY  # type: ignore[arg-type]
    assert await ledger(sql) == left
    worker = await rig.worker()
    (again,) = await worker.claim()
    assert (again.job_id, again.attempt, again.failures) == (lease.job_id, 2, 0)
    assert (await worker.claims.intend(again, "mail", "ask")).found == ("done" if left else "new")
    assert (await store.views.check()).clean


async def test_of_several_effects_one_must_be_named_and_the_job_waits_for_all(rig: Rig, store: Store, sql: Sql) -> None:
    job_id = (await undecided(rig, "mail", "sms")).job_id
    with pytest.raises(NotPossible, match="'mail', 'sms'"):
        await store.intake.decide(job_id, "done")
    with pytest.raises(NotPossible, match="no effect 'fax'"):
        await store.intake.decide(job_id, "done", "fax")
    assert await ledger(sql) == {"mail": "intended", "sms": "intended"}
    assert "--effect mail" in str((await store.views.explain(job_id)).obstacles)
    assert await store.intake.decide(job_id, "done", "sms") is Status.HELD
    with pytest.raises(NotPossible, match="no effect 'sms'"):
        await store.intake.decide(job_id, "redo", "sms")
    assert await store.intake.decide(job_id, "redo") is Status.READY
    assert await ledger(sql) == {"sms": "done"}


async def test_two_decisions_at_once_are_one_decision(rig: Rig, store: Store, sql: Sql) -> None:
    job_id = (await undecided(rig, "mail")).job_id
    answers = await asyncio.gather(
        store.intake.decide(job_id, "done"), store.intake.decide(job_id, "redo"), return_exceptions=True
    )
    assert sorted(type(answer).__name__ for answer in answers) == ["NotPossible", "Status"]
    assert await ledger(sql) == ({"mail": "done"} if isinstance(answers[0], Status) else {})


async def test_decisions_about_two_effects_at_once_leave_nothing_waiting(rig: Rig, store: Store) -> None:
    job_id = (await undecided(rig, "mail", "sms")).job_id
    answers = await asyncio.gather(
        store.intake.decide(job_id, "done", "mail"), store.intake.decide(job_id, "done", "sms")
    )
    assert sorted(answers) == [Status.HELD, Status.READY]


@pytest.mark.parametrize("status", Status)
async def test_a_job_that_does_not_wait_for_a_decision_cannot_be_decided(
    rig: Rig, store: Store, status: Status
) -> None:
    job_id = await rig.job(status)
    with pytest.raises(NotPossible, match=status.value):
        await store.intake.decide(job_id, "done")
    assert await rig.status(job_id) is status


async def test_what_is_not_there_cannot_be_decided(store: Store) -> None:
    with pytest.raises(JobNotFound):
        await store.intake.decide(uuid4(), "done")


async def test_an_undecided_job_that_is_cancelled_and_retried_still_does_not_know(rig: Rig, store: Store) -> None:
    job_id = (await undecided(rig, "mail")).job_id
    assert await store.intake.cancel(job_id) is Status.CANCELLED
    with pytest.raises(NotPossible):
        await store.intake.decide(job_id, "done")
    assert await store.intake.retry(job_id) is Status.READY
    worker = await rig.worker()
    (again,) = await worker.claim()
    assert await worker.claims.intend(again, "mail", "ask") == UNKNOWN


async def test_undecided_jobs_are_listed_by_their_reason(rig: Rig, store: Store) -> None:
    job_id = (await undecided(rig, "mail")).job_id
    strange = await rig.job(Status.HELD)
    page = await store.views.jobs(JobQuery(reason=needs_decision))
    assert [(job.id, job.reason) for job in page.jobs] == [(job_id, needs_decision)]
    page = await store.views.jobs(JobQuery([Status.HELD], reason="unknown type"))
    assert [job.id for job in page.jobs] == [strange]
    await store.intake.set_paused("slow", paused=True)
    (paused,) = await rig.enqueue(queue="slow")
    page = await store.views.jobs(JobQuery(reason="queue paused"))
    assert [job.id for job in page.jobs] == [paused]


# How long it is kept. -------------------------------------------------------------------------------------------------


async def test_a_retry_forgets_the_recorded_start_and_no_effect(rig: Rig, store: Store, sql: Sql) -> None:
    worker, lease = await claimed(rig, max_attempts=1)
    for key in (start_key, "mail"):
        await worker.claims.intend(lease, key, "ask")
    await worker.settle(lease, Failed(Error("MayHaveRun", "who knows"), final=True))
    assert await store.intake.retry(lease.job_id) is Status.READY
    assert await ledger(sql) == {"mail": "intended"}


async def test_effects_stay_as_long_as_their_job_and_go_with_it(rig: Rig, store: Store, sql: Sql) -> None:
    there, gone = await rig.job(Status.FAILED), uuid4()
    insert = "insert into windlass.effect values ($1, $2, gen_random_uuid(), now() - interval '99 d', null, 1, 'intended', 'ask')"
    await sql.executemany(insert, [(there, "a"), (there, "b"), (gone, "a"), (gone, "b")])
    assert await store.upkeep.sweep_effects() == 0, "its partition is not gone yet"
    await sql.execute("update windlass.horizon set id = 'ffffffff-ffff-7fff-bfff-ffffffffffff'")
    assert await store.upkeep.sweep_effects(limit=1) == 2
    assert {row["job_id"] for row in await sql.fetch("select job_id from windlass.effect")} == {there}


async def test_jobs_that_wait_for_a_decision_are_counted(rig: Rig) -> None:
    assert await rig.store.views.count_undecided() == 0
    lease = await undecided(rig, "mail")
    assert await rig.store.views.count_undecided() == 1
    await rig.store.intake.decide(lease.job_id, "done")
    assert await rig.store.views.count_undecided() == 0


async def test_an_at_most_once_job_without_a_recorded_start_is_unstarted(rig: Rig) -> None:
    await rig.store.upkeep.declare([Declared("once", at_most_once=True), Declared("echo")])
    await rig.enqueue(type="echo")
    await rig.enqueue(2, type="once")
    worker = await rig.worker(types=["once", "echo"])
    leases = await worker.claim()
    begun, waiting = [lease for lease in leases if lease.type == "once"]
    await worker.claims.intend(begun, start_key, "ask")
    assert await rig.store.upkeep.unstarted([lease.job_id for lease in leases]) == {waiting.job_id}
