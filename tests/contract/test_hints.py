"""Wake-ups in the store: who rests, who is woken for what, and that nothing in it ever waits."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest

from tests.factory import Rig, WorkerRig, present
from windlass.model import NewJob, NewWorker, Status, Want
from windlass.store.intake import WAKING
from windlass.store.postgres import Connection
from windlass.store.protocol import Ear, broadcast_channel, channel
from windlass.store.store import Store

ONE = Want("default", "echo")


class Ears:
    """A connection that listens, and what it has heard."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.heard: list[tuple[str, str]] = []

    async def to(self, *channels: str) -> None:
        for name in channels:
            await self._connection.add_listener(name, self._hear)

    async def present(self, key: UUID) -> None:
        """Be what a job can be handed to."""
        await present(self._connection, key)

    async def absent(self, key: UUID) -> None:
        await self.execute("select pg_advisory_unlock_shared(hashtextextended($1, 0))", str(key))

    async def execute(self, sql: str, *args: object) -> None:
        await self._connection.execute(sql, *args)

    async def all_heard(self) -> list[tuple[str, str]]:
        """What was said before this call: notifications arrive before the answer to a later statement."""
        await self._connection.execute("select")
        await asyncio.sleep(0)
        return self.heard

    def _hear(self, _connection: Any, _pid: int, name: str, payload: object) -> None:
        self.heard.append((name, str(payload)))


@pytest.fixture
async def ears(url: str) -> AsyncIterator[Ears]:
    connection = await asyncpg.connect(url)
    yield Ears(connection)
    await connection.close()


async def rest(store: Store, worker: WorkerRig, free: int | None = None, *, worked: bool = False) -> None:
    room = worker.threads if free is None else free
    await store.hints.rest(worker.id, queues=worker.queues, types=worker.types, free=room, worked=worked)


async def resting(rig: Rig, count: int, **fields: Any) -> list[UUID]:
    """So many workers, in the order in which they went to rest."""
    workers = [await rig.worker(**fields) for _ in range(count)]
    for worker in workers:
        await rest(rig.store, worker)
    return [worker.id for worker in workers]


async def in_line(sql: Connection) -> list[UUID]:
    return [row["worker_id"] for row in await sql.fetch("select worker_id from windlass.idle order by since")]


# Who is woken. --------------------------------------------------------------------------------------------------------


async def test_named_workers_are_woken_if_they_are_idle_and_nobody_else(rig: Rig, sql: Connection, ears: Ears) -> None:
    first, second, third = await resting(rig, 3)
    busy = await rig.worker()
    await ears.to(*map(channel, (first, second, third, busy.id)))
    assert await rig.store.hints.wake_workers([second, busy.id]) == [second]
    assert await ears.all_heard() == [(channel(second), "")]
    assert await in_line(sql) == [first, third]


async def test_one_job_wakes_the_worker_that_rests_longest_and_no_other(rig: Rig, ears: Ears) -> None:
    first, second = await resting(rig, 2)
    await ears.to(channel(first), channel(second))
    assert await rig.store.hints.rouse([ONE]) == [first]
    assert await ears.all_heard() == [(channel(first), "")]


async def test_single_jobs_in_turn_spread_evenly_over_workers_that_rest_again(rig: Rig) -> None:
    workers = {worker.id: worker for worker in [await rig.worker() for _ in range(4)]}
    for worker in workers.values():
        await rest(rig.store, worker)
    woken: Counter[UUID] = Counter()
    for _ in range(100):
        (worker_id,) = await rig.store.hints.rouse([ONE])
        woken[worker_id] += 1
        await rest(rig.store, workers[worker_id])
    assert set(woken.values()) == {25}


async def test_a_worker_is_woken_once_for_as_many_jobs_as_it_has_room(rig: Rig) -> None:
    ids = await resting(rig, 3, threads=4)
    assert await rig.store.hints.rouse([ONE._replace(count=6)]) == ids[:2]


async def test_room_that_one_want_has_taken_is_not_given_to_the_next(rig: Rig) -> None:
    ids = await resting(rig, 3, threads=4)
    wants = [Want("default", "echo", threads=3, count=1), Want("default", "other", count=2)]
    assert await rig.store.hints.rouse(wants) == ids[:2]


@pytest.mark.parametrize(
    "want", [Want("elsewhere", "echo"), Want("default", "strange"), Want("default", "echo", threads=9)]
)
async def test_a_job_that_fits_no_idle_worker_wakes_none(rig: Rig, sql: Connection, want: Want) -> None:
    ids = await resting(rig, 2)
    assert await rig.store.hints.rouse([want]) == []
    assert await in_line(sql) == ids


async def test_a_job_passes_over_workers_it_does_not_fit(rig: Rig, sql: Connection) -> None:
    (narrow,) = await resting(rig, 1, threads=1)
    (wide,) = await resting(rig, 1, threads=8)
    assert await rig.store.hints.rouse([Want("default", "echo", threads=2)]) == [wide]
    assert await in_line(sql) == [narrow]


