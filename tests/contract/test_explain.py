"""Whatever keeps a job from running, made the way it comes about, is what its explanation says."""

import re
from collections.abc import Awaitable, Callable
from uuid import UUID, uuid4

import asyncpg
import pytest

from tests.factory import Rig, WorkerRig
from windlass.errors import JobNotFound
from windlass.lifecycle import Failed, Lost, Snoozed
from windlass.model import Error, Status
from windlass.placement import Reservation
from windlass.store.store import Store

Sql = asyncpg.Connection


async def codes(store: Store, job_id: UUID) -> list[str]:
    told = await store.views.explain(job_id)
    assert told.job_id == job_id
    assert told.status is (await store.views.job(job_id)).status
    return [obstacle.code for obstacle in told.obstacles]


async def test_a_job_that_is_not_there_is_not_explained(store: Store) -> None:
    with pytest.raises(JobNotFound):
        await store.views.explain(uuid4())


async def test_a_job_without_workers_waits_for_one_to_come(rig: Rig, store: Store) -> None:
    (job_id,) = await rig.enqueue()
    assert await codes(store, job_id) == ["no_workers"]
    worker = await rig.worker()
    assert await codes(store, job_id) == []
    told = await store.views.explain(job_id)
    assert (told.ahead, told.workers_able, told.workers_free) == (0, 1, 1)
    await store.upkeep.drain([worker.id])
    assert await codes(store, job_id) == ["draining"]
    await store.upkeep.bury([worker.id], "left")
    assert await codes(store, job_id) == ["no_workers"]


async def test_a_paused_queue_is_told_first(rig: Rig, store: Store) -> None:
    (job_id,) = await rig.enqueue()
    await store.intake.set_paused("default", paused=True)
    assert await codes(store, job_id) == ["queue_paused", "no_workers"]
    await store.intake.set_paused("default", paused=False)
    assert await codes(store, job_id) == ["no_workers"]


async def test_a_type_or_a_queue_that_nobody_serves_is_told(rig: Rig, store: Store) -> None:
    await rig.worker(queues=["a"], types=["echo"])
    await rig.worker(queues=["b"], types=["other"])
    expected = {
        ("a", "echo"): [],
        ("a", "other"): ["queue_unserved"],
        ("a", "strange"): ["type_unknown"],
        ("c", "echo"): ["queue_unserved"],
        ("c", "strange"): ["type_unknown", "queue_unserved"],
    }
    for (queue, type_), why in expected.items():
        (job_id,) = await rig.enqueue(queue=queue, type=type_)
        assert await codes(store, job_id) == why, (queue, type_)


async def test_a_job_set_aside_is_told_so_until_it_is_back(rig: Rig, store: Store) -> None:
    job_id = await rig.job(Status.HELD, queue="default")
    assert await codes(store, job_id) == ["type_unknown"]
    await rig.worker(types=[(await store.views.job(job_id)).type])
    assert await codes(store, job_id) == ["set_aside"]
    await store.upkeep.admit_known()
    assert await codes(store, job_id) == []


async def test_a_scheduled_job_is_told_why_it_is(rig: Rig, store: Store, sql: Sql) -> None:
    worker = await rig.worker()
    (later,) = await rig.enqueue(delay_s=600)
    await rig.enqueue(2, queue="elsewhere")
    assert await codes(store, later) == ["scheduled"]
    assert (await store.views.explain(later)).ahead is None
    failed, snoozed, crashed = await rig.enqueue(3)
    leases = {lease.job_id: lease for lease in await worker.claim()}
    await worker.settle(leases[failed], Failed(Error("ValueError", "no"), delay_s=60))
    await worker.settle(leases[snoozed], Snoozed(60))
    await worker.settle(leases[crashed]._replace(suspect=True), Lost(crashed=True))
    told = await store.views.explain(failed)
    assert [obstacle.code for obstacle in told.obstacles] == ["backing_off"]
    assert "attempt 1 failed: ValueError: no; the next one begins in" in told.obstacles[0].detail
    assert "(1 of 3 failures)" in told.obstacles[0].detail
    assert await codes(store, snoozed) == ["snoozed"]
    assert await codes(store, crashed) == ["backing_off"]
    await sql.execute("update windlass.scheduled set ready_at = now() - interval '1 minute'")
    assert await codes(store, later) == ["due"]
    assert "no worker leads" in ((await store.views.explain(later)).obstacles[0].cure or "")
    await store.upkeep.take_term(uuid4(), ttl_s=60)
    assert (await store.views.explain(later)).obstacles[0].cure is None


async def test_a_job_that_snoozed_after_it_failed_is_not_told_the_old_failure(rig: Rig, store: Store) -> None:
    worker = await rig.worker()
    (job_id,) = await rig.enqueue()
    (lease,) = await worker.claim()
    await worker.settle(lease, Failed(Error("ValueError", "no"), delay_s=0))
    await store.upkeep.promote()
    (lease,) = await worker.claim()
    await worker.settle(lease, Snoozed(60))
    assert await codes(store, job_id) == ["snoozed"]


