"""What people see of a job, a queue and a worker is what is so."""

from datetime import timedelta
from uuid import UUID, uuid4

import asyncpg
import pytest

from tests.factory import Rig
from windlass.errors import JobNotFound
from windlass.lifecycle import Completed, Failed, Held, Lost, Released, settle
from windlass.model import FINISHED, Error, Job, Status
from windlass.store.store import Store

Sql = asyncpg.Connection


_ERRORS = {Status.FAILED: Error("ValueError", "no"), Status.CANCELLED: Error("Cancelled", "cancelled on request")}


def seconds(delta: timedelta | None) -> float | None:
    return None if delta is None else delta.total_seconds()


def times_fit(job: Job) -> bool:
    """The three durations are the differences of the four moments."""
    queue_s = None if job.started_at is None or job.ready_at is None else job.started_at - job.ready_at
    execution_s = None if job.finished_at is None or job.started_at is None else job.finished_at - job.started_at
    total_s = None if job.finished_at is None else job.finished_at - job.created_at
    shown = (job.queue_s, job.execution_s, job.total_s)
    return shown == tuple(
        None if want is None else pytest.approx(want, abs=1e-5)
        for want in map(seconds, (queue_s, execution_s, total_s))
    )


# One job. -------------------------------------------------------------------------------------------------------------


async def test_a_job_shows_all_that_was_asked_and_is_so_in_every_state(rig: Rig, store: Store) -> None:
    asked = {
        "payload": {"n": 2**70}, "name": "nightly", "priority": -3, "thread_demand": 2, "max_attempts": 7,
        "timeout_s": 9.5, "tags": ["x", "y"],
    }  # fmt: skip
    for status in Status:
        job_id = await rig.job(status, **asked, idempotency_key=f"k-{status}")
        job = await store.views.job(job_id)
        assert (job.id, job.status) == (job_id, status)
        assert (job.name, job.priority, job.thread_demand, job.max_attempts) == ("nightly", -3, 2, 7)
        assert (job.timeout_s, job.tags, job.idempotency_key) == (9.5, ("x", "y"), f"k-{status}")
        assert job.payload == '{"n":1180591620717411303424}'
        assert job.queue.startswith("q-")
        assert (job.type == "echo") == (status is not Status.HELD)
        assert job.reason == ("unknown type" if status is Status.HELD else None)
        assert job.ready_at == (job.created_at if job.scheduled_at is None else job.scheduled_at)
        assert (job.scheduled_at is not None) == (status is Status.SCHEDULED)
        ran = status in {Status.RUNNING, Status.COMPLETED, Status.FAILED}
        assert (job.attempt, job.threads_granted) == ((1, 2) if ran else (0, None))
        assert (job.started_at is not None, job.worker_id is not None) == (ran, ran)
        assert (job.finished_at is not None) == (status in FINISHED)
        assert job.result == ('{"ok":true}' if status is Status.COMPLETED else None)
        assert job.error == _ERRORS.get(status)
        assert job.failures == (1 if status is Status.FAILED else 0)
        assert not job.cancel_requested
        assert times_fit(job)


async def test_the_times_of_a_job_are_those_of_its_last_attempt(rig: Rig, store: Store, sql: Sql) -> None:
    (job_id,) = await rig.enqueue()
    worker = await rig.worker()
    (lease,) = await worker.claim()
    await worker.settle(lease, Failed(Error("E", "m")))
    await store.intake.run_now(job_id)
    (lease,) = await worker.claim()
    await sql.execute("update windlass.running set claimed_at = claimed_at - interval '1 h'")  # execution_s says better
    await worker.claims.settle([settle(lease, Completed(), jitter=0, execution_s=0.125)])
    job = await store.views.job(job_id)
    assert job.execution_s == 0.125
    assert times_fit(job)


async def test_a_request_to_cancel_is_shown_while_the_job_runs(rig: Rig, store: Store) -> None:
    job_id = await rig.job(Status.RUNNING)
    await store.intake.cancel(job_id)
    job = await store.views.job(job_id)
    assert (job.status, job.cancel_requested) == (Status.RUNNING, True)


async def test_a_job_that_does_not_exist_is_not_found(store: Store) -> None:
    job_id = uuid4()
    with pytest.raises(JobNotFound, match=str(job_id)):
        await store.views.job(job_id)
    assert await store.views.attempts(job_id) == []


