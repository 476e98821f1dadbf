"""The pages of a list, put together, are exactly the jobs that match, newest first, each once, whatever moves meanwhile."""

import random
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from tests.factory import Rig
from windlass.errors import InvalidQuery
from windlass.lifecycle import Cancelled, Completed, Failed, Lost, Outcome, Released, Snoozed, settle
from windlass.model import PENDING, Error, Job, NewJob, Status
from windlass.store.ids import Ids, unix_ms
from windlass.store.protocol import JobQuery
from windlass.store.store import Store
from windlass.store.views import Views

Sql = asyncpg.Connection

TYPES = ("echo", "other", "strange", "stranger")
QUEUES = ("a", "b", "paused")
TAGS = ("red", "green", "'; drop table windlass.job; --")
_NO = Error("E", "m")
_OUTCOMES: list[Outcome] = [
    Completed(), Completed(), Failed(_NO), Failed(_NO, final=True), Cancelled("c"), Snoozed(9), Released(), Lost(crashed=False),
]  # fmt: skip


async def everything(rig: Rig, draw: random.Random, count: int = 300) -> list[UUID]:
    """Jobs of the last twenty hours in every state, with every reason to be held; newest first."""
    store = rig.store
    clock = store.postgres.now_ms()
    new = [
        NewJob(
            draw.choice(TYPES),
            queue=draw.choice(QUEUES),
            id=Ids(lambda: clock - draw.randrange(20 * 3_600_000)).make(1)[0],
            tags=draw.sample(TAGS, draw.randrange(3)),
            delay_s=draw.choice([None, None, None, 60]),
            thread_demand=draw.choice([1, 1, 2]),
        )
        for _ in range(count)
    ]
    ids = [answer.id for answer in await store.intake.enqueue(new)]
    worker = await rig.worker(threads=2, queues=QUEUES, types=("echo", "other"))
    await store.upkeep.hold_unknown(after_s=0, limit=count // 8)
    leases = await worker.claim(2, budget=count // 3)
    settled = draw.sample(leases, len(leases) * 3 // 4)
    await worker.claims.settle([settle(lease, draw.choice(_OUTCOMES), jitter=0.5) for lease in settled])
    await store.intake.cancel_many(draw.sample(ids, count // 12))
    await store.intake.set_paused("paused", paused=True)
    return sorted(ids, reverse=True)


async def listed(store: Store, query: JobQuery, between: Callable[[], Any] | None = None) -> list[Job]:
    """All pages put together."""
    jobs: list[Job] = []
    while True:
        page = await store.views.jobs(query)
        assert len(page.jobs) <= query.limit
        jobs += page.jobs
        if page.next_cursor is None:
            return jobs
        query = replace(query, cursor=page.next_cursor)
        if between is not None:
            await between()


def matches(job: Job, query: JobQuery) -> bool:
    made = datetime.fromtimestamp(unix_ms(job.id) / 1000, UTC)
    return (
        (not query.statuses or job.status in query.statuses)
        and query.type in {None, job.type}
        and query.queue in {None, job.queue}
        and (query.tag is None or query.tag in job.tags)
        and (query.created_after is None or made >= query.created_after)
        and (query.created_before is None or made < query.created_before)
    )


def some_query(draw: random.Random, now: datetime) -> JobQuery:
    """Every filter is left out half of the time; moments are whole milliseconds, as those in ids."""
    moments = sorted(now - timedelta(milliseconds=draw.randrange(20 * 3_600_000)) for _ in range(2))
    return JobQuery(
        statuses=draw.choice([(), (), PENDING, draw.sample(list(Status), draw.randrange(1, 7))]),
        type=draw.choice([None, None, *TYPES, "unheard of"]),
        queue=draw.choice([None, None, *QUEUES]),
        tag=draw.choice([None, None, None, None, *TAGS]),
        created_after=draw.choice([None, None, moments[0]]),
        created_before=draw.choice([None, None, moments[1]]),
        limit=draw.choice([1, 7, 20, 50, 200]),
    )


@pytest.mark.parametrize("scan", [None, 7])
async def test_a_list_is_exactly_the_jobs_that_match(
    rig: Rig, store: Store, monkeypatch: pytest.MonkeyPatch, scan: int | None
) -> None:
    draw = random.Random(23)
    ids = await everything(rig, draw, 300 if scan is None else 90)
    every = [await store.views.job(job_id) for job_id in ids]
    assert {job.status for job in every} == set(Status)
    if scan is not None:
        monkeypatch.setattr("windlass.store.listing.SCAN", scan)
    assert await listed(store, JobQuery(limit=33)) == every
    now = datetime.now(UTC).replace(microsecond=0)
    queries = [some_query(draw, now) for _ in range(70)]
    queries += [JobQuery(statuses=[status]) for status in Status]
    queries += [JobQuery(statuses=[status], type="echo", queue="a", tag="red") for status in Status]
    found = 0
    for query in queries:
        wanted = [job for job in every if matches(job, query)]
        assert await listed(store, query) == wanted, query
        found += len(wanted)
    assert found > len(every)


async def test_a_job_keeps_its_place_while_it_moves(rig: Rig, store: Store) -> None:
    draw = random.Random(3)
    ids = await everything(rig, draw, 120)
    worker = await rig.worker(queues=QUEUES, types=TYPES)
    moves: list[Callable[[list[UUID]], Awaitable[object]]] = [
        store.intake.cancel_many,
        store.intake.retry_many,
        store.intake.run_now_many,
    ]

    async def move() -> None:
        await store.intake.set_paused("paused", paused=draw.random() < 0.5)
        for lease in await worker.claim():
            await worker.settle(lease, draw.choice(_OUTCOMES))
        await draw.choice(moves)(draw.sample(ids, 30))
        await rig.enqueue(2, queue="a")  # newer than the first page: not seen

    assert [job.id for job in await listed(store, JobQuery(limit=9), between=move)] == ids


async def test_the_last_page_has_no_cursor_also_when_it_is_full(rig: Rig, store: Store) -> None:
    await rig.enqueue(4)
    first = await store.views.jobs(JobQuery(limit=2))
    last = await store.views.jobs(JobQuery(limit=2, cursor=first.next_cursor))
    assert (len(first.jobs), len(last.jobs), last.next_cursor) == (2, 2, None)
    assert (await store.views.jobs(JobQuery(limit=4))).next_cursor is None
    assert (await store.views.jobs()).next_cursor is None


async def test_moments_of_any_zone_are_understood(rig: Rig, store: Store) -> None:
    (job_id,) = await rig.enqueue()
    made = datetime.fromtimestamp(unix_ms(job_id) / 1000, timezone(timedelta(hours=-7)))
    assert await listed(store, JobQuery(created_after=made)) != []
    assert await listed(store, JobQuery(created_after=made + timedelta(milliseconds=1))) == []
    assert await listed(store, JobQuery(created_before=made)) == []
    assert await listed(store, JobQuery(created_before=made + timedelta(milliseconds=1))) != []
    ends = JobQuery(created_after=datetime.min.replace(tzinfo=UTC), created_before=datetime.max.replace(tzinfo=UTC))
    assert [job.id for job in await listed(store, ends)] == [job_id]


NAIVE = datetime(2026, 1, 1)  # noqa: DTZ001 - naive on purpose
REFUSED = [
    (JobQuery(limit=0), "limit"),
    (JobQuery(limit=-1), "limit"),
    (JobQuery(limit=201), "limit"),
    (JobQuery(cursor=""), "cursor"),
    (JobQuery(cursor="nonsense"), "cursor"),
    (JobQuery(cursor="'; drop table windlass.job; --"), "cursor"),
    *((JobQuery(type=text), "type") for text in ("", "\0", "\ud800", "x" * 1000)),
    *((JobQuery(queue=text), "queue") for text in ("", "\0", "\ud800", "x" * 1000)),
    *((JobQuery(tag=text), "tag") for text in ("", "\0", "\ud800", "x" * 1000)),
    (JobQuery(created_after=NAIVE), "created_after"),
    (JobQuery(created_before=NAIVE), "created_before"),
]


async def test_what_cannot_be_asked_is_refused_by_name(store: Store) -> None:
    for query, field in REFUSED:
        with pytest.raises(InvalidQuery, match=f"^{field}:"):
            await store.views.jobs(query)


async def test_no_text_in_a_filter_is_more_than_a_text(rig: Rig, store: Store, sql: Sql) -> None:
    await rig.enqueue(tags=["t"])
    for text in ("'; drop table windlass.job; --", '"', "$1", "%", "\\", "{}", "echo' or 'a' = 'a", "🔑" * 100):
        for statuses in ((), (Status.COMPLETED,), (Status.FAILED, Status.READY)):
            every = JobQuery(statuses=statuses)
            for query in (replace(every, type=text), replace(every, queue=text), replace(every, tag=text)):
                assert await listed(store, query) == []
    assert await sql.fetchval("select count(*) from windlass.job") == 1


class _Meanwhile(Views):
    """Views in whose lists something happens between two statements."""

    def __init__(self, store: Store, happens: Callable[[], Awaitable[object]]) -> None:
        super().__init__(store.postgres)
        self._happens = happens

    async def _bound(self, search: Any, connection: Any) -> UUID | None:
        await self._happens()
        return await super()._bound(search, connection)


async def test_a_job_that_ends_while_it_is_looked_for_is_found(rig: Rig, store: Store) -> None:
    (job_id,) = await rig.enqueue()  # nothing of its type has finished so far, so nothing is looked for there
    worker = await rig.worker()

    async def ends() -> None:
        (lease,) = await worker.claim()
        await worker.settle(lease, Completed())

    page = await _Meanwhile(store, ends).jobs(JobQuery(type="echo"))
    assert [job.id for job in page.jobs] == [job_id]


# Searching. -----------------------------------------------------------------------------------------------------------


async def found(rig: Rig, **query: Any) -> set[UUID]:
    return {job.id for job in await listed(rig.store, JobQuery(**query))}


async def test_a_text_is_found_in_names_and_errors_literally(rig: Rig) -> None:
    named = [await rig.job(status, name="Monthly 50%_off report") for status in Status]
    failed = await rig.job(Status.FAILED)
    assert await found(rig, text="50%_OFF") == set(named)
    assert await found(rig, text="valueerr") == {failed, named[list(Status).index(Status.FAILED)]}
    assert await found(rig, text="50__off") == set()
    assert await found(rig, text="'; drop table windlass.job; --") == set()


async def test_the_beginning_of_an_id_finds_its_job(rig: Rig) -> None:
    job_id = await rig.job(Status.COMPLETED)
    await rig.job(Status.COMPLETED, id=Ids(lambda: rig.store.postgres.now_ms() - 3_600_000).make(1)[0])
    for length in (8, 13, 20, 36):
        assert await found(rig, text=str(job_id)[:length]) == {job_id}
    assert await found(rig, text=job_id.hex.upper()) == {job_id}


async def test_jobs_are_found_by_the_worker_that_has_or_had_them(rig: Rig) -> None:
    await rig.enqueue(3)
    worker = await rig.worker(threads=2)
    done, running = await worker.claim()
    await worker.settle(done, Completed())
    name = f"test-{worker.id}"
    assert await found(rig, worker=name) == {done.job_id, running.job_id}
    assert await found(rig, worker=name, statuses=[Status.RUNNING]) == {running.job_id}
    assert await found(rig, worker="nobody") == set()


async def test_jobs_are_found_by_when_they_finished(rig: Rig) -> None:
    ids = [await rig.job(status) for status in (Status.COMPLETED, Status.FAILED, Status.READY)]
    first, second = [(await rig.store.views.job(job_id)).finished_at for job_id in ids[:2]]
    assert first is not None
    assert second is not None
    assert await found(rig, finished_after=first) == set(ids[:2])
    assert await found(rig, finished_after=first, finished_before=second) == {ids[0]}
    assert await found(rig, finished_before=first) == set()
    with pytest.raises(InvalidQuery, match="finished_after"):
        await found(rig, finished_after=datetime(2026, 1, 1))  # noqa: DTZ001
