"""Many jobs at once: their ids by a filter, their places, and the failed ones by what went wrong."""

import random
from dataclasses import replace
from uuid import UUID, uuid4

import asyncpg
import pytest

from tests.contract.test_lists import everything, listed, some_query
from tests.factory import Rig, WorkerRig
from windlass.errors import InvalidQuery
from windlass.lifecycle import Completed, Failed, fingerprint
from windlass.model import Error, Status
from windlass.store.protocol import JobQuery
from windlass.store.store import Store

Sql = asyncpg.Connection


async def found(store: Store, query: JobQuery, limit: int) -> list[UUID]:
    """All pages put together."""
    ids: list[UUID] = []
    while True:
        page = await store.views.ids(query, limit=limit)
        assert len(page.ids) <= limit
        ids += page.ids
        if page.next_cursor is None:
            return ids
        query = replace(query, cursor=page.next_cursor)


async def test_the_ids_of_a_list_are_those_of_its_jobs(rig: Rig, store: Store) -> None:
    draw = random.Random(5)
    ids = await everything(rig, draw, 150)
    now = (await store.views.job(ids[0])).created_at.replace(microsecond=0)
    for limit in (7, 10_000):
        assert await found(store, JobQuery(limit=0), limit) == ids
        for _ in range(25):
            query = some_query(draw, now)
            assert await found(store, query, limit) == [job.id for job in await listed(store, query)], query


@pytest.mark.parametrize("limit", [0, -1, 10_001])
async def test_no_more_than_ten_thousand_ids_are_asked_for(store: Store, limit: int) -> None:
    with pytest.raises(InvalidQuery, match=r"^limit: "):
        await store.views.ids(JobQuery(), limit=limit)


async def test_places_are_what_the_jobs_show(rig: Rig, store: Store) -> None:
    ids = await everything(rig, random.Random(7), 150)
    places = await store.views.places([*ids, ids[0], uuid4()])
    assert places == {job.id: job.status for job in await listed(store, JobQuery(limit=200))}
    assert set(places.values()) == set(Status)
    assert await store.views.places([]) == {}


async def test_any_number_of_places_is_told(rig: Rig, store: Store) -> None:
    ids = await rig.enqueue(2_500)
    assert await store.views.places(ids) == dict.fromkeys(ids, Status.READY)


async def test_bodies_larger_than_asked_for_are_left_out_of_a_list(rig: Rig, store: Store) -> None:
    worker = await rig.worker()
    sizes = {(await rig.enqueue(payload="x" * size))[0]: size for size in (1, 100, 5_000, 900_000)}
    for lease in await worker.claim():
        await worker.settle(lease, Completed("y" * sizes[lease.job_id]))
    for most in (0, 2, 3, 102, 5_001, 5_002, 1_000_000):
        for job in await listed(store, JobQuery(bodies_max=most)):
            fits = sizes[job.id] + 2 <= most  # the quotes
            assert (job.payload is not None, job.result is not None) == (fits, fits), (most, sizes[job.id])
    assert all(job.payload and job.result for job in await listed(store, JobQuery()))
    for refused in (-1, 2**31):
        with pytest.raises(InvalidQuery, match=r"^bodies_max: "):
            await store.views.jobs(JobQuery(bodies_max=refused))


# Dead letters. --------------------------------------------------------------------------------------------------------


async def fail(
    rig: Rig, worker: WorkerRig, message: str, count: int = 1, kind: str = "ValueError", **job: str
) -> list[UUID]:
    ids = await rig.enqueue(count, **job)
    for lease in await worker.claim(count):
        await worker.settle(lease, Failed(Error(kind, message.format(lease.job_id)), final=True))
    return ids


async def test_failed_jobs_of_one_kind_are_one_group(rig: Rig, store: Store) -> None:
    worker = await rig.worker(queues=["a", "b"])
    same = await fail(rig, worker, "no user {}", 7, queue="a")
    other = await fail(rig, worker, "no user {}", 2, queue="b", type="other")
    kind = await fail(rig, worker, "no user {}", 1, "KeyError", queue="b")
    await rig.job(Status.CANCELLED)
    await rig.job(Status.COMPLETED)
    told = await store.views.dead_letter_groups()
    assert (told.jobs, told.complete) == (10, True)
    assert [(g.type, g.error_type, g.count) for g in told.groups] == [
        ("echo", "ValueError", 7),
        ("other", "ValueError", 2),
        ("echo", "KeyError", 1),
    ]
    first, second, third = told.groups
    assert list(first.sample) == sorted(same, reverse=True)[:5]
    assert first.message == f"no user {max(same)}"
    assert first.fingerprint == fingerprint(Error("ValueError", first.message))
    assert [set(second.sample), set(third.sample)] == [set(other), set(kind)]
    moments = [(await store.views.job(job_id)).finished_at for job_id in same]
    assert (first.first_at, first.last_at) == (min(filter(None, moments)), max(filter(None, moments)))