async def test_a_wide_job_is_told_how_much_room_there_is(rig: Rig, store: Store) -> None:
    await rig.enqueue(3)
    worker = await rig.worker(threads=4)
    await worker.claim(3)
    (job_id,) = await rig.enqueue(thread_demand=3)
    told = await store.views.explain(job_id)
    assert [obstacle.code for obstacle in told.obstacles] == ["waits_for_threads"]
    assert "none has more than 1" in told.obstacles[0].detail
    assert (told.workers_able, told.workers_free) == (1, 0)
    await store.upkeep.reserve([Reservation(worker.id, job_id, 3)], ttl_s=60)
    assert "keeps what becomes free for it, 1 so far" in (await store.views.explain(job_id)).summary
    (wider,) = await rig.enqueue(thread_demand=5, if_too_wide="fail")
    assert await codes(store, wider) == ["too_wide"]


async def test_a_job_is_told_that_free_threads_are_kept_for_another(rig: Rig, store: Store) -> None:
    worker = await rig.worker(threads=4)
    await rig.enqueue()
    await worker.claim(1)
    (wide,) = await rig.enqueue(thread_demand=4, queue="default")
    await store.upkeep.reserve([Reservation(worker.id, wide, 4)], ttl_s=60)
    (job_id,) = await rig.enqueue(priority=50)
    assert await worker.claim(3, busy=1) == []
    told = (await store.views.explain(job_id)).obstacles[0]
    assert told.code == "waits_for_threads"
    assert f"has 3, and keeps them for job {wide}" in told.detail
    await store.intake.cancel(wide)  # what is kept for a job that no longer waits is not kept
    assert await codes(store, job_id) == []
    assert [lease.job_id for lease in await worker.claim(3, busy=1)] == [job_id]


async def test_a_narrowed_job_is_told_as_it_is_now(rig: Rig, store: Store) -> None:
    await rig.worker(threads=2)
    (job_id,) = await rig.enqueue(thread_demand=5)
    assert await codes(store, job_id) == ["too_wide"]
    wide = await store.upkeep.too_wide({("default", "echo"): 2}, waited_s=0)
    assert await store.upkeep.narrow(wide) == {job_id}
    assert await codes(store, job_id) == []


async def test_those_ahead_are_those_a_claim_would_take_first(rig: Rig, store: Store) -> None:
    await rig.worker()
    first = await rig.enqueue(3)
    second = await rig.enqueue(3, thread_demand=2)
    (late,) = await rig.enqueue()
    (urgent,) = await rig.enqueue(priority=50)
    await rig.enqueue(5, queue="elsewhere", priority=100)
    line = [urgent, *sorted(first), *sorted(second), late]
    assert [(await store.views.explain(job_id)).ahead for job_id in line] == list(range(8))
    assert await codes(store, late) == ["behind_others"]


async def test_of_jobs_of_one_batch_the_last_is_behind_all_others(rig: Rig, store: Store) -> None:
    await rig.worker()
    ids = sorted(await rig.enqueue(1_500))
    ahead = [(await store.views.explain(ids[n])).ahead for n in (0, 1, 999, 1_000, 1_499)]
    assert ahead == [0, 1, 999, 1_000, 1_000]


async def test_a_running_job_is_told_where_it_runs(rig: Rig, store: Store) -> None:
    job_id = await rig.job(Status.RUNNING)
    told = await store.views.explain(job_id)
    (worker,) = await store.views.workers()
    assert [obstacle.code for obstacle in told.obstacles] == ["running"]
    assert f"runs on {worker.name}" in told.summary
    await store.intake.cancel(job_id)
    assert await codes(store, job_id) == ["cancelling", "running"]
    await store.upkeep.bury([worker.id], "crashed")
    assert await codes(store, job_id) == ["worker_lost"]


# Cures. ---------------------------------------------------------------------------------------------------------------


async def _scheduled(rig: Rig) -> UUID:
    await rig.worker()
    return (await rig.enqueue(delay_s=600))[0]


async def _scheduled_and_paused(rig: Rig) -> UUID:
    await rig.store.intake.set_paused("default", paused=True)
    return (await rig.enqueue(delay_s=600))[0]


async def _backing_off(rig: Rig) -> UUID:
    worker = await rig.worker()
    await rig.enqueue()
    (lease,) = await worker.claim()
    await worker.settle(lease, Failed(Error("ValueError", "no"), delay_s=60))
    return lease.job_id


async def _snoozed(rig: Rig) -> UUID:
    worker = await rig.worker()
    await rig.enqueue()
    (lease,) = await worker.claim()
    await worker.settle(lease, Snoozed(60))
    return lease.job_id


