"""What became of an attempt is written once, by the holder of its lease, and the job is then where it should be."""

from typing import Any, cast
from uuid import uuid4

import asyncpg
import pytest

from tests.factory import OnConnection, Rig
from windlass.leader.chores import reap
from windlass.lifecycle import (
    Cancelled,
    Completed,
    Failed,
    Held,
    Lost,
    Outcome,
    Released,
    Snoozed,
    TimedOut,
    backoff,
    settle,
)
from windlass.model import Error, Lease, RetryPolicy, Status
from windlass.store.claims import Claims
from windlass.store.postgres import Postgres
from windlass.store.protocol import Settled
from windlass.store.store import Store

Sql = asyncpg.Connection

NO = Error("ValueError", "no", "Traceback …")
TABLES = ("scheduled", "held", "ready", "running", "outcome", "attempt")


async def rows(sql: Sql) -> dict[str, list[Any]]:
    """Everything that a settlement could change."""
    return {t: await sql.fetch(f"select ctid, * from windlass.{t} order by job_id") for t in TABLES}


# Each outcome to its table. -------------------------------------------------------------------------------------------

OUTCOMES: list[tuple[Outcome, Status, str | None, int]] = [
    (Completed({"n": 1}), Status.COMPLETED, "completed", 0),
    (Failed(NO), Status.SCHEDULED, "failed", 1),
    (Failed(NO, final=True), Status.FAILED, "failed", 1),
    (Failed(NO, delay_s=7.5), Status.SCHEDULED, "failed", 1),
    (TimedOut(3.0), Status.SCHEDULED, "failed", 1),
    (Snoozed(60.0), Status.SCHEDULED, None, 0),
    (Cancelled("enough"), Status.CANCELLED, "cancelled", 0),
    (Released(), Status.READY, None, 0),
    (Held("needs decision", NO), Status.HELD, "held", 0),
    (Held("no room"), Status.HELD, None, 0),
    (Lost(crashed=False), Status.READY, "lost", 0),
    (Lost(crashed=True), Status.READY, "lost", 1),
]


async def test_a_mixed_batch_goes_where_each_belongs(rig: Rig, store: Store, sql: Sql) -> None:
    await rig.enqueue(len(OUTCOMES))
    worker = await rig.worker(threads=len(OUTCOMES))
    leases = await worker.claim()
    batch = [
        settle(lease, outcome, jitter=0.5, execution_s=0.25, log="line\n")
        for lease, (outcome, *_) in zip(leases, OUTCOMES, strict=True)
    ]
    receipt = await worker.claims.settle(reversed(batch))
    assert receipt.refused == receipt.repeated == frozenset()
    for lease, (outcome, status, ended, failures) in zip(leases, OUTCOMES, strict=True):
        assert receipt.moved[lease.job_id] is status
        assert receipt.of(lease.job_id) is Settled.ACCEPTED
        job = await store.views.job(lease.job_id)
        assert (job.status, job.attempt, job.failures) == (status, 1, failures), outcome
        attempts = await store.views.attempts(lease.job_id)
        assert [attempt.status for attempt in attempts] == ([ended] if ended else []), outcome
        for attempt in attempts:
            assert (attempt.attempt, attempt.worker_id, attempt.token) == (1, worker.id, lease.token)
            assert attempt.started_at
            assert (attempt.ended_at - attempt.started_at).total_seconds() == 0.25
            assert attempt.log == "line\n"
            assert (attempt.error is None) == (ended == "completed")
    suspects = await sql.fetch("select job_id from windlass.ready where suspect")
    assert [row["job_id"] for row in suspects] == [leases[-1].job_id]
    assert await sql.fetchval("select count(*) from windlass.running") == 0


async def test_a_batch_is_one_round_trip(rig: Rig, store: Store, sql: Sql) -> None:
    await rig.enqueue(5)
    leases = await (await rig.worker()).claim()
    line = OnConnection(store.postgres, sql)
    receipt = await Claims(cast("Postgres", line)).settle([settle(lease, Completed(), jitter=0) for lease in leases])
    assert (len(receipt.moved), len(line.sent)) == (5, 1)


