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
BOTH = {("a", "echo"): 8, ("b", "echo"): 8}


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


# Who waits, and where there is room. -----------------------------------------------------------------------------------


async def test_wide_jobs_are_found_in_rank_order_once_they_have_waited(rig: Rig, store: Store) -> None:
    (late,) = await rig.enqueue(thread_demand=2, queue="a")
    (first,) = await rig.enqueue(thread_demand=3, queue="b", priority=1)
    await rig.enqueue(thread_demand=9, queue="b")
    await rig.enqueue(queue="a")
    await rig.enqueue(thread_demand=4, queue="elsewhere")
    found = await store.upkeep.waiting_wide(BOTH, waited_s=0)
    assert [job[:4] for job in found] == [(first, "b", "echo", 3), (late, "a", "echo", 2)]
    assert found[0].rank < found[1].rank
    assert await store.upkeep.waiting_wide(BOTH, waited_s=60) == []
    assert await store.upkeep.waiting_wide({}, waited_s=0) == []


async def test_of_each_queue_and_width_a_page_is_found(rig: Rig, store: Store) -> None:
    ids = [(await rig.enqueue(thread_demand=2, queue=queue))[0] for queue in ("a", "a", "b", "b")]
    found = await store.upkeep.waiting_wide(BOTH, waited_s=0, limit=1)
    assert [job.job_id for job in found] == [ids[0], ids[2]]


async def test_a_wide_job_is_not_hidden_by_older_ones_that_no_worker_can_hold(rig: Rig, store: Store) -> None:
    await rig.enqueue(60, thread_demand=4, type="other", if_too_wide="wait")
    (job_id,) = await rig.enqueue(thread_demand=4)
    lines = {("default", "other"): 2, ("default", "echo"): 8}
    assert [job.job_id for job in await store.upkeep.waiting_wide(lines, waited_s=0, limit=50)] == [job_id]


async def test_a_known_job_is_always_on_the_page_until_it_starts_or_its_queue_is_paused(rig: Rig, store: Store) -> None:
    ids = [(await rig.enqueue(thread_demand=2, queue="a"))[0] for _ in range(4)]
    known = [ids[3], ids[0]]
    for lines in (BOTH, {}):
        found = await store.upkeep.waiting_wide(lines, waited_s=60, known=known)
        assert [job.job_id for job in found] == [ids[0], ids[3]]
    found = await store.upkeep.waiting_wide(BOTH, waited_s=0, known=known, limit=1)
    assert [job.job_id for job in found] == [ids[0], ids[1], ids[3]], "they take up no place on the page"
    await store.intake.cancel(ids[0])
    assert [job.job_id for job in await store.upkeep.waiting_wide({}, waited_s=0, known=known)] == [ids[3]]
    await store.intake.set_paused("a", paused=True)
    assert await store.upkeep.waiting_wide(BOTH, waited_s=0, known=known) == []


async def test_rooms_tell_of_the_living_how_full_they_are_and_how_far_back_they_have_reached(
    rig: Rig, store: Store, sql: Sql
) -> None:
    fresh, busy, drains, dead = [await rig.worker(threads=8) for _ in range(4)]
    await rig.enqueue(thread_demand=3)
    await rig.enqueue(thread_demand=2)
    leases = await busy.claim()
    await store.upkeep.drain([drains.id])
    await store.upkeep.bury([dead.id], "left")
    await sql.execute("update windlass.worker set lost_threads = 2 where id = $1", busy.id)
    await sql.execute(
        "insert into windlass.idle values ($1, '2020-01-01 00:00:00+00', 8, '{default}', '{echo}', false)", fresh.id
    )
    rooms = {room.worker_id: room for room in await store.upkeep.rooms()}
    assert set(rooms) == {fresh.id, busy.id, drains.id}
    assert (rooms[fresh.id].busy, rooms[fresh.id].last_claim, rooms[fresh.id].latest_rank) == (0, 1577836800.0, None)
    assert (rooms[busy.id].threads, rooms[busy.id].busy, rooms[busy.id].lost) == (8, 5, 2)
    assert rooms[busy.id].latest_rank == leases[1].rank
    assert {room.latest_rank for room in await store.upkeep.rooms(lately_s=0)} == {None}
    claimed_s = await sql.fetchval("select date_part('epoch', max(claimed_at)) from windlass.running")
    assert rooms[busy.id].last_claim == claimed_s
    assert (rooms[busy.id].queues, rooms[busy.id].types) == (frozenset(["default"]), frozenset(busy.types))
    assert [room.worker_id for room in rooms.values() if room.draining] == [drains.id]
    assert rooms[drains.id].last_claim is None


# Wider than any worker. -----------------------------------------------------------------------------------------------


