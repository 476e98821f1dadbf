"""A wide job is guaranteed a start: threads reserved for it go to it first, and to nothing that would keep it out."""

from uuid import UUID, uuid4

import asyncpg

from tests.factory import Rig, WorkerRig
from windlass.lifecycle import Completed
from windlass.model import Error, Status
from windlass.placement import Reservation
from windlass.store.protocol import Ask, WideJob
from windlass.store.store import Store

Sql = asyncpg.Connection


async def reserved(rig: Rig, worker: WorkerRig, *, threads: int = 4, ttl_s: float = 60) -> UUID:
    """A wide job behind ten narrow ones, and this worker's threads reserved for it."""
    await rig.enqueue(10)
    (wide,) = await rig.enqueue(thread_demand=threads)
    await rig.store.upkeep.reserve([Reservation(worker.id, wide, threads)], ttl_s=ttl_s)
    return wide


async def test_a_reserved_job_that_fits_goes_before_all_others(rig: Rig) -> None:
    worker = await rig.worker(threads=8)
    wide = await reserved(rig, worker)
    leases = await worker.claim()
    assert wide in {lease.job_id for lease in leases}
    assert sum(lease.threads for lease in leases) == 8


async def test_a_reserved_job_that_just_fits_goes_alone(rig: Rig) -> None:
    worker = await rig.worker(threads=8)
    wide = await reserved(rig, worker)
    assert [lease.job_id for lease in await worker.claim(4, busy=4)] == [wide]


async def test_a_reserved_job_that_fits_is_taken_also_by_a_worker_that_looks_from_a_floor(rig: Rig) -> None:
    await rig.enqueue(100, queue="a")
    worker = await rig.worker(threads=8, queues=["a", "b"])
    await worker.claims.claim(Ask(worker.id, worker.queues, worker.types, free=8, most=4))  # it now knows only queue a
    (wide,) = await rig.enqueue(queue="b", thread_demand=4)
    await rig.store.upkeep.reserve([Reservation(worker.id, wide, 4)], ttl_s=60)
    leases = await worker.claims.claim(Ask(worker.id, worker.queues, worker.types, free=4, busy=4))
    assert [lease.job_id for lease in leases] == [wide]


async def test_a_worker_takes_nothing_that_keeps_its_reserved_job_out(rig: Rig) -> None:
    worker = await rig.worker(threads=8)
    wide = await reserved(rig, worker)
    for busy in (8, 7, 6, 5):
        assert await worker.claim(8 - busy, busy=busy) == []
        assert await worker.claim(8 - busy, busy=busy, budget=20) == []
    assert wide in {lease.job_id for lease in await worker.claim(4, busy=4)}


async def test_any_worker_with_room_may_take_a_reserved_job(rig: Rig, sql: Sql) -> None:
    worker, other = await rig.worker(threads=8), await rig.worker(threads=16)
    wide = await reserved(rig, worker)
    assert wide in {lease.job_id for lease in await other.claim()}
    await rig.enqueue(3)
    assert len(await worker.claim(3, busy=5)) == 3  # the reservation died with the wait of its job


async def test_a_reservation_that_expired_or_whose_job_is_gone_holds_nothing_up(rig: Rig, store: Store) -> None:
    worker = await rig.worker(threads=8)
    await reserved(rig, worker, ttl_s=0)
    assert len(await worker.claim(2, busy=6)) == 2
    wide = await reserved(rig, worker)
    assert await worker.claim(2, busy=6) == []
    await store.intake.cancel(wide)
    assert len(await worker.claim(2, busy=6)) == 2


async def test_a_reserved_job_in_a_paused_queue_is_not_handed_out(rig: Rig, store: Store) -> None:
    worker = await rig.worker(threads=8)
    await reserved(rig, worker)
    await store.intake.set_paused("default", paused=True)
    assert await worker.claim() == []


async def test_the_reservations_are_exactly_those_that_were_set_last(rig: Rig, store: Store) -> None:
    jobs = await rig.enqueue(3, thread_demand=4)
    workers = sorted([(await rig.worker()).id for _ in range(3)])
    first = [Reservation(workers[0], jobs[0], 4), Reservation(workers[1], jobs[1], 4)]
    assert await store.upkeep.reserve(first, ttl_s=60) == set(first)
    assert set(await store.upkeep.reservations()) == set(first)
    swapped = [Reservation(workers[1], jobs[0], 4), Reservation(workers[2], jobs[2], 4)]
    assert await store.upkeep.reserve(swapped, ttl_s=60) == set(swapped)
    assert set(await store.upkeep.reservations()) == set(swapped)
    assert {w.id: w.reserved_for for w in await store.views.workers()} == dict(
        zip(workers, [None, jobs[0], jobs[2]], strict=True)
    )
    assert await store.upkeep.reserve(swapped, ttl_s=0) == set(swapped)
    assert await store.upkeep.reservations() == []
    assert await store.upkeep.reserve([], ttl_s=60) == set()