async def test_with_nobody_idle_nobody_is_told_and_who_rests_afterwards_is(rig: Rig) -> None:
    for _ in range(3):
        assert await rig.store.hints.rouse([ONE._replace(count=1_000)]) == []
    ids = await resting(rig, 1)
    assert await rig.store.hints.rouse([]) == []
    assert await rig.store.hints.rouse([ONE]) == ids


async def test_more_workers_are_woken_than_one_statement_takes_and_no_more_than_needed(rig: Rig) -> None:
    ids = await resting(rig, 140, threads=1)
    assert await rig.store.hints.rouse([ONE._replace(count=130)]) == ids[:130]


@pytest.mark.parametrize("end", ["bury", "drain", "expire"])
async def test_a_worker_that_will_not_claim_swallows_no_wake_up(rig: Rig, sql: Connection, end: str) -> None:
    ended = await rig.worker(lease_ttl_s=0 if end == "expire" else 60)
    await rest(rig.store, ended)
    (living,) = await resting(rig, 1)
    if end == "bury":
        await rig.store.upkeep.bury([ended.id], "crashed")
    elif end == "drain":
        await rig.store.upkeep.drain([ended.id])
    assert await rig.store.hints.rouse([ONE]) == [living]
    assert living not in await in_line(sql)
    await rig.store.hints.rouse([ONE._replace(count=2)])
    assert await in_line(sql) == [], "and a look at several removes it"


# Resting. -------------------------------------------------------------------------------------------------------------


async def test_resting_again_keeps_the_place_in_the_line_and_says_what_is_free_now(rig: Rig, sql: Connection) -> None:
    first, second = [await rig.worker() for _ in range(2)]
    await rest(rig.store, first)
    await rest(rig.store, second)
    await rest(rig.store, first, free=3)
    assert await in_line(sql) == [first.id, second.id]
    assert await rig.store.hints.rouse([Want("default", "echo", threads=4)]) == [second.id]


async def test_a_worker_that_found_work_by_itself_goes_to_the_end_of_the_line(rig: Rig, sql: Connection) -> None:
    first, second = [await rig.worker() for _ in range(2)]
    await rest(rig.store, first)
    await rest(rig.store, second)
    await rest(rig.store, first, worked=True)
    assert await in_line(sql) == [second.id, first.id]


async def test_a_worker_that_left_is_not_woken(rig: Rig) -> None:
    first, second = await resting(rig, 2)
    await rig.store.hints.leave(first)
    await rig.store.hints.leave(uuid4())
    assert await rig.store.hints.rouse([ONE]) == [second]


async def test_nobody_waits_for_a_rouser_that_has_not_committed(rig: Rig, sql: Connection, ears: Ears) -> None:
    first, second = [await rig.worker() for _ in range(2)]
    await rest(rig.store, first)
    await rest(rig.store, second)
    await ears.to(channel(first.id))
    async with asyncio.timeout(5), sql.transaction():
        await sql.execute("set local lock_timeout = '1s'")
        taken = await sql.fetch(rig.store.postgres.sql["rouse"], json.dumps([ONE._asdict()]), 64, False)
        assert [row["woken"] for row in taken] == [[first.id]]
        await rest(rig.store, first)
        await rig.store.hints.leave(first.id)
        assert await rig.store.hints.rouse([ONE]) == [second.id]
    assert await ears.all_heard() == [(channel(first.id), "")]
    assert await in_line(sql) == []


async def test_of_many_rousers_at_once_each_wakes_another_worker(rig: Rig) -> None:
    ids = await resting(rig, 20, threads=1)
    woken = await asyncio.gather(*(rig.store.hints.rouse([ONE]) for _ in range(20)))
    everyone = [worker_id for some in woken for worker_id in some]
    assert sorted(everyone) == sorted(ids)


async def test_a_job_committed_while_a_worker_goes_to_rest_is_claimed_or_woken_for(rig: Rig) -> None:
    """The order of the two sides: rest, then claim; commit, then rouse. Whichever is second sees the other."""

    async def worker_side(worker: WorkerRig) -> bool:
        await rest(rig.store, worker, free=1)
        return bool(await worker.claim(1))

    async def submitter_side() -> bool:
        (stored,) = await rig.store.intake.enqueue([NewJob("echo")])
        return stored.woken or bool(await rig.store.hints.rouse([ONE]))

    for _ in range(50):
        worker = await rig.worker()
        claimed, woken = await asyncio.gather(worker_side(worker), submitter_side())
        assert claimed or woken
        if not claimed:
            assert await worker.claim(1)
        await rig.store.hints.leave(worker.id)


# By the commit of a single job. ---------------------------------------------------------------------------------------


