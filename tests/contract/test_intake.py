"""An accepted job is stored whole, in order and once; a refused one leaves no trace."""

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest

from tests.factory import Rig
from windlass.config import StoreConfig
from windlass.errors import IdTaken, InvalidId, InvalidJob, InvalidPayload, JobNotFound, NotPossible, WindlassError
from windlass.lifecycle import Completed
from windlass.model import Enqueued, Error, Lease, NewJob, RetryPolicy, Status
from windlass.store.ids import Ids
from windlass.store.store import Store, open_store

Sql = asyncpg.Connection


def numbered(count: int, **fields: Any) -> list[NewJob]:
    return [NewJob("echo", n, **fields) for n in range(count)]


def payloads(leases: Sequence[Lease]) -> list[Any]:
    return [json.loads(lease.payload) for lease in leases]


def id_at(store: Store, ahead_s: float = 0) -> UUID:
    return Ids(lambda: store.postgres.now_ms() + int(ahead_s * 1000)).make(1)[0]


async def stored(sql: Sql) -> int:
    count: int = await sql.fetchval("select count(*) from windlass.job")
    return count


# Order. ---------------------------------------------------------------------------------------------------------------


async def test_a_batch_is_handed_out_in_its_order(rig: Rig, store: Store) -> None:
    await store.intake.enqueue(numbered(100))
    worker = await rig.worker(threads=100)
    assert payloads(await worker.claim()) == list(range(100))


async def test_a_batch_of_several_statements_is_handed_out_in_its_order(rig: Rig, store: Store) -> None:
    await store.intake.enqueue(numbered(5_200))
    worker = await rig.worker()
    assert payloads(await worker.claim(1, budget=6_000, most=6_000)) == list(range(5_200))


async def test_answers_come_in_the_order_of_the_batch(store: Store) -> None:
    answers = await store.intake.enqueue(numbered(20))
    for n, answer in enumerate(answers):
        assert (await store.views.job(answer.id)).payload == str(n)


async def test_larger_priority_goes_first_and_ties_go_to_the_older(rig: Rig, store: Store) -> None:
    jobs = [NewJob("echo", [p, n], priority=p) for n in range(3) for p in (0, 100, -100, 1, -1)]
    await store.intake.enqueue(jobs)
    worker = await rig.worker(threads=15)
    assert payloads(await worker.claim()) == [[p, n] for p in (100, 1, 0, -1, -100) for n in range(3)]


async def test_a_level_of_priority_is_worth_one_head_start(config: StoreConfig, sql: Sql) -> None:
    for head_start_s in (60.0, 0.5, 0.0):
        async with open_store(replace(config, head_start_s=head_start_s)) as store:
            queue = f"q{head_start_s}"
            await store.intake.enqueue([NewJob("echo", priority=p, queue=queue) for p in (0, 1, -2)])
        rows = await sql.fetch("select rank from windlass.ready where queue = $1 order by job_id", queue)
        ranks = [row["rank"] for row in rows]
        level = head_start_s * 1_000_000
        assert [rank - ranks[0] for rank in ranks] == [0, 1 - level, 2 + 2 * level]


# Time. ----------------------------------------------------------------------------------------------------------------


async def test_a_job_that_is_due_is_ready_now_and_ranks_by_now(rig: Rig, store: Store) -> None:
    due: list[dict[str, Any]] = [{}, {"delay_s": 0}, {"scheduled_at": datetime(2020, 1, 1, tzinfo=UTC)}, {}]
    ids = [(await rig.enqueue(**fields))[0] for fields in due]
    for job_id in ids:
        job = await store.views.job(job_id)
        assert (job.status, job.ready_at) == (Status.READY, job.created_at)
    assert [lease.job_id for lease in await (await rig.worker()).claim()] == ids


async def test_a_job_of_the_future_waits_until_then(rig: Rig, store: Store) -> None:
    moment = datetime.now(UTC).replace(microsecond=123_456) + timedelta(hours=1)
    (at,) = await rig.enqueue(scheduled_at=moment)
    (after,) = await rig.enqueue(delay_s=0.75)
    job = await store.views.job(at)
    assert (job.status, job.scheduled_at, job.ready_at) == (Status.SCHEDULED, moment, moment)
    job = await store.views.job(after)
    assert (job.status, job.scheduled_at) == (Status.SCHEDULED, job.created_at + timedelta(seconds=0.75))
    assert await (await rig.worker()).claim() == []


