"""What event streams tell, on a real store: the newest state, whenever it changed, and only what the client lacks."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any
from uuid import uuid4

import asyncpg
import msgspec
import pytest

from tests.eventually import aeventually
from tests.factory import Rig
from windlass.api.events import Event, Events, Stream, Topic, queues_fact, topics, workers_fact
from windlass.config import ApiConfig, Config
from windlass.errors import Unavailable
from windlass.lifecycle import Completed
from windlass.model import Status
from windlass.store.store import Store


@pytest.fixture
async def events(store: Store) -> AsyncIterator[Events]:
    async with Events(store.views, Config(api=ApiConfig(streams_max=3)), least_s=0.02, most_s=0.05) as events:
        yield events


@asynccontextmanager
async def listening(events: Events, *wanted: Topic, **options: Any) -> AsyncIterator[Stream]:
    stream = events.open(wanted or topics, **options)
    try:
        yield stream
    finally:
        events.leave(stream)


async def heard(events: Events, stream: Stream) -> list[Event]:
    async with asyncio.timeout(10):
        return await events.next(stream)


def data(event: Event) -> Any:
    return msgspec.json.decode(event.data)


async def stays_silent(events: Events, stream: Stream) -> bool:
    """Nothing is told while the reader looks twice more."""
    looks = events.looks
    waiting = asyncio.create_task(events.next(stream))

    async def looked() -> bool:
        return events.looks > looks + 2

    await aeventually(looked)
    silent = not waiting.done()
    waiting.cancel()
    return silent


async def test_a_stream_begins_with_the_whole_state(rig: Rig, events: Events) -> None:
    await rig.enqueue(3)
    await rig.worker()
    async with listening(events) as stream:
        told = {event.name: data(event) for event in await heard(events, stream)}
    assert told.keys() == {"stats", "queues", "workers"}
    assert told["stats"]["total"] == 3
    assert told["queues"]["queues"][0]["depth"] == 3
    assert told["workers"]["workers"][0]["status"] == "idle"


async def test_only_what_has_changed_is_told_and_nothing_while_nothing_does(rig: Rig, events: Events) -> None:
    await rig.enqueue()
    async with listening(events) as stream:
        await heard(events, stream)
        assert await stays_silent(events, stream)  # though the age of the oldest job grows
        await rig.worker()
        told: set[str] = set()

        async def both() -> bool:  # its queue is served now; a look may have come between the two
            told.update(event.name for event in await heard(events, stream))
            return told == {"queues", "workers"}

        await aeventually(both)
        await rig.worker(queues=["elsewhere"])
        assert [event.name for event in await heard(events, stream)] == ["workers"]


async def test_a_slow_client_gets_the_newest_state_and_not_what_it_missed(rig: Rig, events: Events) -> None:
    async with listening(events, "stats") as stream, listening(events, "stats") as watcher:
        await heard(events, stream)
        for total in range(1, 6):
            await rig.enqueue()

            async def seen(total: int = total) -> bool:
                return any(data(event)["total"] == total for event in await heard(events, watcher))

            await aeventually(seen)
        told = await heard(events, stream)
    assert [data(event)["total"] for event in told] == [5]


async def test_a_client_that_comes_back_is_told_only_what_is_different(rig: Rig, store: Store, events: Events) -> None:
    first, second = await rig.enqueue(2)
    async with listening(events, jobs=[first, second]) as stream:
        last_id = (await heard(events, stream))[-1].id
    await store.intake.cancel(second)
    async with (
        Events(store.views, Config()) as another,
        listening(another, jobs=[second, first], last_id=last_id) as stream,
    ):
        told = {event.name: data(event) for event in await heard(another, stream)}
    assert told.keys() == {"job", "stats", "queues"}
    assert told["job"] == {"id": str(second), "status": "cancelled"}


async def test_a_client_that_missed_nothing_is_told_nothing(rig: Rig, events: Events) -> None:
    jobs = await rig.enqueue(2)
    async with listening(events, jobs=jobs) as stream:
        last_id = (await heard(events, stream))[-1].id
    async with listening(events, jobs=jobs, last_id=last_id) as stream:
        assert await stays_silent(events, stream)


@pytest.mark.parametrize("last_id", ["", "x", "....", "a.b.c.d.e", "." * 400, "\N{SNOWMAN}.b.c.d.e"])
async def test_an_id_that_is_none_of_ours_is_as_good_as_none(rig: Rig, events: Events, last_id: str) -> None:
    (job,) = await rig.enqueue()
    async with listening(events, jobs=[job], last_id=last_id) as stream:
        told = await heard(events, stream)
    assert [event.name for event in told] == ["job", "stats", "queues", "workers"]


async def test_an_id_of_other_watched_jobs_hides_none_of_these(rig: Rig, events: Events) -> None:
    mine, other = await rig.enqueue(2)
    async with listening(events, "jobs", jobs=[other]) as stream:
        last_id = (await heard(events, stream))[-1].id
    async with listening(events, "jobs", jobs=[mine], last_id=last_id) as stream:
        assert [data(event)["id"] for event in await heard(events, stream)] == [str(mine)]


async def test_a_watched_job_is_followed_to_its_end_and_beyond(rig: Rig, store: Store, events: Events) -> None:
    (job,) = await rig.enqueue()
    worker = await rig.worker()
    async with listening(events, "jobs", jobs=[job]) as stream:
        assert data((await heard(events, stream))[0])["status"] == "ready"
        (lease,) = await worker.claim()
        assert data((await heard(events, stream))[0])["status"] == "running"
        await worker.settle(lease, Completed(None))
        assert data((await heard(events, stream))[0])["status"] == "completed"
        await store.intake.retry(job)
        assert data((await heard(events, stream))[0])["status"] == "ready"


async def test_a_job_that_does_not_exist_is_told_to_be_nowhere(events: Events) -> None:
    async with listening(events, "jobs", jobs=[nobody := uuid4()]) as stream:
        assert data((await heard(events, stream))[0]) == {"id": str(nobody), "status": None}


async def test_no_more_streams_are_opened_than_may_be(events: Events) -> None:
    async with listening(events), listening(events), listening(events):
        with pytest.raises(Unavailable, match="3 event streams"):
            events.open()
    async with listening(events) as stream:
        assert await heard(events, stream)


async def test_many_streams_have_one_reader_and_none_looks_when_nobody_listens(rig: Rig, events: Events) -> None:
    async with listening(events) as one, listening(events) as two:
        await asyncio.gather(heard(events, one), heard(events, two))
        reader = events._reader
        assert reader is not None
    async with asyncio.timeout(10):
        await reader
    looks = events.looks
    await rig.enqueue()
    async with listening(events, "stats") as stream:
        (stats,) = await heard(events, stream)  # not what was seen before
    assert data(stats)["total"] == 1
    assert events.looks > looks


async def test_a_shutdown_ends_every_stream_at_once(events: Events) -> None:
    async with listening(events) as stream:
        await heard(events, stream)
        waiting = asyncio.create_task(events.next(stream))
        await asyncio.sleep(0)
        events.close()
        async with asyncio.timeout(10):
            assert await waiting == []
    with pytest.raises(Unavailable, match="shutting down"):
        events.open()


async def test_streams_outlive_looks_that_fail(
    rig: Rig, sql: "asyncpg.Connection[asyncpg.Record]", events: Events, caplog: pytest.LogCaptureFixture
) -> None:
    async with listening(events, "stats") as stream:
        await heard(events, stream)
        await sql.execute("alter view windlass.tallied rename to hidden")
        looks = events.looks

        async def looked() -> bool:
            return events.looks > looks + 2

        await aeventually(looked)
        await sql.execute("alter view windlass.hidden rename to tallied")
        await rig.enqueue()
        assert data((await heard(events, stream))[0])["total"] == 1
    assert caplog.text.count("event streams stand still") == 1  # not with every look


async def test_ages_and_renewals_alone_are_no_news(rig: Rig, store: Store) -> None:
    await rig.enqueue()
    await rig.worker()
    (queue,) = await store.views.queues()
    (worker,) = await store.views.workers()
    older = replace(queue, oldest_age_s=(queue.oldest_age_s or 0) + 60)
    renewed = replace(worker, renewed_at=worker.renewed_at.replace(year=2100), lease_left_s=99, memory_bytes=7)
    assert queues_fact([older]).mark == queues_fact([queue]).mark
    assert workers_fact([renewed]).mark == workers_fact([worker]).mark
    assert queues_fact([replace(queue, paused=True)]).mark != queues_fact([queue]).mark
    assert workers_fact([replace(worker, draining=True)]).mark != workers_fact([worker]).mark


@pytest.mark.parametrize("status", list(Status))
async def test_every_place_of_a_job_has_a_letter_of_its_own(rig: Rig, events: Events, status: Status) -> None:
    job = await rig.job(status)
    async with listening(events, "jobs", jobs=[job]) as stream:
        (event,) = await heard(events, stream)
        assert data(event)["status"] == status.value
    async with listening(events, "jobs", jobs=[job], last_id=event.id) as stream:
        assert await stays_silent(events, stream)
