"""What a worker does for attempts under way: progress, steps, finishing in a transaction, and knowing what it holds."""

from typing import Any

import pytest

from tests.factory import Rig
from windlass.errors import LeaseLost
from windlass.lifecycle import Completed, settle
from windlass.model import Status
from windlass.store.protocol import Ask, Progress
from windlass.store.store import Store


async def test_progress_is_shown_and_that_of_a_lost_lease_is_not(rig: Rig, store: Store) -> None:
    worker = await rig.worker()
    ids = await rig.enqueue(2)
    ours, other = await worker.claim()
    stale = other._replace(token=ours.job_id)
    await worker.claims.report_progress([Progress(ours, 0.5, "half"), Progress(stale, 0.9)])
    await worker.claims.report_progress([])
    shown = {job_id: await store.views.job(job_id) for job_id in ids}
    assert (shown[ours.job_id].progress, shown[ours.job_id].progress_note) == (0.5, "half")
    assert shown[other.job_id].progress is None
    await worker.settle(ours, Completed())
    assert (await store.views.job(ours.job_id)).progress is None


async def test_a_step_is_kept_once_and_only_under_the_lease(rig: Rig) -> None:
    worker = await rig.worker()
    await rig.enqueue()
    (lease,) = await worker.claim()
    assert await worker.claims.step(lease, "pay") is None
    await worker.claims.keep_step(lease, "pay", '{"paid": 1}')
    await worker.claims.keep_step(lease, "pay", '{"paid": 2}')
    assert await worker.claims.step(lease, "pay") == '{"paid": 1}'
    with pytest.raises(LeaseLost):
        await worker.claims.keep_step(lease._replace(token=lease.job_id), "ship", "1")
    assert await worker.claims.step(lease, "ship") is None


async def test_a_job_finishes_with_its_transaction_or_stays_as_it_was(rig: Rig, store: Store) -> None:
    worker = await rig.worker()
    await rig.enqueue()
    (lease,) = await worker.claim()

    def done() -> Any:
        return settle(lease, Completed({"ok": 1}), jitter=0)

    with pytest.raises(ZeroDivisionError):
        async with worker.claims.finishing(done):
            raise ZeroDivisionError
    assert await rig.status(lease.job_id) is Status.RUNNING
    async with worker.claims.finishing(done):
        pass
    assert await rig.status(lease.job_id) is Status.COMPLETED
    with pytest.raises(LeaseLost):
        async with worker.claims.finishing(done):
            pass
    await worker.claims.reconnect()
    assert (await store.views.job(lease.job_id)).result == '{"ok":1}'


async def test_a_worker_can_ask_which_leases_are_its_own(rig: Rig) -> None:
    worker, other = await rig.worker(), await rig.worker()
    await rig.enqueue(3)
    leases = await worker.claim()
    assert await worker.claims.held(worker.id) == {(lease.job_id, lease.token) for lease in leases}
    assert await worker.claims.held(other.id) == set()


async def test_work_is_overlooked_when_it_has_waited_and_the_worker_could_have_it(rig: Rig, store: Store) -> None:
    worker = await rig.worker(threads=4)

    async def overlooked(free: int = 4, waited_s: float = 0, **over: Any) -> bool:
        ask = Ask(**{"worker_id": worker.id, "queues": worker.queues, "types": worker.types, "free": free, **over})
        return await worker.claims.overlooked(ask, waited_s=waited_s)

    assert not await overlooked()
    await rig.enqueue(thread_demand=2)
    assert await overlooked()
    assert not await overlooked(waited_s=60)
    assert not await overlooked(free=1)
    assert not await overlooked(types=["strange"])
    assert not await overlooked(queues=["elsewhere"])
    await store.intake.set_paused("default", paused=True)
    assert not await overlooked()


async def test_a_batch_that_all_completed_says_the_same_as_one_that_is_mixed(rig: Rig, store: Store) -> None:
    """What they have in common travels once (settle_completed); results and logs are each job's own."""
    worker = await rig.worker(threads=8)
    await rig.enqueue(4)
    leases = await worker.claim()
    outcomes = [Completed(), Completed({"n": 1}), Completed([]), Completed()]
    batch = [
        settle(lease, outcome, jitter=0, execution_s=n, log=f"line {n}" if n % 2 else None)
        for n, (lease, outcome) in enumerate(zip(leases, outcomes, strict=True))
    ]
    receipt = await worker.claims.settle(batch)
    assert set(receipt.moved) == {lease.job_id for lease in leases}
    jobs = [await store.views.job(lease.job_id) for lease in leases]
    assert [job.result for job in jobs] == [None, '{"n":1}', "[]", None]
    assert [round(job.execution_s or 0) for job in jobs] == [0, 1, 2, 3]
    logs = [(await store.views.attempts(lease.job_id))[-1].log for lease in leases]
    assert logs == [None, "line 1", None, "line 3"]
    again = await worker.claims.settle(batch)
    assert again.repeated == set(receipt.moved)