async def test_attempts_are_listed_oldest_first_with_the_last(rig: Rig, store: Store) -> None:
    (job_id,) = await rig.enqueue(max_attempts=5)
    worker = await rig.worker()
    for outcome in (Failed(Error("E", "first", "tb")), Lost(crashed=False), Released(), Completed("x")):
        (lease,) = await worker.claim()
        await worker.settle(lease, outcome)
        if isinstance(outcome, Failed):
            await store.intake.run_now(job_id)
    await store.intake.retry(job_id)
    (lease,) = await worker.claim()
    await worker.settle(lease, Failed(Error("E", "last"), final=True))
    attempts = await store.views.attempts(job_id)
    assert [(attempt.attempt, attempt.status) for attempt in attempts] == [
        (1, "failed"), (2, "lost"), (4, "completed"), (5, "failed"),
    ]  # fmt: skip
    assert attempts[0].error == Error("E", "first", "tb")
    assert attempts[2].error is None
    moments = [(attempt.started_at, attempt.ended_at) for attempt in attempts]
    assert moments == sorted(moments)
    assert all(attempt.worker_id == worker.id and attempt.token for attempt in attempts)


async def test_a_job_cancelled_before_it_ran_has_no_attempt(rig: Rig, store: Store) -> None:
    assert await store.views.attempts(await rig.job(Status.CANCELLED)) == []


# Queues and workers. --------------------------------------------------------------------------------------------------


async def test_a_queue_shows_its_depth_and_the_age_of_its_oldest(rig: Rig, store: Store, sql: Sql) -> None:
    assert await store.views.queues() == []
    await rig.enqueue(3, queue="b")
    await rig.enqueue(2, queue="b", thread_demand=4, priority=9)
    await rig.enqueue(1, queue="b", delay_s=60)
    await store.intake.set_paused("a", paused=True)
    (empty, busy) = await store.views.queues()
    assert (empty.name, empty.paused, empty.depth, empty.oldest_age_s, empty.counts) == ("a", True, 0, None, {})
    assert (busy.name, busy.paused, busy.depth) == ("b", False, 5)
    assert busy.counts == {Status.READY: 5, Status.SCHEDULED: 1}
    assert busy.oldest_age_s is not None
    assert 0 <= busy.oldest_age_s < 60
    await sql.execute(
        "update windlass.ready set ready_at = ready_at - interval '100 s', rank = rank - 100000000"
        " where job_id = (select job_id from windlass.ready where thread_demand = 4 limit 1)"
    )
    (_, busy) = await store.views.queues()
    assert busy.oldest_age_s is not None
    assert 100 <= busy.oldest_age_s < 160


async def test_a_paused_queue_keeps_its_depth_in_sight(rig: Rig, store: Store) -> None:
    await rig.enqueue(3)
    await store.intake.set_paused("default", paused=True)
    (queue,) = await store.views.queues()
    assert (queue.paused, queue.counts) == (True, {Status.HELD: 3})
    assert queue.oldest_age_s is not None


async def test_a_worker_shows_what_it_is_busy_with(rig: Rig, store: Store) -> None:
    await rig.enqueue(2, thread_demand=3)
    worker, dead = await rig.worker(threads=8), await rig.worker()
    await store.upkeep.bury([dead.id], "left")
    await worker.claim()
    first, second = await store.views.workers()
    assert (first.id, first.busy_threads, first.jobs, first.alive) == (worker.id, 6, 2, True)
    assert (second.id, second.busy_threads, second.jobs, second.alive) == (dead.id, 0, 0, False)
    assert second.died_at is not None


async def test_the_check_sees_what_must_never_be(rig: Rig, store: Store, sql: Sql) -> None:
    lost, doubled = await rig.enqueue(2)
    assert (await store.views.check()).clean
    transaction = sql.transaction()
    await transaction.start()
    await sql.execute("delete from windlass.ready where job_id = $1", lost)
    await sql.execute("insert into windlass.scheduled select * from windlass.ready where job_id = $1", doubled)
    row = await sql.fetchrow(store.postgres.sql["check"])
    assert row
    assert (row["nowhere"], row["twice"], row["homeless"]) == (1, 1, 0)
    assert row["miscounted"] > 0
    await transaction.rollback()