async def test_an_empty_batch_is_nothing(store: Store) -> None:
    assert (await store.claims().settle([])).moved == {}


async def test_the_same_settlement_twice_in_a_batch_counts_once(rig: Rig) -> None:
    await rig.enqueue(2)
    worker = await rig.worker()
    one, two = [settle(lease, Failed(NO), jitter=0) for lease in await worker.claim()]
    receipt = await worker.claims.settle([one, two, one])
    assert receipt.moved == {one.job_id: Status.SCHEDULED, two.job_id: Status.SCHEDULED}
    assert receipt.refused == frozenset()


# The fence. -----------------------------------------------------------------------------------------------------------


async def test_a_stale_lease_changes_nothing_and_is_reported_also_among_good_ones(
    rig: Rig, store: Store, sql: Sql
) -> None:
    await rig.enqueue(4)
    worker, other = await rig.worker(threads=4), await rig.worker()
    good, token, attempt, holder = await worker.claim()
    stale = [
        token._replace(token=uuid4()),
        attempt._replace(attempt=attempt.attempt + 1),
        holder._replace(worker_id=other.id),
    ]
    before = await rows(sql)
    for outcome, *_ in OUTCOMES:
        receipt = await worker.claims.settle([settle(lease, outcome, jitter=0.5) for lease in stale])
        assert receipt.refused == {lease.job_id for lease in stale}
        assert receipt.moved == {}
        assert receipt.repeated == frozenset()
    assert await rows(sql) == before
    receipt = await worker.claims.settle([settle(lease, Completed(), jitter=0) for lease in (*stale, good)])
    assert receipt.moved == {good.job_id: Status.COMPLETED}
    assert receipt.refused == {lease.job_id for lease in stale}
    assert receipt.of(token.job_id) is Settled.REFUSED
    for lease in (token, attempt, holder):
        assert await rig.status(lease.job_id) is Status.RUNNING
        assert (await worker.settle(lease, Completed())).moved == {lease.job_id: Status.COMPLETED}


async def test_a_settlement_whose_answer_was_lost_may_be_repeated(rig: Rig, store: Store, sql: Sql) -> None:
    recorded = [outcome for outcome, _, ended, _ in OUTCOMES if ended]
    await rig.enqueue(len(recorded) + 1)
    worker = await rig.worker(threads=len(recorded) + 1)
    fresh, *leases = await worker.claim()
    batch = [settle(lease, outcome, jitter=0.5) for lease, outcome in zip(leases, recorded, strict=True)]
    await worker.claims.settle(batch)
    before = await rows(sql)
    receipt = await worker.claims.settle(batch)
    assert receipt.repeated == {lease.job_id for lease in leases}
    assert {receipt.of(lease.job_id) for lease in leases} == {Settled.REPEATED}
    assert await rows(sql) == before
    receipt = await worker.claims.settle([*batch, settle(fresh, Completed(), jitter=0)])
    assert receipt.moved == {fresh.job_id: Status.COMPLETED}
    assert receipt.repeated == {lease.job_id for lease in leases}


async def test_a_repetition_is_recognised_even_after_the_job_went_on(rig: Rig, store: Store) -> None:
    (job_id,) = await rig.enqueue()
    worker, other = await rig.worker(), await rig.worker()
    (lease,) = await worker.claim()
    await worker.settle(lease, Completed())
    await store.intake.retry(job_id)
    (second,) = await other.claim()
    assert (await worker.settle(lease, Completed())).of(job_id) is Settled.REPEATED
    await other.settle(second, Failed(NO))
    assert (await worker.settle(lease, Completed())).of(job_id) is Settled.REPEATED
    assert (await other.settle(second, Failed(NO))).of(job_id) is Settled.REPEATED


