"""Jobs whose worker did not hear of them, or too late: given back, begun once, never lost."""

import asyncio
import random
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack
from typing import Any
from uuid import UUID

import pytest

from tests.eventually import aeventually
from tests.worker.handing import Handed, Handlers, handed, submit
from tests.worker.placed import SOON, placed, types_of
from windlass.bus.protocol import RECONNECTED
from windlass.config import StoreConfig
from windlass.model import Lease, NewJob, Status, Want
from windlass.store.postgres import Connection
from windlass.store.protocol import Ask

LOSE_LISTENERS = """
select pg_terminate_backend(l.pid) from pg_locks l join pg_database d on d.oid = l.database
where l.locktype = 'advisory' and l.mode = 'ShareLock' and d.datname = current_database()
"""


@pytest.fixture
async def deaf(config: StoreConfig, sql: Connection) -> AsyncIterator[Handed]:
    async with handed(config, sql) as worker:
        yield worker


@pytest.fixture
async def polling(config: StoreConfig, sql: Connection) -> AsyncIterator[Handed]:
    """As deaf, and polls as often as it can."""
    async with handed(config, sql, worker=SOON) as worker:
        yield worker


async def test_a_hand_over_whose_notification_is_lost_is_found_at_the_next_polls(polling: Handed) -> None:
    job = await polling.site.reaches(await polling.submit(), Status.COMPLETED)
    assert (job.attempt, job.failures) == (2, 0)
    assert polling.ran == [1]


async def test_after_notifications_may_have_been_missed_hand_overs_are_looked_for(deaf: Handed) -> None:
    job_id = await deaf.submit()
    assert (await deaf.store.views.job(job_id)).status is Status.RUNNING
    deaf.site.worker.hear("any", RECONNECTED)
    assert (await deaf.site.reaches(job_id, Status.COMPLETED)).failures == 0
    assert deaf.ran == [1]


async def test_that_they_were_missed_is_heeded_at_whatever_moment_it_is_said(deaf: Handed) -> None:
    lost: list[UUID] = []

    async def lose_one(_said: dict[str, Any]) -> None:
        if not lost:
            lost.append(await deaf.submit())
            deaf.site.worker.hear("any", RECONNECTED)

    deaf.before_a_rest_is_answered(lose_one)
    deaf.site.worker.hint()

    async def has_lost() -> bool:
        return bool(lost)

    await aeventually(has_lost)
    await deaf.site.reaches(lost[0], Status.COMPLETED)
    assert deaf.ran == [1]


async def test_a_notification_that_comes_after_its_job_was_given_back_begins_nothing(
    polling: Handed, caplog: pytest.LogCaptureFixture
) -> None:
    job_id, said = await polling.notification()
    await polling.site.reaches(job_id, Status.COMPLETED)
    polling.told(said)
    await polling.site.run("count", {"n": 2})
    assert polling.ran == [1, 2]
    assert "lease was lost" not in caplog.text


@pytest.mark.parametrize("young", [False, True])
async def test_a_notification_that_comes_during_a_search_begins_its_job_once(
    deaf: Handed, caplog: pytest.LogCaptureFixture, *, young: bool
) -> None:
    """Whether the search takes it for a stray or finds it too young to be one."""
    job_id, said = await deaf.notification()
    deaf.before_a_search_is_answered(lambda: deaf.told(said))
    await deaf.site.worker._claimer.give_back_strays(older_than_s=3600 if young else 1e-9)
    assert (await deaf.site.reaches(job_id, Status.COMPLETED)).attempt == (1 if young else 2)
    assert deaf.ran == [1]
    assert "lease was lost" not in caplog.text


async def test_of_two_searches_at_once_neither_gives_back_what_has_been_begun(deaf: Handed) -> None:
    job_id, said = await deaf.notification()
    claimer = deaf.site.worker._claimer
    second: list[asyncio.Task[int]] = []

    def meanwhile() -> None:  # the first search is answered while the second is on its way
        second.append(asyncio.create_task(claimer.give_back_strays(older_than_s=3600)))
        deaf.told(said)

    deaf.before_a_search_is_answered(meanwhile)
    await claimer.give_back_strays(older_than_s=3600)
    await asyncio.gather(*second)
    assert (await deaf.site.reaches(job_id, Status.COMPLETED)).attempt == 1
    assert deaf.ran == [1]