# Between tries. -------------------------------------------------------------------------------------------------------


async def test_a_job_between_tries_shows_its_last_error_and_its_next_try(rig: Rig, store: Store) -> None:
    (job_id,) = await rig.enqueue(max_attempts=5)
    first = await store.views.job(job_id)
    assert (first.error, first.started_at, first.next_try_at, first.updated_at) == (None, None, None, first.ready_at)
    worker = await rig.worker()
    for attempt in (1, 2):
        (lease,) = await worker.claim()
        running = await store.views.job(job_id)
        assert (running.status, running.next_try_at) == (Status.RUNNING, None)
        assert running.updated_at == running.started_at
        await worker.settle(lease, Failed(Error("ValueError", f"no {attempt}"), delay_s=3600))
        await _shows_its_last_attempt(store, job_id, attempt, Status.SCHEDULED)
        await store.intake.run_now(job_id)
        ready = await _shows_its_last_attempt(store, job_id, attempt, Status.READY)
        assert ready.updated_at == ready.ready_at
    (lease,) = await worker.claim()
    assert (await store.views.job(job_id)).error == Error("ValueError", "no 2")
    await worker.settle(lease, Completed())
    finished = await store.views.job(job_id)
    assert (finished.error, finished.next_try_at, finished.updated_at) == (None, None, finished.finished_at)


async def test_a_job_that_is_cancelled_between_tries_shows_when_it_was_started_last(rig: Rig, store: Store) -> None:
    (job_id,) = await rig.enqueue()
    worker = await rig.worker()
    (lease,) = await worker.claim()
    await worker.settle(lease, Failed(Error("ValueError", "no"), delay_s=3600))
    (attempt,) = await store.views.attempts(job_id)
    await store.intake.cancel(job_id, "enough")
    job = await store.views.job(job_id)
    assert (job.attempt, job.started_at, job.error) == (1, attempt.started_at, Error("Cancelled", "enough"))
    assert (job.queue_s, job.execution_s, job.next_try_at, job.updated_at) == (None, None, None, job.finished_at)
    assert await store.views.attempts(job_id) == [attempt]


async def test_a_held_job_has_no_next_try(rig: Rig, store: Store) -> None:
    (job_id,) = await rig.enqueue()
    worker = await rig.worker()
    (lease,) = await worker.claim()
    await worker.settle(lease, Held("needs decision", Error("NeedsDecision", "who knows")))
    held = await store.views.job(job_id)
    assert (held.status, held.attempt, held.next_try_at) == (Status.HELD, 1, None)


async def _shows_its_last_attempt(store: Store, job_id: UUID, attempt: int, status: Status) -> Job:
    job = await store.views.job(job_id)
    ended = (await store.views.attempts(job_id))[-1]
    assert (job.status, job.attempt, job.failures) == (status, attempt, attempt)
    assert job.error == Error("ValueError", f"no {attempt}")
    assert (job.started_at, job.last_ended_at) == (ended.started_at, ended.ended_at)
    assert (job.next_try_at, job.queue_s) == (job.ready_at, None)
    assert job.updated_at >= ended.ended_at
    assert (await store.views.jobs()).jobs == [job]  # a list says the same
    return job


async def test_a_replayed_dead_letter_shows_why_it_failed_before(rig: Rig, store: Store) -> None:
    job_id = await rig.job(Status.FAILED)
    before = await store.views.job(job_id)
    await store.intake.retry(job_id)
    job = await store.views.job(job_id)
    assert (job.error, job.started_at, job.failures) == (before.error, before.started_at, 0)
    assert job.updated_at == job.ready_at


async def test_the_state_of_the_cluster_names_its_leader_and_counts_the_living(rig: Rig) -> None:
    nobody = await rig.store.views.cluster_state()
    assert (nobody.leader, nobody.workers, nobody.threads) == (None, 0, 0)
    assert nobody.postgres
    assert 0 < nobody.connections <= nobody.connections_max
    holder = uuid4()
    await rig.store.upkeep.take_term(holder, ttl_s=60)
    await rig.worker(threads=3)
    state = await rig.store.views.cluster_state()
    assert (state.leader, state.workers, state.threads) == (holder, 1, 3)