async def test_a_single_job_wakes_the_worker_that_rests_longest_by_its_own_commit(rig: Rig, ears: Ears) -> None:
    first, second = await resting(rig, 2)
    await ears.to(channel(first), channel(second))
    answers = [(await rig.store.intake.enqueue([NewJob("echo")]))[0] for _ in range(3)]
    assert [answer.woken for answer in answers] == [True, True, False]
    assert await ears.all_heard() == [(channel(first), ""), (channel(second), "")]


@pytest.mark.parametrize("job", [NewJob("strange"), NewJob("echo", queue="other"), NewJob("echo", thread_demand=9)])
async def test_a_single_job_that_fits_no_idle_worker_is_stored_and_wakes_none(rig: Rig, job: NewJob) -> None:
    await resting(rig, 1, threads=8)
    (stored,) = await rig.store.intake.enqueue([job])
    assert not stored.woken
    assert (await rig.store.views.job(stored.id)).status in (Status.READY, Status.HELD)


async def test_a_repeated_id_wakes_nobody(rig: Rig, sql: Connection) -> None:
    (first,) = await rig.store.intake.enqueue([NewJob("echo")])
    await resting(rig, 1)
    (again,) = await rig.store.intake.enqueue([NewJob("echo", id=first.id)])
    assert (again.duplicate, again.woken) == (True, False)
    assert await sql.fetchval("select count(*) from windlass.idle") == 1


async def test_single_jobs_at_once_never_wait_for_who_wakes_by_his_commit(rig: Rig, sql: Connection) -> None:
    """NOTIFY makes commits wait for each other: only one transaction at a time may have it in it."""
    await resting(rig, 1)
    async with sql.transaction():
        await sql.execute("select pg_advisory_xact_lock($1)", WAKING)
        async with asyncio.timeout(5):
            (stored,) = await rig.store.intake.enqueue([NewJob("echo")])
    assert not stored.woken
    assert await rig.store.hints.rouse([ONE])


# Everyone, and supervisors. -------------------------------------------------------------------------------------------


async def test_a_call_to_all_is_heard_by_all(store: Store, ears: Ears) -> None:
    await ears.to(broadcast_channel(store.postgres.config.schema))
    await store.hints.call_all()
    assert await ears.all_heard() == [("windlass_all", "")]


async def test_a_call_in_a_callers_transaction_is_heard_once_and_only_if_it_commits(
    store: Store, sql: Connection, ears: Ears
) -> None:
    await ears.to(broadcast_channel(store.postgres.config.schema))
    undone = sql.transaction()
    await undone.start()
    await store.hints.call_all(connection=sql)
    await undone.rollback()
    async with sql.transaction():
        await store.hints.call_all(connection=sql)
        await store.hints.call_all(connection=sql)
        assert await ears.all_heard() == []
    assert await ears.all_heard() == [("windlass_all", "")]


async def test_the_supervisors_of_running_jobs_are_nudged_once_each(rig: Rig, ears: Ears) -> None:
    supervisor = uuid4()
    for n in range(2):
        new = NewWorker(uuid4(), f"w{n}", 1, [f"q{n}"], ["echo"], supervisor)
        await rig.store.upkeep.register(new, lease_ttl_s=60)
        await rig.enqueue(queue=f"q{n}")
        worker = WorkerRig(new.id, rig.store.claims(), 1, new.queues, new.types)
        assert await worker.claim()
    ready = await rig.job(Status.READY)
    alone = await rig.job(Status.RUNNING)  # its worker has no supervisor
    running = [job.id for job in (await rig.store.views.jobs()).jobs]
    await ears.to(channel(supervisor))
    assert await rig.store.hints.nudge([*running, ready, alone]) == {supervisor}
    assert await ears.all_heard() == [(channel(supervisor), "cancel")]


# Through Redis. -------------------------------------------------------------------------------------------------------


class Pushed(list[UUID]):
    """Who was told; what carries it is shown in tests/worker/test_popping.py."""

    async def push(self, worker_ids: Sequence[UUID]) -> None:
        self += worker_ids


async def test_who_pops_is_left_to_the_pusher_and_who_listens_is_notified(rig: Rig, ears: Ears) -> None:
    pushed = Pushed()
    popping, listening = await rig.worker(), await rig.worker()
    await ears.to(channel(popping.id), channel(listening.id))
    by = {popping.id: rig.store.hints.through(pushed, lambda: Ear.POPS), listening.id: rig.store.hints}
    for worker in (popping, listening):
        await by[worker.id].rest(worker.id, queues=worker.queues, types=worker.types, free=1)
    hints = rig.store.hints.through(pushed)
    assert await hints.rouse([ONE._replace(count=2)]) == [popping.id, listening.id]
    assert pushed == [popping.id]
    assert await ears.all_heard() == [(channel(listening.id), "")]
    await by[popping.id].rest(popping.id, queues=popping.queues, types=popping.types, free=1)
    await hints.call_all()
    assert pushed == [popping.id] * 2
