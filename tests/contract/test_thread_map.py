"""Which job holds which threads of a worker, as the database can tell; and how many are only claimed."""

from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest

from tests.contract.test_hints import Ears
from tests.factory import Rig
from windlass.errors import NotPossible, WorkerNotFound
from windlass.model import Declared, Leave, NewWorker
from windlass.store.protocol import WorkerThreads, channel
from windlass.store.store import Store

Sql = asyncpg.Connection


def _running(worker: WorkerThreads) -> list[tuple[UUID, int, str]]:
    return [(use.job_id, use.threads, use.state) for use in worker.running]


async def test_a_wide_job_holds_several_threads_and_jobs_stand_in_the_order_of_their_claims(
    rig: Rig, store: Store
) -> None:
    worker, idle = await rig.worker(threads=8), await rig.worker(threads=2)
    (wide,) = await rig.enqueue(thread_demand=4, name="the wide one")
    await worker.claim(4)
    narrow = await rig.enqueue(2)
    await worker.claim(2, busy=4)
    busy, other = await store.views.thread_map()
    assert (busy.id, busy.claimed, _running(busy)) == (
        worker.id, 0, [(wide, 4, "running"), *((one, 1, "running") for one in narrow)],
    )  # fmt: skip
    assert [(use.type, use.name) for use in busy.running] == [("echo", "the wide one"), ("echo", None), ("echo", None)]
    assert busy.running[0].started_at <= busy.running[1].started_at
    assert (other.id, other.claimed, other.memory_bytes, other.running) == (idle.id, 0, None, [])


async def test_what_is_claimed_ahead_holds_no_thread(rig: Rig, store: Store) -> None:
    worker = await rig.worker(threads=2)
    jobs = await rig.enqueue(5)
    assert len(await worker.claim(2, budget=5)) == 5
    (told,) = await store.views.thread_map()
    assert (told.claimed, _running(told)) == (3, [(one, 1, "running") for one in jobs[:2]])
    (listed,) = await store.views.workers()
    assert (listed.busy_threads, listed.jobs, listed.claimed) == (2, 5, 3)


async def test_a_wide_job_that_does_not_fit_yet_holds_up_those_behind_it(rig: Rig, store: Store) -> None:
    worker = await rig.worker(threads=4)
    first, second = await rig.enqueue(2, thread_demand=3)
    await rig.enqueue()
    assert len(await worker.claim(4, budget=8)) == 3
    (told,) = await store.views.thread_map()
    assert (told.claimed, _running(told)) == (2, [(first, 3, "running")])
    (listed,) = await store.views.workers()
    assert (listed.busy_threads, listed.jobs, listed.claimed) == (3, 3, 2)
    assert await rig.store.intake.cancel(second) == "running"


async def test_suspects_and_types_that_run_in_processes_are_isolated(rig: Rig, store: Store, sql: Sql) -> None:
    await store.upkeep.declare([Declared("apart", isolation="process")])
    worker = await rig.worker(types=["echo", "apart"])
    (plain,), (suspect,), (apart,) = [await rig.enqueue(type=one) for one in ("echo", "echo", "apart")]
    await sql.execute("update windlass.ready set suspect = true where job_id = $1", suspect)
    await worker.claim()
    (told,) = await store.views.thread_map()
    assert {job_id: state for job_id, _, state in _running(told)} == {
        plain: "running", suspect: "isolated", apart: "isolated",
    }  # fmt: skip


async def test_threads_are_lost_to_jobs_that_were_to_stop(rig: Rig, store: Store, sql: Sql) -> None:
    worker = await rig.worker()
    cancelled, overdue, well = await rig.enqueue(3, timeout_s=3600)
    await worker.claim()
    await store.intake.cancel(cancelled)
    await sql.execute("update windlass.running set claimed_at = now() - interval '2 h' where job_id = $1", overdue)
    assert {state for _, _, state in _running((await store.views.thread_map())[0])} == {"running"}, "no thread is lost"
    await store.upkeep.renew([worker.id], lease_ttl_s=60, lost_threads={worker.id: 1})
    states = {job_id: state for job_id, _, state in _running((await store.views.thread_map())[0])}
    assert states == {overdue: "stuck", cancelled: "running", well: "running"}, "the oldest of those that were to stop"
    await store.upkeep.renew([worker.id], lease_ttl_s=60, lost_threads={worker.id: 2})
    states = {job_id: state for job_id, _, state in _running((await store.views.thread_map())[0])}
    assert states == {overdue: "stuck", cancelled: "stuck", well: "running"}