async def _alone(rig: Rig) -> UUID:
    return (await rig.enqueue())[0]


async def _of_a_strange_type(rig: Rig) -> UUID:
    await rig.worker(types=["other"])
    return (await rig.enqueue())[0]


async def _in_a_strange_queue(rig: Rig) -> UUID:
    await rig.worker()
    return (await rig.enqueue(queue="elsewhere"))[0]


async def _between_two_workers(rig: Rig) -> UUID:
    await rig.worker(queues=["elsewhere"])
    await rig.worker(types=["other"])
    return (await rig.enqueue(queue="elsewhere", type="other"))[0]


async def _too_wide(rig: Rig) -> UUID:
    await rig.worker(threads=2)
    return (await rig.enqueue(thread_demand=5, if_too_wide="wait"))[0]


async def _without_room(rig: Rig) -> UUID:
    worker = await rig.worker(threads=2)
    await rig.enqueue(2)
    await worker.claim()
    return (await rig.enqueue())[0]


async def _behind_a_wide_one(rig: Rig) -> UUID:
    worker = await rig.worker(threads=2)
    await rig.enqueue()
    await worker.claim()
    (wide,) = await rig.enqueue(thread_demand=2)
    await rig.store.upkeep.reserve([Reservation(worker.id, wide, 2)], ttl_s=60)
    return (await rig.enqueue(priority=9))[0]


async def _set_aside(rig: Rig) -> UUID:
    job_id = await rig.job(Status.HELD, queue="default")
    await rig.store.upkeep.take_term(uuid4(), ttl_s=60)
    await rig.worker(types=[(await rig.store.views.job(job_id)).type])
    return job_id


async def _draining(rig: Rig) -> UUID:
    await rig.store.upkeep.drain([(await rig.worker()).id])
    return (await rig.enqueue())[0]


async def _completed(rig: Rig) -> UUID:
    return await rig.job(Status.COMPLETED)


async def _failed(rig: Rig) -> UUID:
    return await rig.job(Status.FAILED)


async def _cancelled(rig: Rig) -> UUID:
    return await rig.job(Status.CANCELLED)


async def _follow(rig: Rig, job_id: UUID, cure: str, code: str) -> None:
    """Do what the cure says."""
    job = await rig.store.views.job(job_id)
    if f"windlass jobs run-now {job_id}" in cure:
        await rig.store.intake.run_now(job_id)
    elif f"windlass queues resume {job.queue}" in cure:
        await rig.store.intake.set_paused(job.queue, paused=False)
    elif f"windlass jobs retry {job_id}" in cure or f"windlass dead-letters replay {job_id}" in cure:
        await rig.store.intake.retry(job_id)
    elif found := re.search(r"--threads (\d+)", cure):
        await rig.worker(threads=int(found[1]), queues=[job.queue], types=[job.type])
    elif code == "queue_unserved":
        await rig.worker(queues=[*re.findall(r"--queues (\S+)", cure), job.queue][:1], types=[job.type])
    else:
        assert re.search(r"start (one|a worker|more workers)", cure), cure
        await rig.worker(queues=[job.queue], types=[job.type])


@pytest.mark.parametrize(
    "cause",
    [
        *(_scheduled, _scheduled_and_paused, _backing_off, _snoozed, _alone, _of_a_strange_type, _in_a_strange_queue),
        *(_between_two_workers, _too_wide, _without_room, _behind_a_wide_one, _set_aside, _draining),
        *(_completed, _failed, _cancelled),
    ],
)
async def test_who_does_what_would_help_sees_the_job_begin(
    rig: Rig, store: Store, cause: Callable[[Rig], Awaitable[UUID]]
) -> None:
    job_id = await cause(rig)
    for _ in range(4):
        told = (await store.views.explain(job_id)).obstacles
        hard = [obstacle for obstacle in told if obstacle.code != "behind_others"]
        if not hard:
            break
        assert hard[0].cure is not None, hard
        await _follow(rig, job_id, hard[0].cure, hard[0].code)
    else:
        pytest.fail(f"still in its way: {hard}")
    claims = store.claims()
    began: set[UUID] = set()
    for worker in await store.views.workers():
        free = worker.threads - worker.busy_threads
        post = WorkerRig(worker.id, claims, worker.threads, list(worker.queues), list(worker.types))
        began |= {lease.job_id for lease in await post.claim(free, busy=worker.busy_threads)}
    assert job_id in began


@pytest.mark.parametrize("status", [Status.COMPLETED, Status.FAILED, Status.CANCELLED])
async def test_a_finished_job_is_told_how_it_ended(rig: Rig, store: Store, status: Status) -> None:
    job_id = await rig.job(status)
    assert await codes(store, job_id) == [f"finished_{status}"]
    detail = (await store.views.explain(job_id)).obstacles[0].detail
    assert ("ValueError: no" in detail) == (status is Status.FAILED)