async def test_the_ends_of_the_calendar_can_be_stored(rig: Rig, store: Store) -> None:
    far = datetime(9998, 12, 31, 23, 59, tzinfo=UTC)
    (job_id,) = await rig.enqueue(scheduled_at=far)
    assert (await store.views.job(job_id)).scheduled_at == far
    (job_id,) = await rig.enqueue(delay_s=3650 * 86_400.0)
    assert await rig.status(job_id) is Status.SCHEDULED


# All or none. ---------------------------------------------------------------------------------------------------------

BAD: list[tuple[str, dict[str, Any]]] = [
    ("type", {"type": "no spaces"}),
    ("type", {"type": ""}),
    ("queue", {"queue": "'; drop table job; --"}),
    ("priority", {"priority": 101}),
    ("thread_demand", {"thread_demand": 0}),
    ("thread_demand", {"thread_demand": True}),
    ("max_attempts", {"max_attempts": 0}),
    ("timeout_s", {"timeout_s": float("nan")}),
    ("delay_s", {"delay_s": -1}),
    ("delay_s", {"delay_s": 1, "scheduled_at": datetime(2030, 1, 1, tzinfo=UTC)}),
    ("scheduled_at", {"scheduled_at": datetime(2030, 1, 1)}),  # noqa: DTZ001 - naive on purpose
    ("tags[1]", {"tags": ["fine", "not\0fine"]}),
    ("name", {"name": "a\ud800"}),
    ("idempotency_key", {"idempotency_key": ""}),
    ("retry.factor", {"retry": RetryPolicy(factor=0.5)}),
    ("if_too_wide", {"if_too_wide": "explode"}),
    ("payload.deep[1]", {"payload": {"deep": [1, object()]}}),
]


async def test_a_batch_with_one_bad_job_stores_nothing_and_names_the_field(store: Store, sql: Sql) -> None:
    for field, fields in BAD:
        with pytest.raises(InvalidJob) as caught:
            await store.intake.enqueue([*numbered(3), NewJob(**{"type": "echo", **fields}), *numbered(3)])
        assert caught.value.field == field
    assert await stored(sql) == 0


@pytest.mark.parametrize("count", [2, 5_200])
async def test_a_batch_that_collides_stores_nothing(store: Store, sql: Sql, count: int) -> None:
    (taken,) = await store.intake.enqueue([NewJob("echo", "first")])
    with pytest.raises(IdTaken, match=str(taken.id)):
        await store.intake.enqueue([*numbered(count), NewJob("echo", "second", id=taken.id)])
    assert await stored(sql) == 1
    assert (await store.views.job(taken.id)).payload == '"first"'


async def test_an_empty_batch_is_nothing(store: Store, sql: Sql) -> None:
    assert await store.intake.enqueue([]) == []
    assert await store.intake.enqueue_each([]) == []
    assert await stored(sql) == 0


async def test_of_independent_jobs_only_the_culprit_gets_an_error(store: Store, sql: Sql) -> None:
    (taken,) = await store.intake.enqueue([NewJob("echo", "first")])
    answers = await store.intake.enqueue_each(
        [NewJob("echo", 1), NewJob("echo", {1}), NewJob("echo", 2), NewJob("echo", 3, id=taken.id), NewJob("echo", 4)]
    )
    assert [type(answer) for answer in answers] == [Enqueued, InvalidPayload, Enqueued, IdTaken, Enqueued]
    assert await stored(sql) == 4


async def test_a_job_that_postgresql_itself_refuses_is_the_only_one_refused(store: Store, sql: Sql) -> None:
    await sql.execute("alter table windlass.job add constraint no_seven check (payload::text <> '7')")
    for key in (None, "k"):
        jobs = [NewJob("echo", n, idempotency_key=key and f"{key}{n}") for n in range(20)]
        answers = await store.intake.enqueue_each(jobs)
        assert [n for n, answer in enumerate(answers) if not isinstance(answer, Enqueued)] == [7]
        assert isinstance(answers[7], WindlassError)
    assert await stored(sql) == 38


async def test_independent_jobs_are_stored_once_although_one_collides(store: Store, sql: Sql) -> None:
    (taken,) = await store.intake.enqueue([NewJob("echo", "first")])
    await store.intake.enqueue_each([NewJob("echo", 1), NewJob("echo", 2, id=taken.id)])
    assert await stored(sql) == 2


# Ids. -----------------------------------------------------------------------------------------------------------------


