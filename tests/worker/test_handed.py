"""Jobs that are handed to a worker: begun at once, or given back if they cannot be; and who is handed none."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import psycopg
import pytest

from tests.eventually import aeventually
from tests.worker.handing import PATIENT, Handed, Handlers, handed
from tests.worker.placed import SOON, placed, types_of
from windlass.bus.postgres import PostgresWaker
from windlass.bus.protocol import RECONNECTED
from windlass.clock import steady_s
from windlass.config import StoreConfig
from windlass.model import Enqueued, Lease, NewJob, Status
from windlass.store.postgres import Connection
from windlass.store.protocol import Ask, channel
from windlass.store.store import Store


@pytest.fixture
async def deaf(config: StoreConfig, sql: Connection) -> AsyncIterator[Handed]:
    """Told by the test alone."""
    async with handed(config, sql) as worker:
        yield worker


@pytest.fixture
async def listening(config: StoreConfig, store: Store, sql: Connection) -> AsyncIterator[Handed]:
    """As workers are: woken by who stores a job, and waking others for what they give back."""
    waker = PostgresWaker(store.hints)
    async with handed(config, sql, deaf=False, listening=True, waker=waker) as worker:
        yield worker
    await waker.aclose()


# Begun. ---------------------------------------------------------------------------------------------------------------


async def test_a_job_on_an_idle_system_is_begun_without_a_claim(listening: Handed) -> None:
    claims, brought = listening.site.worker._claims, []
    claim = claims.claim

    async def watched(ask: Ask) -> list[Lease]:
        leases = await claim(ask)
        brought.extend(leases)
        return leases

    claims.claim = watched  # type: ignore[method-assign]
    for n in range(5):
        await listening.rests()
        job = await listening.site.reaches(await listening.submit(n), Status.COMPLETED)
        assert (job.attempt, job.result, job.worker_id) == (1, str(n), listening.site.worker_id)
    assert not brought
    assert listening.ran == [0, 1, 2, 3, 4]


# Not to be begun. -----------------------------------------------------------------------------------------------------


async def test_a_worker_that_drains_gives_back_what_it_is_handed(deaf: Handed) -> None:
    job_id, said = await deaf.notification()
    held = await deaf.begin_waiting()
    deaf.site.worker.drain()
    deaf.told(said)
    assert (await deaf.site.reaches(job_id, Status.READY)).failures == 0
    deaf.handlers.go.set()
    await deaf.site.reaches(held, Status.COMPLETED)
    assert deaf.ran == []


async def test_a_worker_without_room_gives_back_what_it_is_handed(config: StoreConfig, sql: Connection) -> None:
    async with handed(config, sql, threads=1) as deaf:
        job_id, said = await deaf.notification()
        await deaf.begin_waiting()
        deaf.told(said)
        assert not deaf.site.worker.desk.waiting(), "it never came to the desk"
        await deaf.site.reaches(job_id, Status.READY)
        deaf.handlers.go.set()
        assert (await deaf.site.reaches(job_id, Status.COMPLETED)).failures == 0
    assert deaf.ran == [1]


async def test_what_is_handed_over_while_a_claim_is_on_its_way_begins_only_if_it_fits_beside_that(
    config: StoreConfig, sql: Connection
) -> None:
    async with handed(config, sql, threads=1) as deaf:
        job_id, said = await deaf.notification()
        deaf.before_a_claim_is_answered(lambda: deaf.told(said))
        await deaf.begin_waiting()
        await deaf.site.reaches(job_id, Status.READY)
        assert not deaf.ran
        assert len(deaf.site.worker.desk.held()) == 1


async def test_a_worker_whose_lease_is_over_begins_nothing_that_was_handed_to_it(deaf: Handed) -> None:
    """It was frozen, say, and others have its jobs since."""
    _, said = await deaf.notification()
    deaf.site.slots.lease_until_s = steady_s() - 1
    deaf.told(said)
    assert not deaf.site.worker.desk.held()
    await asyncio.wait_for(deaf.site.task, 10)
    assert deaf.ran == []


async def test_a_job_that_was_cancelled_before_its_worker_heard_of_it_is_not_begun(deaf: Handed) -> None:
    job_id, said = await deaf.notification()
    await deaf.site.cancel(job_id)

    async def asked() -> bool:
        return bool(deaf.site.worker._early_cancels)

    await aeventually(asked)
    deaf.told(said)
    await deaf.site.reaches(job_id, Status.CANCELLED)
    assert deaf.ran == []


@pytest.mark.parametrize("whose", ["its own", "everyone's"])
async def test_what_is_said_where_anyone_can_say_it_begins_nothing(deaf: Handed, whose: str) -> None:
    """Anyone who may connect may notify: neither a lease, nor the word that hints were missed."""
    job_id, said = await deaf.notification()
    known = channel(deaf.site.worker_id) if whose == "its own" else "windlass_all"
    deaf.site.worker.hear(known, said)
    deaf.site.worker.hear(known, b"reconnected".decode())
    await deaf.rests()
    assert (await deaf.store.views.job(job_id)).status is Status.RUNNING
    assert not deaf.ran
    deaf.told(said)
    assert (await deaf.site.reaches(job_id, Status.COMPLETED)).attempt == 1


# Who is handed none. --------------------------------------------------------------------------------------------------


async def test_a_worker_with_a_job_at_work_is_only_told(listening: Handed) -> None:
    first = await listening.begin_waiting()
    await listening.rests(with_key=False)
    assert (await listening.site.reaches(await listening.submit(), Status.COMPLETED)).attempt == 1
    listening.handlers.go.set()
    await listening.site.reaches(first, Status.COMPLETED)
    await listening.rests()


async def test_a_full_worker_is_not_in_line_though_it_lay_down_again_before_it_heard_of_its_job(
    config: StoreConfig, sql: Connection
) -> None:
    """It would be handed the next one, which could wait there for as long as the first holds up the loop."""
    async with handed(config, sql, threads=1, worker=SOON) as deaf, deaf.listening() as heard:
        lay_down = asyncio.Event()

        async def late(_said: dict[str, Any]) -> None:
            if heard:
                deaf.told(heard.pop())
                lay_down.set()

        deaf.before_a_rest_is_answered(late)
        (first,) = await deaf.store.intake.enqueue([NewJob("wait")])
        await asyncio.wait_for(lay_down.wait(), 10)

        async def begun_and_out_of_line() -> bool:
            return bool(deaf.site.worker.desk.runs) and not await sql.fetch("select from windlass.idle")

        await aeventually(begun_and_out_of_line)
        second = await deaf.submit()
        assert (await deaf.store.views.job(second)).status is Status.READY
        deaf.handlers.go.set()
        assert (await deaf.site.reaches(first.id, Status.COMPLETED)).attempt == 1
        await deaf.site.reaches(second, Status.COMPLETED)


@pytest.mark.parametrize("how", ["handed", "claimed", "heard of while it lies down", "heard of while it looks"])
async def test_a_handler_that_holds_up_the_loop_finds_its_worker_out_of_the_line(
    config: StoreConfig, sql: Connection, url: str, how: str
) -> None:
    """Another job would be handed to it, and wait for as long as this one does not let go."""

    async def block() -> int:
        with psycopg.connect(url) as connection:
            found = connection.execute("select count(hand_key) from windlass.idle").fetchone()
            return int(found[0]) if found else -1

    listening = how == "handed"
    async with placed(config, types_of(block), worker=PATIENT, deaf=not listening, listening=listening) as site:
        worker = Handed(site, Handlers(), sql)
        await worker.rests()
        if how == "claimed":
            stored, _ = await site.store.intake.enqueue([NewJob("block")] * 2)
        elif how == "handed":
            (stored,) = await site.store.intake.enqueue([NewJob("block")])
        else:
            async with worker.listening() as heard:
                (stored,) = await site.store.intake.enqueue([NewJob("block")])
                await aeventually(lambda: worker.has(heard))

            async def late(_said: dict[str, Any]) -> None:
                if how == "heard of while it lies down" and heard:
                    worker.told(heard.pop())
                elif heard:
                    worker.before_a_claim_is_answered(lambda: worker.told(heard.pop()))

            worker.before_a_rest_is_answered(late)
        if not listening:
            site.worker.hint()
        assert (await site.reaches(stored.id, Status.COMPLETED)).result == "0"


@pytest.mark.parametrize("threads", [1, 4])
async def test_a_worker_whose_job_has_ended_can_be_handed_the_next_at_once(
    config: StoreConfig, sql: Connection, threads: int
) -> None:
    """Not at its next poll, in a minute; after quick jobs too, of which it claims more than it has threads for."""
    async with handed(config, sql, threads=threads, deaf=False, listening=True) as listening:
        await listening.store.intake.enqueue([NewJob("count", {"n": n}) for n in range(300)])
        listening.site.worker.hint()

        async def all_ran() -> bool:
            return len(listening.ran) == 300

        await aeventually(all_ran)
        for _ in range(10):
            await listening.rests()
            await listening.site.reaches(await listening.submit(), Status.COMPLETED)


async def test_a_wide_job_that_waits_for_all_threads_is_not_passed_by_one_that_is_handed_over(
    listening: Handed,
) -> None:
    """In the moment between its worker lying down with all threads free, and looking."""
    await listening.begin_waiting()
    await listening.rests(with_key=False)
    await listening.store.intake.enqueue([NewJob("count", {"n": 1}, thread_demand=4, priority=100)])
    narrow: list[Enqueued] = []

    async def submit_narrow(said: dict[str, Any]) -> None:
        if said["free"] == 4 and not narrow:
            narrow.extend(await listening.store.intake.enqueue([NewJob("count", {"n": 2}, priority=-100)]))

    listening.before_a_rest_is_answered(submit_narrow)
    listening.handlers.go.set()

    async def both_ran() -> bool:
        return len(listening.ran) == 2

    await aeventually(both_ran)
    assert listening.ran == [1, 2]


async def test_a_worker_that_has_not_looked_for_some_polls_is_handed_nothing(
    config: StoreConfig, sql: Connection
) -> None:
    """Dead, or frozen: what is handed to it would wait for the end of its lease."""
    async with handed(config, sql, worker=SOON) as deaf:

        async def for_ever(_said: dict[str, Any]) -> None:
            await asyncio.Event().wait()

        deaf.before_a_rest_is_answered(for_ever)

        async def silent() -> bool:
            return bool(await sql.fetchval("select hand_until < now() from windlass.idle"))

        await aeventually(silent)
        assert (await deaf.store.views.job(await deaf.submit())).status is Status.READY


async def test_a_worker_that_did_not_hear_of_a_job_is_handed_none_until_it_hears_again(
    config: StoreConfig, sql: Connection
) -> None:
    async with handed(config, sql, worker=SOON) as deaf:
        await deaf.site.reaches(await deaf.submit(), Status.COMPLETED)
        await deaf.rests(with_key=False)
        deaf.site.worker.hear("any", RECONNECTED)
        await deaf.rests()