async def test_a_job_that_waits_no_more_gets_no_reservation(rig: Rig, store: Store) -> None:
    worker = await rig.worker()
    (gone,) = await rig.enqueue(thread_demand=4)
    await store.intake.cancel(gone)
    (waits,) = await rig.enqueue(thread_demand=4)
    wanted = [Reservation(worker.id, gone, 4), Reservation(uuid4(), waits, 4)]
    assert await store.upkeep.reserve(wanted, ttl_s=60) == {wanted[1]}


# Wider than any worker. -----------------------------------------------------------------------------------------------


async def test_wide_jobs_are_found_in_rank_order_once_they_have_waited(rig: Rig, store: Store) -> None:
    (late,) = await rig.enqueue(thread_demand=2, queue="a")
    (wait,) = await rig.enqueue(thread_demand=9, queue="b", if_too_wide="wait")
    (first,) = await rig.enqueue(thread_demand=3, queue="b", priority=1)
    (widest,) = await rig.enqueue(thread_demand=500, queue="a", if_too_wide="fail", type="other")
    await rig.enqueue(queue="a")
    await rig.enqueue(thread_demand=4, queue="elsewhere")
    found = await store.upkeep.waiting_wide(["a", "b"], widest=8, waited_s=0)
    assert [job.job_id for job in found] == [first, late]
    assert found[0] == WideJob(first, "b", "echo", 3, "narrow")
    assert await store.upkeep.waiting_wide(["a", "b"], widest=8, waited_s=60) == []
    assert [job.job_id for job in await store.upkeep.waiting_wide(["a", "b"], widest=8, waited_s=0, limit=1)] == [first]
    found = await store.upkeep.too_wide(["a", "b"], widest=8, waited_s=0)
    assert found == [WideJob(wait, "b", "echo", 9, "wait"), WideJob(widest, "a", "other", 500, "fail")]
    assert await store.upkeep.too_wide(["a", "b"], widest=8, waited_s=60) == []


async def test_a_narrowed_job_runs_on_one_thread_and_says_so(rig: Rig, store: Store) -> None:
    (job_id,) = await rig.enqueue(thread_demand=64)
    worker = await rig.worker(threads=2)
    assert await worker.claim() == []
    wide = await store.upkeep.too_wide(["default"], widest=2, waited_s=0)
    assert await store.upkeep.narrow(wide) == {job_id}
    assert await store.upkeep.narrow(wide) == set()
    (lease,) = await worker.claim()
    assert (lease.job_id, lease.threads, lease.thread_demand) == (job_id, 1, 64)
    await worker.settle(lease, Completed())
    job = await store.views.job(job_id)
    assert (job.thread_demand, job.threads_granted) == (64, 1)


async def test_a_job_that_would_rather_fail_than_be_narrowed_is_failed(rig: Rig, store: Store) -> None:
    (job_id,) = await rig.enqueue(thread_demand=64, if_too_wide="fail")
    wide = await store.upkeep.too_wide(["default"], widest=2, waited_s=0)
    assert await store.upkeep.give_up(wide, widest=2) == {job_id}
    assert await store.upkeep.give_up(wide, widest=2) == set()
    job = await store.views.job(job_id)
    assert job.status is Status.FAILED
    assert job.error == Error("TooWide", "asks for more threads than any worker has (2)")


async def test_a_wide_job_that_found_a_worker_meanwhile_is_left_alone(rig: Rig, store: Store) -> None:
    (job_id,) = await rig.enqueue(thread_demand=64)
    wide = await store.upkeep.too_wide(["default"], widest=2, waited_s=0)
    assert len(await (await rig.worker(threads=64)).claim()) == 1
    assert await store.upkeep.narrow(wide) == set()
    assert await store.upkeep.give_up(wide, widest=2) == set()
    assert (await store.views.job(job_id)).threads_granted == 64
    assert await store.upkeep.narrow([]) == set()