async def test_jobs_wider_than_the_widest_of_their_line_are_found_in_rank_order_unless_they_would_rather_wait(
    rig: Rig, store: Store
) -> None:
    (fails,) = await rig.enqueue(thread_demand=500, queue="a", if_too_wide="fail", type="other")
    (narrows,) = await rig.enqueue(thread_demand=9, queue="b", priority=1)
    await rig.enqueue(thread_demand=9, queue="b", if_too_wide="wait", priority=2)
    await rig.enqueue(thread_demand=8, queue="b")
    await rig.enqueue(thread_demand=40, queue="b", type="other")
    await rig.enqueue(thread_demand=40, queue="elsewhere")
    lines = {("a", "other"): 8, ("a", "echo"): 8, ("b", "echo"): 8, ("b", "other"): 64}
    found = await store.upkeep.too_wide(lines, waited_s=0)
    assert found == [WideJob(narrows, "b", "echo", 9, "narrow"), WideJob(fails, "a", "other", 500, "fail")]
    assert await store.upkeep.too_wide(lines, waited_s=0, limit=1) == found[:1]
    assert await store.upkeep.too_wide(lines, waited_s=60) == []
    assert await store.upkeep.too_wide({}, waited_s=0) == []


async def test_jobs_behind_a_thousand_that_would_rather_wait_are_found_by_the_looks_that_follow(
    rig: Rig, store: Store
) -> None:
    lines = {("default", "echo"): 2, ("default", "other"): 2}
    await rig.enqueue(1_500, thread_demand=4, if_too_wide="wait")
    (wider,) = await rig.enqueue(thread_demand=5, type="other")
    (behind,) = await rig.enqueue(thread_demand=4)
    found = [await store.upkeep.too_wide(lines, waited_s=0, limit=1_000) for _ in range(4)]
    both = [WideJob(wider, "default", "other", 5, "narrow"), WideJob(behind, "default", "echo", 4, "narrow")]
    assert found == [[], both, [], both], "and after the last the looks begin anew"
    await rig.enqueue(2_000, thread_demand=4, priority=1)
    page = await store.upkeep.too_wide(lines, waited_s=0, limit=1_000)
    assert len(page) == 1_000
    assert await store.upkeep.narrow(page) == {job.job_id for job in page}
    assert len(await store.upkeep.too_wide(lines, waited_s=0, limit=1_000)) == 1_000, (
        "a page that was cut is not skipped"
    )


async def test_a_too_wide_job_that_somebody_holds_keeps_no_other_from_being_narrowed_or_failed(
    rig: Rig, store: Store, sql: Sql
) -> None:
    held, free = await rig.enqueue(2, thread_demand=64)
    jobs = await store.upkeep.too_wide({("default", "echo"): 2}, waited_s=0)
    async with sql.transaction():
        await sql.execute("select from windlass.ready where job_id = $1 for update", held)
        assert await store.upkeep.narrow(jobs) == {free}
        assert await store.upkeep.give_up(jobs, widest=2) == set()
    assert await store.upkeep.give_up(jobs, widest=2) == {held}


async def test_a_narrowed_job_runs_on_one_thread_and_says_so(rig: Rig, store: Store) -> None:
    (job_id,) = await rig.enqueue(thread_demand=64)
    worker = await rig.worker(threads=2)
    assert await worker.claim() == []
    wide = await store.upkeep.too_wide({("default", "echo"): 2}, waited_s=0)
    assert await store.upkeep.narrow(wide) == {job_id}
    assert await store.upkeep.narrow(wide) == set()
    (lease,) = await worker.claim()
    assert (lease.job_id, lease.threads, lease.thread_demand) == (job_id, 1, 64)
    await worker.settle(lease, Completed())
    job = await store.views.job(job_id)
    assert (job.thread_demand, job.threads_granted) == (64, 1)


async def test_a_job_that_would_rather_fail_than_be_narrowed_is_failed(rig: Rig, store: Store) -> None:
    (job_id,) = await rig.enqueue(thread_demand=64, if_too_wide="fail")
    wide = await store.upkeep.too_wide({("default", "echo"): 2}, waited_s=0)
    assert await store.upkeep.give_up(wide, widest=2) == {job_id}
    assert await store.upkeep.give_up(wide, widest=2) == set()
    job = await store.views.job(job_id)
    assert job.status is Status.FAILED
    assert job.error == Error("TooWide", "asks for more threads than any worker has (2)")


async def test_a_wide_job_that_found_a_worker_meanwhile_is_left_alone(rig: Rig, store: Store) -> None:
    (job_id,) = await rig.enqueue(thread_demand=64)
    wide = await store.upkeep.too_wide({("default", "echo"): 2}, waited_s=0)
    assert len(await (await rig.worker(threads=64)).claim()) == 1
    assert await store.upkeep.narrow(wide) == set()
    assert await store.upkeep.give_up(wide, widest=2) == set()
    assert (await store.views.job(job_id)).threads_granted == 64
    assert await store.upkeep.narrow([]) == set()