async def test_workers_that_have_ended_have_no_threads(rig: Rig, store: Store, sql: Sql) -> None:
    dead, expired, living = [await rig.worker() for _ in range(3)]
    await rig.enqueue(8)
    await dead.claim()
    await store.upkeep.bury([dead.id], "crashed")
    await sql.execute("update windlass.worker set lease_until = now() where id = $1", expired.id)
    assert [worker.id for worker in await store.views.thread_map()] == [living.id]


async def test_a_renewal_notes_the_memory_and_a_registration_the_version(rig: Rig, store: Store) -> None:
    new = NewWorker(uuid4(), "w", 4, ["default"], ["echo"], version="1.2.3")
    await store.upkeep.register(new, lease_ttl_s=60)
    before = await store.views.worker(new.id)
    assert (before.version, before.memory_bytes) == ("1.2.3", None)
    await store.upkeep.renew([new.id], lease_ttl_s=60, memory_bytes={new.id: 3 * 2**30})
    assert (await store.views.worker(new.id)).memory_bytes == 3 * 2**30
    assert [worker.memory_bytes for worker in await store.views.thread_map()] == [3 * 2**30]


# Leaving. ------------------------------------------------------------------------------------------------------------


@pytest.fixture
async def ears(url: str) -> AsyncIterator[Ears]:
    connection = await asyncpg.connect(url)
    yield Ears(connection)
    await connection.close()


async def _supervised(store: Store) -> NewWorker:
    new = NewWorker(uuid4(), "w-1", 4, ["default"], ["echo"], uuid4())
    await store.upkeep.register(new, lease_ttl_s=60)
    return new


@pytest.mark.parametrize("how", ["drain", "stop"])
async def test_a_worker_is_asked_to_leave_and_its_supervisor_is_told(store: Store, ears: Ears, how: Leave) -> None:
    worker, other = await _supervised(store), await _supervised(store)
    assert worker.supervisor_id is not None
    await ears.to(channel(worker.supervisor_id))
    for _ in range(2):  # may be repeated
        await store.intake.ask_to_leave(worker.id, how)
    assert await ears.all_heard() == [(channel(worker.supervisor_id), how)] * 2
    assert (await store.views.worker(worker.id)).draining
    (leaving,) = await store.upkeep.leaving([worker.id, other.id, uuid4()])
    assert (leaving.worker_id, leaving.drains, leaving.stops) == (worker.id, how == "drain", how == "stop")
    assert await store.upkeep.renew([worker.id, other.id], lease_ttl_s=60) == {worker.id: True, other.id: False}


@pytest.mark.parametrize("how", ["drain", "stop"])
async def test_who_has_ended_or_has_no_supervisor_cannot_be_asked_to_leave(
    rig: Rig, store: Store, sql: Any, how: Leave
) -> None:
    with pytest.raises(WorkerNotFound):
        await store.intake.ask_to_leave(uuid4(), how)
    alone = await rig.worker()
    with pytest.raises(NotPossible, match="has no supervisor"):
        await store.intake.ask_to_leave(alone.id, how)
    buried, expired = await _supervised(store), await _supervised(store)
    await store.upkeep.bury([buried.id], "left")
    await sql.execute("update windlass.worker set lease_until = now() where id = $1", expired.id)
    for worker in (buried, expired):
        with pytest.raises(NotPossible, match="has ended"):
            await store.intake.ask_to_leave(worker.id, how)
    assert not await sql.fetchval("select count(*) from windlass.worker where draining or stopping")