@pytest.mark.parametrize("answered", [True, False])
async def test_what_a_claim_brings_while_a_search_is_on_its_way_is_no_stray(deaf: Handed, *, answered: bool) -> None:
    """Whether its answer is here when that of the search comes, or is on its way."""
    claims, let_go = deaf.site.worker._claims, asyncio.Event()
    claim, strays = claims.claim, claims.strays

    async def slow(ask: Ask) -> list[Lease]:
        leases = await claim(ask)
        if leases and not answered:
            await let_go.wait()
        return leases

    async def late(*args: Any, **options: Any) -> list[Lease]:
        claims.strays = strays  # type: ignore[method-assign]  # the worker's own search may come meanwhile
        await deaf.store.intake.enqueue([NewJob("wait")] * 2)  # two: one would be handed over
        deaf.site.worker.hint()
        await aeventually(lambda: begun(2 if answered else 0))
        return await strays(*args, **options)

    async def begun(count: int) -> bool:
        running: int = await deaf.sql.fetchval("select count(*) from windlass.running")
        return (running, len(deaf.site.worker.desk.runs)) == (2, count)

    claims.claim, claims.strays = slow, late  # type: ignore[method-assign]
    assert await deaf.site.worker._claimer.give_back_strays(older_than_s=1e-9) == 0
    let_go.set()
    await aeventually(lambda: begun(2))


async def test_a_search_that_fails_leaves_what_was_handed_over_meanwhile_to_be_begun(deaf: Handed) -> None:
    job_id, said = await deaf.notification()

    def meanwhile() -> None:
        deaf.told(said)
        raise OSError("the connection is lost")

    deaf.before_a_search_is_answered(meanwhile)
    with pytest.raises(OSError, match="is lost"):
        await deaf.site.worker._claimer.give_back_strays(older_than_s=3600)
    assert (await deaf.site.reaches(job_id, Status.COMPLETED)).attempt == 1
    assert deaf.ran == [1]


async def test_a_stray_that_is_found_beside_the_claim_loop_is_claimed_at_once(deaf: Handed) -> None:
    job_id = await deaf.submit()
    await deaf.site.worker._claimer.give_back_strays(older_than_s=1e-9)
    await deaf.site.reaches(job_id, Status.COMPLETED)


async def test_others_are_woken_for_strays_that_go_back(config: StoreConfig, sql: Connection) -> None:
    """The worker that had them may be full."""
    woken = Woken()
    async with handed(config, sql, threads=1, waker=woken) as deaf:
        await deaf.submit()
        await deaf.begin_waiting()
        await deaf.site.worker._claimer.give_back_strays(older_than_s=1e-9)
        assert woken == [Want("default", "count")]


class Woken(list[Want]):
    def wake(self, wants: Iterable[Want]) -> None:
        self.extend(wants)

    def wake_workers(self, worker_ids: Iterable[UUID]) -> None:
        """Nobody does."""

    def wake_all(self) -> None:
        """Nobody does."""

    def nudge(self, job_ids: Iterable[UUID]) -> None:
        """Nobody does."""


async def test_of_jobs_submitted_while_listeners_are_lost_each_is_begun_once(
    config: StoreConfig, sql: Connection
) -> None:
    draw, handlers = random.Random(7), Handlers()
    async with AsyncExitStack() as stack:
        sites = [
            await stack.enter_async_context(placed(config, types_of(handlers.count), threads=n, listening=True))
            for n in (1, 2, 4)
        ]
        store = sites[0].store
        for n in range(400):
            await submit(store, n)
            if draw.random() < 0.05:
                await sql.execute(LOSE_LISTENERS)
            elif draw.random() < 0.1:
                claimer = draw.choice(sites).worker._claimer
                await claimer.give_back_strays(older_than_s=draw.choice([1e-9, 0.5]))

        async def done() -> bool:
            return (await store.views.counts()).get(("default", "count", Status.COMPLETED)) == 400

        await aeventually(done, 30)
    assert sorted(handlers.ran) == list(range(400))