async def test_groups_of_a_type_or_a_queue_are_those_of_it(rig: Rig, store: Store) -> None:
    worker = await rig.worker(queues=["a", "b"])
    for queue, type_ in (("a", "echo"), ("b", "echo"), ("a", "other")):
        await fail(rig, worker, "no", 2, queue=queue, type=type_)
    groups = store.views.dead_letter_groups
    assert (await groups(type="echo")).jobs == 4
    assert (await groups(queue="a")).jobs == 4
    assert (await groups(type="echo", queue="b")).jobs == 2
    nothing = await groups(type="other", queue="b")
    assert (nothing.groups, nothing.jobs, nothing.complete) == ([], 0, True)
    with pytest.raises(InvalidQuery):
        await groups(type="\0")
    with pytest.raises(InvalidQuery):
        await groups(looked_at=0)


async def test_only_the_newest_are_looked_at(rig: Rig, store: Store) -> None:
    worker = await rig.worker(queues=["a", "b"])
    await fail(rig, worker, "old", 3, queue="a")
    await fail(rig, worker, "new", 2, queue="b")
    for looked_at, jobs, complete in ((2, 2, False), (4, 4, False), (5, 5, True), (6, 5, True)):
        told = await store.views.dead_letter_groups(looked_at=looked_at)
        assert (told.jobs, told.complete) == (jobs, complete)
    told = await store.views.dead_letter_groups(type="echo", queue="a", looked_at=2)
    assert (told.jobs, told.complete) == (0, False), "those of the type were looked at, and are not all"


async def test_more_groups_than_are_shown_are_not_all(rig: Rig, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("windlass.store.views._GROUPS", 2)
    worker = await rig.worker()
    for kind, count in (("A", 1), ("B", 3), ("C", 2)):
        await fail(rig, worker, "no", count, kind)
    told = await store.views.dead_letter_groups()
    assert [group.error_type for group in told.groups] == ["B", "C"]
    assert (told.jobs, told.complete) == (6, False)


async def test_failed_jobs_that_outlived_their_partition_are_among_them(rig: Rig, store: Store, sql: Sql) -> None:
    worker = await rig.worker()
    (kept,) = await fail(rig, worker, "no")
    await sql.execute(store.postgres.sql["keep"], [kept])
    await fail(rig, worker, "no")
    told = await store.views.dead_letter_groups()
    assert (told.jobs, told.groups[0].count) == (2, 2)
    only = JobQuery([Status.FAILED], fingerprint=told.groups[0].fingerprint)
    assert [job.id for job in await listed(store, only)] == list(told.groups[0].sample)
    assert kept in told.groups[0].sample


async def test_failed_jobs_are_listed_by_their_kind_of_error(rig: Rig, store: Store) -> None:
    worker = await rig.worker(queues=["a", "b"])
    no = [*await fail(rig, worker, "no", 3, queue="a"), *await fail(rig, worker, "no", 2, queue="b")]
    await fail(rig, worker, "never", 2, queue="a")
    mark = fingerprint(Error("ValueError", "no"))
    query = JobQuery([Status.FAILED], fingerprint=mark, limit=2)
    assert [job.id for job in await listed(store, query)] == sorted(no, reverse=True)
    assert len(await listed(store, replace(query, queue="b"))) == 2
    assert len(await found(store, replace(query, queue="a", type="echo"), 2)) == 3
    assert await listed(store, replace(query, fingerprint="unheard of")) == []


@pytest.mark.parametrize("statuses", [(), [Status.COMPLETED], [Status.FAILED, Status.READY]])
async def test_only_failed_jobs_have_a_kind_of_error(store: Store, statuses: list[Status]) -> None:
    with pytest.raises(InvalidQuery, match=r"^fingerprint: "):
        await store.views.jobs(JobQuery(statuses, fingerprint="x"))
    with pytest.raises(InvalidQuery, match=r"^fingerprint: "):
        await store.views.jobs(JobQuery([Status.FAILED], fingerprint="\0"))