@pytest.mark.parametrize("outcome", [Released(), Snoozed(5.0)])
async def test_giving_back_twice_gives_back_once(rig: Rig, sql: Sql, outcome: Outcome) -> None:
    await rig.enqueue()
    worker = await rig.worker()
    (lease,) = await worker.claim()
    await worker.settle(lease, outcome)
    before = await rows(sql)
    assert (await worker.settle(lease, outcome)).moved == {}
    assert await rows(sql) == before


async def test_a_worker_cannot_settle_a_job_that_was_reaped(rig: Rig, store: Store) -> None:
    (job_id,) = await rig.enqueue()
    worker, heir = await rig.worker(), await rig.worker()
    (lease,) = await worker.claim()
    await store.upkeep.bury([worker.id], "left")
    assert await reap(store.upkeep, store.claims(), lambda: 0.5) == 1
    (second,) = await heir.claim()
    assert (second.attempt, second.token != lease.token) == (2, True)
    assert (await worker.settle(lease, Completed("late"))).moved == {}
    assert (await store.views.job(job_id)).attempt == 2
    assert await rig.status(job_id) is Status.RUNNING
    await heir.settle(second, Completed("in time"))
    assert (await store.views.job(job_id)).result == '"in time"'


# Giving back. ---------------------------------------------------------------------------------------------------------


async def test_a_released_job_keeps_its_rank_and_burns_nothing(rig: Rig, store: Store) -> None:
    first, *_ = await rig.enqueue(3, max_attempts=1)
    worker = await rig.worker(threads=1)
    for n in range(1, 4):
        (lease,) = await worker.claim()
        assert (lease.job_id, lease.attempt, lease.failures) == (first, n, 0)
        rank = lease.rank
        assert (await worker.claims.release([lease])).moved == {first: Status.READY}
    (again,) = await worker.claim()
    assert again.rank == rank
    assert await store.views.attempts(first) == []


async def test_strays_go_back_and_what_is_held_stays(rig: Rig, store: Store, sql: Sql) -> None:
    await rig.enqueue(4)
    worker, other = await rig.worker(threads=3), await rig.worker(threads=1)
    held, *strays = await worker.claim()
    (foreign,) = await other.claim()
    assert await worker.give_back_strays({held.job_id}, older_than_s=5) == []  # younger than 5 s: on its way, perhaps
    back = await worker.give_back_strays({held.job_id})
    assert sorted(back) == sorted(lease.job_id for lease in strays)
    assert await rig.status(held.job_id) is await rig.status(foreign.job_id) is Status.RUNNING
    ranks = {row["job_id"]: row["rank"] for row in await sql.fetch("select job_id, rank from windlass.ready")}
    assert ranks == {lease.job_id: lease.rank for lease in strays}
    assert await worker.give_back_strays({held.job_id}) == []


async def test_a_stray_suspect_stays_one(rig: Rig) -> None:
    await rig.enqueue()
    worker = await rig.worker()
    (lease,) = await worker.claim()
    await worker.settle(lease, Lost(crashed=True))
    await worker.claim()
    assert len(await worker.give_back_strays()) == 1
    (again,) = await worker.claim()
    assert (again.suspect, again.attempt) == (True, 3)


# Retries. -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", [None, RetryPolicy(base_s=10, factor=3, cap_s=50, jitter=0.5)])
async def test_retries_wait_longer_each_time_within_their_jitter(
    rig: Rig, store: Store, sql: Sql, policy: RetryPolicy | None
) -> None:
    (job_id,) = await rig.enqueue(max_attempts=10, retry=policy)
    worker = await rig.worker()
    for failures, bare_s in enumerate([1, 2, 4, 8] if policy is None else [10, 30, 50, 50], start=1):
        jitter = (0.0, 0.999, 0.5, 0.25)[failures - 1]
        (lease,) = await worker.claim()
        assert lease.failures == failures - 1
        await worker.settle(lease, Failed(NO), jitter=jitter)
        waits_s = await sql.fetchval(
            "select date_part('epoch', s.ready_at - max(a.ended_at)) from windlass.scheduled s"
            " join windlass.attempt a using (job_id) group by s.ready_at"
        )
        spread = (policy or RetryPolicy()).jitter
        assert bare_s * (1 - spread) <= waits_s <= bare_s * (1 + spread)
        assert waits_s == pytest.approx(backoff(failures, policy or RetryPolicy(), jitter=jitter), abs=1e-5)
        await store.intake.run_now(job_id)


