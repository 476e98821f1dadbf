"""Jobs that are handed to a worker: begun at once, given back if they cannot be or were not heard of, and never begun twice."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from tests.eventually import aeventually
from tests.worker.placed import SOON, Placed, placed, types_of
from windlass.bus.protocol import RECONNECTED
from windlass.clock import steady_s
from windlass.config import StoreConfig
from windlass.model import Enqueued, Lease, NewJob, Status
from windlass.store.postgres import Connection
from windlass.store.protocol import Ask, channel
from windlass.store.store import Store

PATIENT = replace(SOON, poll_s=60)
LOSE_LISTENERS = """
select pg_terminate_backend(l.pid) from pg_locks l
where l.locktype = 'advisory' and l.mode = 'ShareLock' and l.database = (select oid from pg_database where datname = current_database())
"""
ran: list[int] = []


async def count(n: int) -> int:
    ran.append(n)
    return n


@pytest.fixture(autouse=True)
def _anew() -> None:
    ran.clear()


async def rests(sql: Connection, *, with_key: bool = True) -> None:
    """Until the one worker is in line."""

    async def there() -> bool:
        rows = await sql.fetch("select hand_key is not null as key from windlass.idle")
        return [row["key"] for row in rows] == [with_key]

    await aeventually(there)


async def submit(store: Store, n: int = 1, type_: str = "count") -> UUID:
    (stored,) = await store.intake.enqueue([NewJob(type_, {"n": n})])
    return stored.id


async def notification(sql: Connection, worker: Placed, n: int = 1) -> tuple[UUID, str]:
    """A job that is handed to this worker, and what it would be told. Nobody listens, so nobody is."""
    heard: list[str] = []
    name = channel(worker.post.hand_key)

    def hear(_connection: Any, _pid: int, _name: str, said: object) -> None:
        heard.append(str(said))

    await sql.add_listener(name, hear)
    job_id = await submit(worker.store, n)

    async def arrived() -> bool:
        await sql.execute("select")  # its answer comes after what was said before
        return bool(heard)

    await aeventually(arrived)
    await sql.remove_listener(name, hear)
    assert str(job_id) in heard[0]
    return job_id, heard[0]


def told(worker: Placed, said: str) -> None:
    """The notification comes after all."""
    worker.worker.hear(channel(worker.post.hand_key), said)


def searching(worker: Placed, meanwhile: Callable[[], None]) -> None:
    """At the next search for strays: what was found is answered only after this has happened."""
    claims = worker.worker._claims
    strays = claims.strays

    async def found(*args: Any, **options: Any) -> list[Lease]:
        claims.strays = strays  # type: ignore[method-assign]
        leases = await strays(*args, **options)
        meanwhile()
        return leases

    claims.strays = found  # type: ignore[method-assign]


# Begun. ---------------------------------------------------------------------------------------------------------------


async def test_a_job_on_an_idle_system_is_begun_without_a_claim(config: StoreConfig, sql: Connection) -> None:
    async with placed(config, types_of(count), worker=PATIENT, listening=True) as worker:
        claims, brought = worker.worker._claims, []
        claim = claims.claim

        async def watched(ask: Ask) -> list[Lease]:
            leases = await claim(ask)
            brought.extend(leases)
            return leases

        claims.claim = watched  # type: ignore[method-assign]
        for n in range(5):
            await rests(sql)
            job = await worker.reaches(await submit(worker.store, n), Status.COMPLETED)
            assert (job.attempt, job.result, job.worker_id) == (1, str(n), worker.worker_id)
        assert not brought
    assert ran == [0, 1, 2, 3, 4]


async def test_a_worker_with_a_job_at_work_is_only_told(config: StoreConfig, sql: Connection) -> None:
    go = asyncio.Event()

    async def wait() -> None:
        await go.wait()

    async with placed(config, types_of(wait, count), worker=PATIENT, listening=True) as worker:
        await rests(sql)
        (first,) = await worker.store.intake.enqueue([NewJob("wait")])
        await rests(sql, with_key=False)
        job = await worker.reaches(await submit(worker.store), Status.COMPLETED)
        assert job.attempt == 1
        go.set()
        await worker.reaches(first.id, Status.COMPLETED)
        await rests(sql)


# Not heard of. --------------------------------------------------------------------------------------------------------


async def test_a_hand_over_whose_notification_is_lost_is_found_at_the_next_polls(
    config: StoreConfig, sql: Connection
) -> None:
    async with placed(config, types_of(count), deaf=True) as worker:
        await rests(sql)
        job = await worker.reaches(await submit(worker.store), Status.COMPLETED)
        assert (job.attempt, job.failures) == (2, 0)
    assert ran == [1]


async def test_after_notifications_may_have_been_missed_hand_overs_are_looked_for(
    config: StoreConfig, sql: Connection
) -> None:
    async with placed(config, types_of(count), worker=PATIENT, deaf=True) as worker:
        await rests(sql)
        job_id = await submit(worker.store)
        assert (await worker.store.views.job(job_id)).status is Status.RUNNING
        worker.worker.hear("any", RECONNECTED)
        assert (await worker.reaches(job_id, Status.COMPLETED)).failures == 0
    assert ran == [1]


async def test_a_notification_that_comes_after_its_job_was_given_back_begins_nothing(
    config: StoreConfig, sql: Connection, caplog: pytest.LogCaptureFixture
) -> None:
    async with placed(config, types_of(count), deaf=True) as worker:
        await rests(sql)
        job_id, said = await notification(sql, worker)
        await worker.reaches(job_id, Status.COMPLETED)
        told(worker, said)
        await worker.run("count", {"n": 2})
    assert ran == [1, 2]
    assert "lease was lost" not in caplog.text


@pytest.mark.parametrize("young", [False, True])
async def test_a_notification_that_comes_during_a_search_for_strays_begins_its_job_once(
    config: StoreConfig, sql: Connection, caplog: pytest.LogCaptureFixture, *, young: bool
) -> None:
    """Whether the search takes it for a stray or finds it too young to be one."""
    async with placed(config, types_of(count), worker=PATIENT, deaf=True) as worker:
        await rests(sql)
        job_id, said = await notification(sql, worker)
        searching(worker, lambda: told(worker, said))
        await worker.worker._claimer.give_back_strays(older_than_s=3600 if young else 1e-9)
        worker.worker.hint()
        assert (await worker.reaches(job_id, Status.COMPLETED)).attempt == (1 if young else 2)
    assert ran == [1]
    assert "lease was lost" not in caplog.text


async def test_of_two_searches_at_once_neither_gives_back_what_has_been_begun(
    config: StoreConfig, sql: Connection
) -> None:
    async with placed(config, types_of(count), worker=PATIENT, deaf=True) as worker:
        await rests(sql)
        job_id, said = await notification(sql, worker)
        claimer = worker.worker._claimer
        nested: list[asyncio.Task[None]] = []

        def meanwhile() -> None:  # the first search is answered while the second is on its way
            nested.append(asyncio.create_task(claimer.give_back_strays(older_than_s=3600)))
            told(worker, said)

        searching(worker, meanwhile)
        await claimer.give_back_strays(older_than_s=3600)
        await asyncio.gather(*nested)
        assert (await worker.reaches(job_id, Status.COMPLETED)).attempt == 1
    assert ran == [1]


async def test_a_search_that_fails_leaves_what_was_handed_over_meanwhile_to_be_begun(
    config: StoreConfig, sql: Connection
) -> None:
    async with placed(config, types_of(count), worker=PATIENT, deaf=True) as worker:
        await rests(sql)
        job_id, said = await notification(sql, worker)

        def meanwhile() -> None:
            told(worker, said)
            raise OSError("the connection is lost")

        searching(worker, meanwhile)
        with pytest.raises(OSError, match="is lost"):
            await worker.worker._claimer.give_back_strays(older_than_s=3600)
        assert (await worker.reaches(job_id, Status.COMPLETED)).attempt == 1
    assert ran == [1]


async def test_of_jobs_submitted_while_listeners_are_lost_each_is_begun_once(
    config: StoreConfig, sql: Connection
) -> None:
    draw = random.Random(7)
    async with AsyncExitStack() as stack:
        workers = [
            await stack.enter_async_context(placed(config, types_of(count), threads=threads, listening=True))
            for threads in (1, 2, 4)
        ]
        store = workers[0].store
        for n in range(400):
            await submit(store, n)
            if draw.random() < 0.05:
                await sql.execute(LOSE_LISTENERS)
            elif draw.random() < 0.1:
                claimer = draw.choice(workers).worker._claimer
                await claimer.give_back_strays(older_than_s=draw.choice([1e-9, 0.5]))

        async def done() -> bool:
            return (await store.views.counts()).get(("default", "count", Status.COMPLETED)) == 400

        await aeventually(done, 30)
    assert sorted(ran) == list(range(400))


# Not to be begun. -----------------------------------------------------------------------------------------------------


async def test_a_worker_that_drains_gives_back_what_it_is_handed(config: StoreConfig, sql: Connection) -> None:
    go = asyncio.Event()

    async def wait() -> None:
        await go.wait()

    async with placed(config, types_of(wait, count), worker=PATIENT, deaf=True) as worker:
        await rests(sql)
        job_id, said = await notification(sql, worker)
        held = await worker.enqueue("wait")
        await worker.reaches(held, Status.RUNNING)
        worker.worker.drain()
        told(worker, said)
        job = await worker.reaches(job_id, Status.READY)
        assert job.failures == 0
        go.set()
        await worker.reaches(held, Status.COMPLETED)
    assert ran == []


async def test_a_worker_without_room_gives_back_what_it_is_handed(config: StoreConfig, sql: Connection) -> None:
    go = asyncio.Event()

    async def wait() -> None:
        await go.wait()

    async with placed(config, types_of(wait, count), threads=1, worker=PATIENT, deaf=True) as worker:
        await rests(sql)
        job_id, said = await notification(sql, worker)
        held = await worker.enqueue("wait")
        await worker.reaches(held, Status.RUNNING)
        told(worker, said)
        await worker.reaches(job_id, Status.READY)
        go.set()
        assert (await worker.reaches(job_id, Status.COMPLETED)).failures == 0
    assert ran == [1]


async def test_a_worker_whose_lease_is_over_begins_nothing_that_was_handed_to_it(
    config: StoreConfig, sql: Connection
) -> None:
    """It was frozen, say, and others have its jobs since."""
    async with placed(config, types_of(count), worker=PATIENT, deaf=True) as worker:
        await rests(sql)
        _, said = await notification(sql, worker)
        worker.slots.lease_until_s = steady_s() - 1
        told(worker, said)
        assert not worker.worker.desk.held()
        await asyncio.wait_for(worker.task, 10)
    assert ran == []


async def test_a_job_that_was_cancelled_before_its_worker_heard_of_it_is_not_begun(
    config: StoreConfig, sql: Connection
) -> None:
    async with placed(config, types_of(count), worker=PATIENT, deaf=True) as worker:
        await rests(sql)
        job_id, said = await notification(sql, worker)
        await worker.cancel(job_id)

        async def asked() -> bool:
            return bool(worker.worker._early_cancels)

        await aeventually(asked)
        told(worker, said)
        await worker.reaches(job_id, Status.CANCELLED)
    assert ran == []


# Who is handed a job. -------------------------------------------------------------------------------------------------


def resting(worker: Placed, after: Callable[[dict[str, Any]], Awaitable[None]]) -> None:
    """After each rest, and before the worker has its answer, this happens."""
    hints = worker.worker._claimer._hints
    rest = hints.rest

    async def slow(worker_id: UUID, **said: Any) -> int:
        had = await rest(worker_id, **said)
        await after(said)
        return had

    hints.rest = slow  # type: ignore[method-assign]


async def test_a_full_worker_is_not_in_line_though_it_lay_down_again_before_it_heard_of_its_job(
    config: StoreConfig, sql: Connection
) -> None:
    """It would be handed the next one, which could wait there for as long as the first holds up the loop."""
    go, lying = asyncio.Event(), asyncio.Event()

    async def wait() -> None:
        await go.wait()

    async with placed(config, types_of(wait, count), threads=1, deaf=True) as worker:
        await rests(sql)
        heard: list[str] = []
        name = channel(worker.post.hand_key)
        await sql.add_listener(name, lambda *heard_: heard.append(str(heard_[-1])))

        async def late(_said: dict[str, Any]) -> None:
            await sql.execute("select")
            if heard:
                told(worker, heard.pop())
                lying.set()

        resting(worker, late)
        (first,) = await worker.store.intake.enqueue([NewJob("wait")])
        await asyncio.wait_for(lying.wait(), 10)

        async def begun() -> bool:
            return bool(worker.worker.desk.runs)

        await aeventually(begun)
        assert not await sql.fetch("select from windlass.idle"), "before it began"
        second = await submit(worker.store)
        assert (await worker.store.views.job(second)).status is Status.READY
        go.set()
        assert (await worker.reaches(first.id, Status.COMPLETED)).attempt == 1
        await worker.reaches(second, Status.COMPLETED)


async def test_a_wide_job_that_waits_for_all_threads_is_not_passed_by_one_that_is_handed_over(
    config: StoreConfig, sql: Connection
) -> None:
    go, order = asyncio.Event(), []

    async def first() -> None:
        await go.wait()

    async def wide() -> None:
        order.append("wide")

    async def narrow() -> None:
        order.append("narrow")

    async with placed(config, types_of(first, wide, narrow), worker=PATIENT, listening=True) as worker:
        await rests(sql)
        await worker.store.intake.enqueue([NewJob("first")])
        await rests(sql, with_key=False)
        (waits,) = await worker.store.intake.enqueue([NewJob("wide", thread_demand=4, priority=100)])
        await rests(sql, with_key=False)

        async def submit_narrow(said: dict[str, Any]) -> None:
            if said["free"] == 4 and not submitted:
                submitted.extend(await worker.store.intake.enqueue([NewJob("narrow", priority=-100)]))

        submitted: list[Enqueued] = []
        resting(worker, submit_narrow)
        go.set()
        await worker.reaches(waits.id, Status.COMPLETED)
        await aeventually(lambda: _is(bool(submitted)))
        await worker.reaches(submitted[0].id, Status.COMPLETED)
    assert order == ["wide", "narrow"]


async def test_a_worker_that_has_not_looked_for_some_polls_is_handed_nothing(
    config: StoreConfig, sql: Connection
) -> None:
    """Dead, or frozen: what is handed to it would wait for the end of its lease."""
    async with placed(config, types_of(count), deaf=True) as worker:
        await rests(sql)
        worker.worker._claimer._hints.rest = _for_ever  # type: ignore[method-assign]

        async def silent() -> bool:
            return bool(await sql.fetchval("select hand_until < now() from windlass.idle"))

        await aeventually(silent)
        assert (await worker.store.views.job(await submit(worker.store))).status is Status.READY


async def test_a_worker_that_did_not_hear_of_a_job_is_handed_none_until_it_hears_again(
    config: StoreConfig, sql: Connection
) -> None:
    async with placed(config, types_of(count), deaf=True) as worker:
        await rests(sql)
        await worker.reaches(await submit(worker.store), Status.COMPLETED)
        await rests(sql, with_key=False)
        worker.worker.hear("any", RECONNECTED)
        await rests(sql)


async def test_that_hints_were_missed_is_heeded_at_whatever_moment_it_is_said(
    config: StoreConfig, sql: Connection
) -> None:
    async with placed(config, types_of(count), worker=PATIENT, deaf=True) as worker:
        await rests(sql)
        handed: list[UUID] = []

        async def lose_one(_said: dict[str, Any]) -> None:
            if not handed:
                handed.append(await submit(worker.store))
                worker.worker.hear("any", RECONNECTED)

        resting(worker, lose_one)
        worker.worker.hint()
        await aeventually(lambda: _is(bool(handed)))
        await worker.reaches(handed[0], Status.COMPLETED)
    assert ran == [1]


async def test_a_stray_that_is_found_beside_the_claim_loop_is_claimed_at_once(
    config: StoreConfig, sql: Connection
) -> None:
    async with placed(config, types_of(count), worker=PATIENT, deaf=True) as worker:
        await rests(sql)
        job_id = await submit(worker.store)
        await worker.worker._claimer.give_back_strays(older_than_s=1e-9)
        await worker.reaches(job_id, Status.COMPLETED)


@pytest.mark.parametrize("name", ["its own", "everyone's"])
async def test_what_is_said_where_anyone_can_say_it_begins_nothing(
    config: StoreConfig, sql: Connection, name: str
) -> None:
    """Anyone who may connect may notify: neither a lease, nor the word that hints were missed."""
    async with placed(config, types_of(count), worker=PATIENT, deaf=True) as worker:
        await rests(sql)
        job_id, said = await notification(sql, worker)
        known = channel(worker.worker_id) if name == "its own" else "windlass_all"
        worker.worker.hear(known, said)
        worker.worker.hear(known, b"reconnected".decode())
        await rests(sql)
        assert (await worker.store.views.job(job_id)).status is Status.RUNNING
        assert not ran
        told(worker, said)
        assert (await worker.reaches(job_id, Status.COMPLETED)).attempt == 1


async def _for_ever(*_: object, **__: object) -> int:
    await asyncio.Event().wait()
    return 0


async def _is(what: bool) -> bool:
    return what