async def test_a_repeated_id_with_the_same_body_is_the_same_job(rig: Rig, store: Store, sql: Sql) -> None:
    job = NewJob("echo", {"a": [1, None]}, id=id_at(store))
    assert job.id
    (made,) = await store.intake.enqueue([job])
    assert (made.id, made.duplicate) == (job.id, False)
    (other, repeated) = await store.intake.enqueue([NewJob("echo"), job])
    assert (other.duplicate, repeated) == (False, Enqueued(job.id, duplicate=True))
    worker = await rig.worker()
    for lease in await worker.claim():
        await worker.settle(lease, Completed())
    assert await store.intake.enqueue([job]) == [Enqueued(job.id, duplicate=True)]
    assert await rig.status(job.id) is Status.COMPLETED
    assert await stored(sql) == 2


OTHER_BODY: list[dict[str, Any]] = [
    {"payload": {"a": 2}},
    {"type": "other"},
    {"queue": "elsewhere"},
    {"priority": 5},
    {"thread_demand": 2},
    {"tags": ["x"]},
    {"delay_s": 60},
    {"max_attempts": 9},
]


async def test_a_repeated_id_with_another_body_is_refused(store: Store, sql: Sql) -> None:
    job = NewJob("echo", {"a": 1}, id=id_at(store))
    await store.intake.enqueue([job])
    accepted = []
    for fields in OTHER_BODY:
        (answer,) = await store.intake.enqueue_each([job._replace(**fields)])
        accepted += [] if isinstance(answer, IdTaken) else [fields]
    assert accepted == []
    assert await stored(sql) == 1


async def test_an_id_of_another_time_or_kind_is_refused(store: Store, sql: Sql) -> None:
    for ahead_s in (-86_400 - 5, 305, -40 * 86_400, 400 * 86_400):
        with pytest.raises(InvalidId, match="24 hours"):
            await store.intake.enqueue([NewJob("echo"), NewJob("echo", id=id_at(store, ahead_s))])
    for job_id in (uuid4(), UUID(int=0), UUID(int=2**128 - 1)):
        with pytest.raises(InvalidId, match="UUIDv7"):
            await store.intake.enqueue([NewJob("echo"), NewJob("echo", id=job_id)])
    assert await stored(sql) == 0


async def test_an_id_of_these_days_is_taken(rig: Rig, store: Store) -> None:
    for ahead_s in (-86_400 + 5, 0, 295):
        job_id = id_at(store, ahead_s)
        (made,) = await store.intake.enqueue([NewJob("echo", id=job_id)])
        assert (made.id, made.duplicate) == (job_id, False)
        assert await rig.status(job_id) is Status.READY


async def test_one_id_twice_in_a_batch_is_refused(store: Store, sql: Sql) -> None:
    job = NewJob("echo", id=id_at(store))
    with pytest.raises(InvalidId, match="same id"):
        await store.intake.enqueue([job, job])
    assert await stored(sql) == 0


# The caller's transaction. --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", [None, "order-1"])
async def test_jobs_commit_with_the_callers_transaction(rig: Rig, store: Store, sql: Sql, key: str | None) -> None:
    await sql.execute("create table orders (id int)")
    worker = await rig.worker()
    async with sql.transaction():
        await sql.execute("insert into orders values (1)")
        (answer,) = await store.intake.enqueue([NewJob("echo", idempotency_key=key)], connection=sql)
        assert await worker.claim() == []
        with pytest.raises(JobNotFound):
            await store.views.job(answer.id)
    assert [lease.job_id for lease in await worker.claim()] == [answer.id]


@pytest.mark.parametrize("key", [None, "order-1"])
async def test_jobs_roll_back_with_the_callers_transaction(store: Store, sql: Sql, key: str | None) -> None:
    transaction = sql.transaction()
    await transaction.start()
    (answer,) = await store.intake.enqueue([NewJob("echo", idempotency_key=key, tags=["t"])], connection=sql)
    await transaction.rollback()
    with pytest.raises(JobNotFound):
        await store.views.job(answer.id)
    assert await store.views.counts() == {}
    assert await stored(sql) == 0
    (again,) = await store.intake.enqueue([NewJob("echo", idempotency_key=key)])
    assert not again.duplicate