@pytest.mark.parametrize("max_attempts", [1, 3])
async def test_a_job_fails_for_good_after_its_last_attempt(rig: Rig, store: Store, max_attempts: int) -> None:
    (job_id,) = await rig.enqueue(max_attempts=max_attempts)
    worker = await rig.worker()
    for n in range(1, max_attempts + 1):
        (lease,) = await worker.claim()
        receipt = await worker.settle(lease, TimedOut(1.5) if n == 2 else Failed(Error("E", f"no {n}")))
        if n < max_attempts:
            assert receipt.moved == {job_id: Status.SCHEDULED}
            await store.intake.run_now(job_id)
    assert receipt.moved == {job_id: Status.FAILED}
    job = await store.views.job(job_id)
    assert (job.failures, job.attempt, job.error) == (max_attempts, max_attempts, Error("E", f"no {max_attempts}"))
    assert [attempt.attempt for attempt in await store.views.attempts(job_id)] == list(range(1, max_attempts + 1))


async def test_three_crashes_as_a_suspect_make_a_poison_pill(rig: Rig, store: Store) -> None:
    (job_id,) = await rig.enqueue(max_attempts=10)
    worker = await rig.worker()
    went: list[Status] = []
    for _ in range(4):
        (lease,) = await worker.claim()
        went.append((await worker.settle(lease, Lost(crashed=True))).moved[job_id])
        if went[-1] is Status.SCHEDULED:
            await store.intake.run_now(job_id)
    assert went == [Status.READY, Status.SCHEDULED, Status.SCHEDULED, Status.FAILED]
    job = await store.views.job(job_id)
    assert (job.failures, job.error and job.error.type) == (4, "PoisonPill")
    assert [attempt.status for attempt in await store.views.attempts(job_id)][:3] == ["lost"] * 3


async def test_a_lost_answer_about_a_whole_batch_loses_nothing(rig: Rig) -> None:
    """What a worker does after an error: the same batch again, with what it has to say since."""
    await rig.enqueue(6)
    worker = await rig.worker()
    leases: list[Lease] = await worker.claim()
    await worker.claims.settle([settle(lease, Completed(), jitter=0) for lease in leases[:3]])
    receipt = await worker.claims.settle([settle(lease, Completed(), jitter=0) for lease in leases])
    assert set(receipt.moved) == {lease.job_id for lease in leases[3:]}
    assert receipt.repeated == {lease.job_id for lease in leases[:3]}


async def test_one_settlement_that_cannot_be_written_as_it_is_wedges_nothing(rig: Rig, store: Store) -> None:
    await rig.enqueue(3)
    worker = await rig.worker()
    first, bad, last = await worker.claim()
    batch = [settle(lease, Completed(), jitter=0) for lease in (first, last)]
    impossible = settle(bad, Completed(), jitter=0)._replace(execution_s=float("inf"))  # no interval holds that
    receipt = await worker.claims.settle([batch[0], impossible, batch[1]])
    assert receipt.moved == dict.fromkeys((first.job_id, bad.job_id, last.job_id), Status.COMPLETED)
    assert (await store.views.job(first.job_id)).error is None
    job = await store.views.job(bad.job_id)
    assert job.error is not None  # and says why it is not as it was


async def test_a_completion_after_the_job_was_given_back_and_cancelled_is_refused(rig: Rig, store: Store) -> None:
    worker = await rig.worker()
    await rig.enqueue()
    (lease,) = await worker.claim()
    await store.intake.cancel(lease.job_id)
    assert (await worker.settle(lease, Released())).moved == {lease.job_id: Status.CANCELLED}
    assert (await worker.settle(lease, Completed())).of(lease.job_id) is Settled.REFUSED
