"""Every allowed move happens, every other is refused by name, and nothing else changes."""

import pytest

from tests.factory import Rig
from windlass.errors import NotPossible
from windlass.lifecycle import Completed, Failed, Held, Released, Snoozed
from windlass.model import FINISHED, Error, Lease, Status, needs_decision
from windlass.store.store import Store

WAITING = (Status.SCHEDULED, Status.HELD, Status.READY)


@pytest.mark.parametrize("status", Status)
async def test_a_job_is_found_where_it_is(rig: Rig, status: Status) -> None:
    job_id = await rig.job(status)
    assert await rig.status(job_id) is status


@pytest.mark.parametrize("status", WAITING)
async def test_cancelling_a_waiting_job_finishes_it(rig: Rig, store: Store, status: Status) -> None:
    job_id = await rig.job(status)
    assert await store.intake.cancel(job_id, "not needed") is Status.CANCELLED
    job = await store.views.job(job_id)
    assert job.status is Status.CANCELLED
    assert job.error == Error("Cancelled", "not needed")


async def test_cancelling_a_running_job_asks_its_worker_and_wins_over_failure(rig: Rig, store: Store) -> None:
    worker = await rig.worker()
    await rig.enqueue()
    (lease,) = await worker.claim()
    assert await store.intake.cancel(lease.job_id) is Status.RUNNING
    assert await store.upkeep.cancels([worker.id]) == {worker.id: {lease.job_id: lease.token}}
    receipt = await worker.settle(lease, Failed(Error("ValueError", "stopped half-way")))
    assert receipt.moved == {lease.job_id: Status.CANCELLED}


async def test_of_jobs_that_were_to_be_cancelled_while_they_wait_the_running_go_on(rig: Rig, store: Store) -> None:
    running, waiting = await rig.job(Status.RUNNING), await rig.job(Status.READY)
    answers = await store.intake.cancel_many([running, waiting], running=False)
    assert isinstance(answers[running], NotPossible)
    assert answers[waiting] is Status.CANCELLED
    assert not (await store.views.job(running)).cancel_requested


async def test_a_job_that_completes_although_asked_to_cancel_is_completed(rig: Rig, store: Store) -> None:
    worker = await rig.worker()
    await rig.enqueue()
    (lease,) = await worker.claim()
    await store.intake.cancel(lease.job_id)
    assert (await worker.settle(lease, Completed())).moved == {lease.job_id: Status.COMPLETED}


@pytest.mark.parametrize("outcome", [Released(), Snoozed(5.0), Failed(Error("E", "m"))])
async def test_a_cancelled_job_does_not_come_back(rig: Rig, store: Store, outcome: Failed | Snoozed | Released) -> None:
    worker = await rig.worker()
    await rig.enqueue()
    (lease,) = await worker.claim()
    await store.intake.cancel(lease.job_id)
    assert (await worker.settle(lease, outcome)).moved == {lease.job_id: Status.CANCELLED}


@pytest.mark.parametrize("status", sorted(FINISHED))
async def test_a_finished_job_cannot_be_cancelled_or_run_now_but_can_be_retried(
    rig: Rig, store: Store, status: Status
) -> None:
    job_id = await rig.job(status)
    with pytest.raises(NotPossible, match=status.value):
        await store.intake.cancel(job_id)
    with pytest.raises(NotPossible, match=status.value):
        await store.intake.run_now(job_id)
    assert await store.intake.retry(job_id) is Status.READY
    assert await rig.status(job_id) is Status.READY


@pytest.mark.parametrize("status", [s for s in Status if s not in FINISHED])
async def test_an_unfinished_job_cannot_be_retried(rig: Rig, store: Store, status: Status) -> None:
    job_id = await rig.job(status)
    with pytest.raises(NotPossible, match=status.value):
        await store.intake.retry(job_id)
    assert await rig.status(job_id) is status


@pytest.mark.parametrize("status", [Status.SCHEDULED, Status.HELD])
async def test_run_now_makes_a_waiting_job_ready(rig: Rig, store: Store, status: Status) -> None:
    job_id = await rig.job(status)
    assert await store.intake.run_now(job_id) is Status.READY


async def hold(rig: Rig, reason: str) -> Lease:
    await rig.enqueue()
    worker = await rig.worker()
    (lease,) = await worker.claim()
    held = Held(reason, Error("NeedsDecision", "effect 'mail' may have happened"))
    assert (await worker.settle(lease, held)).moved == {lease.job_id: Status.HELD}
    return lease


async def test_an_attempt_can_set_its_job_aside_and_everybody_is_told_why(rig: Rig, store: Store) -> None:
    lease = await hold(rig, "no room")
    job = await store.views.job(lease.job_id)
    assert (job.status, job.reason, job.attempt, job.failures) == (Status.HELD, "no room", 1, 0)
    (attempt,) = await store.views.attempts(lease.job_id)
    assert (attempt.status, attempt.error) == ("held", Error("NeedsDecision", "effect 'mail' may have happened"))
    told = await store.views.explain(lease.job_id)
    assert told.obstacles[0].code == "held"
    assert "no room: NeedsDecision: effect 'mail' may have happened" in told.summary
    assert await store.intake.run_now(lease.job_id) is Status.READY
    (again,) = await (await rig.worker()).claim()
    assert (again.job_id, again.attempt) == (lease.job_id, 2)


async def test_a_job_that_needs_a_decision_is_not_run_past_it(rig: Rig, store: Store) -> None:
    job_id = (await hold(rig, needs_decision)).job_id
    with pytest.raises(NotPossible, match=f"windlass jobs decide {job_id}"):
        await store.intake.run_now(job_id)
    await store.upkeep.admit_known()
    assert await rig.status(job_id) is Status.HELD
    told = await store.views.explain(job_id)
    assert told.obstacles[0].code == "needs_decision"
    assert f"windlass jobs decide {job_id} redo" in (told.obstacles[0].cure or "")
    assert await store.intake.cancel(job_id) is Status.CANCELLED
    assert await store.intake.retry(job_id) is Status.READY


async def test_a_job_asked_to_cancel_is_cancelled_instead_of_held(rig: Rig, store: Store) -> None:
    await rig.enqueue()
    worker = await rig.worker()
    (lease,) = await worker.claim()
    await store.intake.cancel(lease.job_id)
    assert (await worker.settle(lease, Held(needs_decision))).moved == {lease.job_id: Status.CANCELLED}


async def test_a_retried_job_keeps_its_history_and_begins_its_failures_anew(rig: Rig, store: Store) -> None:
    job_id = await rig.job(Status.FAILED)
    await store.intake.retry(job_id)
    job = await store.views.job(job_id)
    assert (job.attempt, job.failures) == (1, 0)
    (attempt,) = await store.views.attempts(job_id)
    assert (attempt.attempt, attempt.status, attempt.error) == (1, "failed", Error("ValueError", "no"))


async def test_a_replay_leaves_alone_what_is_no_longer_failed(rig: Rig, store: Store) -> None:
    failed, completed = await rig.job(Status.FAILED), await rig.job(Status.COMPLETED)
    answers = await store.intake.retry_many([failed, completed], among=[Status.FAILED])
    assert answers[failed] is Status.READY
    assert isinstance(answers[completed], NotPossible)
    assert await rig.status(completed) is Status.COMPLETED