async def test_calls_in_one_transaction_keep_their_order(rig: Rig, store: Store, sql: Sql) -> None:
    async with sql.transaction():
        await store.intake.enqueue([NewJob("echo", 0), NewJob("echo", 1)], connection=sql)
        await store.intake.enqueue([NewJob("echo", 2), NewJob("echo", 3)], connection=sql)
    assert payloads(await (await rig.worker()).claim()) == [0, 1, 2, 3]


async def test_a_refused_batch_leaves_nothing_in_a_transaction_that_goes_on(store: Store, sql: Sql) -> None:
    (taken,) = await store.intake.enqueue([NewJob("echo", "first")])
    async with sql.transaction():
        with pytest.raises(IdTaken):
            await store.intake.enqueue([NewJob("echo", 1), NewJob("echo", 2, id=taken.id)], connection=sql)
    assert await stored(sql) == 1


# Tags, pause, actions on many. ----------------------------------------------------------------------------------------


async def test_tags_travel_with_the_job(rig: Rig, store: Store) -> None:
    tags = ["blue", "größe=L", 'quote"d', "{a,b}", "\\", "null"]
    (job_id,) = await rig.enqueue(tags=tags)
    assert list((await store.views.job(job_id)).tags) == tags
    (lease,) = await (await rig.worker()).claim()
    assert list(lease.tags or ()) == tags


async def test_a_paused_queue_hands_out_nothing_and_moves_nothing(rig: Rig, store: Store, sql: Sql) -> None:
    worker = await rig.worker(queues=["a", "b"])
    (paused,) = await rig.enqueue(queue="a")
    (other,) = await rig.enqueue(queue="b")
    rows = await sql.fetch("select ctid, * from windlass.ready order by job_id")
    await store.intake.set_paused("a", paused=True)
    assert await sql.fetch("select ctid, * from windlass.ready order by job_id") == rows
    job = await store.views.job(paused)
    assert (job.status, job.reason) == (Status.HELD, "queue paused")
    assert await store.views.counts() == {("a", "echo", Status.HELD): 1, ("b", "echo", Status.READY): 1}
    assert [lease.job_id for lease in await worker.claim()] == [other]
    await store.intake.set_paused("a", paused=False)
    assert await rig.status(paused) is Status.READY
    assert [lease.job_id for lease in await worker.claim()] == [paused]


async def test_what_runs_when_its_queue_is_paused_goes_on(rig: Rig, store: Store) -> None:
    worker = await rig.worker()
    await rig.enqueue()
    (lease,) = await worker.claim()
    await store.intake.set_paused("default", paused=True)
    assert (await worker.settle(lease, Completed())).moved == {lease.job_id: Status.COMPLETED}
    with pytest.raises(InvalidJob, match="queue"):
        await store.intake.set_paused("no such\nqueue", paused=True)


async def test_an_action_on_many_answers_for_each(rig: Rig, store: Store) -> None:
    jobs = {status: await rig.job(status) for status in Status}
    nobody = id_at(store)
    cancelled = await store.intake.cancel_many([*jobs.values(), nobody], "tidy\0 up")
    assert isinstance(cancelled[nobody], JobNotFound)
    for status, job_id in jobs.items():
        if status in {Status.COMPLETED, Status.FAILED, Status.CANCELLED}:
            assert isinstance(cancelled[job_id], NotPossible)
        else:
            assert cancelled[job_id] is (Status.RUNNING if status is Status.RUNNING else Status.CANCELLED)
    assert (await store.views.job(jobs[Status.READY])).error == Error("Cancelled", "tidy\N{REPLACEMENT CHARACTER} up")
    retried = await store.intake.retry_many([*jobs.values(), nobody])
    assert {job_id for job_id, answer in retried.items() if answer is Status.READY} == set(jobs.values()) - {
        jobs[Status.RUNNING]
    }
    assert isinstance((await store.intake.run_now_many([jobs[Status.RUNNING]]))[jobs[Status.RUNNING]], NotPossible)


async def test_a_long_batch_with_a_bad_job_at_its_end_stores_nothing(store: Store, sql: Sql) -> None:
    with pytest.raises(InvalidJob, match="priority"):
        await store.intake.enqueue([*numbered(6_000), NewJob("echo", priority=101)])
    assert await stored(sql) == 0


async def test_a_long_batch_keeps_its_order(rig: Rig, store: Store) -> None:
    answers = await store.intake.enqueue(numbered(6_000))
    worker = await rig.worker(threads=1_000)
    claimed = [lease.job_id for _ in range(6) for lease in await worker.claim()]
    assert claimed == [answer.id for answer in answers]
