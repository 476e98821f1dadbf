"""One idempotency key is one job, however often, at once and in whatever order it is submitted."""

import asyncio
import random
import time
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import asyncpg
import pytest

from tests.factory import Rig
from windlass.config import StoreConfig
from windlass.errors import IdTaken, InvalidPayload, KeyBusy, KeyReused
from windlass.lifecycle import Completed
from windlass.model import Enqueued, NewJob, RetryPolicy, Status, declarable
from windlass.store.ids import Ids
from windlass.store.store import Store, open_store

Sql = asyncpg.Connection


def keyed(key: str, payload: Any = None, **fields: Any) -> NewJob:
    return NewJob("echo", payload, idempotency_key=key, **fields)


async def stored(sql: Sql) -> int:
    count: int = await sql.fetchval("select count(*) from windlass.job")
    return count


async def test_the_same_key_and_body_is_the_first_job_also_after_it_finished(rig: Rig, store: Store, sql: Sql) -> None:
    (first,) = await store.intake.enqueue([keyed("k", {"a": 1})])
    assert not first.duplicate
    assert await store.intake.enqueue([keyed("k", {"a": 1})]) == [Enqueued(first.id, duplicate=True)]
    worker = await rig.worker()
    (lease,) = await worker.claim()
    assert lease.idempotency_key == "k"
    assert await store.intake.enqueue([keyed("k", {"a": 1})]) == [Enqueued(first.id, duplicate=True)]
    await worker.settle(lease, Completed())
    assert await store.intake.enqueue([keyed("k", {"a": 1})]) == [Enqueued(first.id, duplicate=True)]
    assert await rig.status(first.id) is Status.COMPLETED
    assert await stored(sql) == 1


OTHER_BODY: list[dict[str, Any]] = [
    {"payload": {"a": 1, "b": [1, 3]}},
    {"payload": {"a": 1, "b": [2, 1]}},
    {"payload": {"a": 1.0, "b": [1, 2]}},
    {"payload": {"a": True, "b": [1, 2]}},
    {"type": "other"},
    {"queue": "elsewhere"},
    {"name": "n"},
    {"priority": 1},
    {"thread_demand": 2},
    {"max_attempts": 4},
    {"timeout_s": 1.0},
    {"retry": RetryPolicy(base_s=2)},
    {"tags": ["t"]},
    {"if_too_wide": "fail"},
    {"delay_s": 5.0},
    {"scheduled_at": datetime(2040, 1, 1, tzinfo=UTC)},
]


async def test_the_same_key_with_another_body_is_refused_and_stores_nothing(store: Store, sql: Sql) -> None:
    job = keyed("k", {"a": 1, "b": [1, 2]})
    await store.intake.enqueue([job])
    for fields in OTHER_BODY:
        with pytest.raises(KeyReused, match="'k'"):
            await store.intake.enqueue([NewJob("echo"), keyed("other"), job._replace(**fields)])
    assert await stored(sql) == 1
    assert await sql.fetchval("select count(*) from windlass.idempotency") == 1


DEFAULTS: list[dict[str, Any]] = [
    {"queue": "elsewhere"},
    {"priority": 1},
    {"thread_demand": 2},
    {"max_attempts": 4},
    {"timeout_s": 1.0},
    {"retry": RetryPolicy(base_s=2)},
    {"tags": ("t",)},
    {"if_too_wide": "fail"},
]


@pytest.mark.parametrize("key", ["k", None])
async def test_a_repetition_is_the_same_job_also_if_its_type_has_other_defaults_by_now(
    store: Store, sql: Sql, key: str | None
) -> None:
    made = Ids(store.postgres.now_ms).make(1)[0]
    job = NewJob("echo", 1, id=None if key else made, idempotency_key=key, inherited=declarable)
    (first,) = await store.intake.enqueue([job])
    for fields in DEFAULTS:
        assert await store.intake.enqueue([job._replace(**fields)]) == [Enqueued(first.id, duplicate=True)]
        said = job._replace(**fields, inherited=declarable.difference(fields))
        with pytest.raises(KeyReused if key else IdTaken):  # what the caller himself has changed is another job
            await store.intake.enqueue([said])
    assert await stored(sql) == 1


async def test_the_order_of_payload_keys_does_not_matter(store: Store) -> None:
    (first,) = await store.intake.enqueue([keyed("k", {"a": {"x": 1, "y": 2}, "b": 3})])
    (again,) = await store.intake.enqueue([keyed("k", {"b": 3, "a": {"y": 2, "x": 1}})])
    assert again == Enqueued(first.id, duplicate=True)
    assert (await store.views.job(first.id)).payload == '{"a":{"x":1,"y":2},"b":3}'


async def test_keys_are_de_duplicated_within_a_batch(store: Store, sql: Sql) -> None:
    batch = [keyed("b"), NewJob("echo"), keyed("a"), keyed("b"), NewJob("echo"), keyed("a"), keyed("c")]
    answers = await store.intake.enqueue(batch)
    assert [answer.duplicate for answer in answers] == [False, False, False, True, False, True, False]
    assert answers[3].id == answers[0].id
    assert answers[5].id == answers[2].id
    assert await stored(sql) == 5
    with pytest.raises(KeyReused):
        await store.intake.enqueue([keyed("d", 1), keyed("d", 2)])
    assert await stored(sql) == 5


async def test_a_repeated_submission_with_id_and_key_is_the_same_job(store: Store, sql: Sql) -> None:
    job = keyed("k", id=Ids(store.postgres.now_ms).make(1)[0])
    assert [answer.duplicate for _ in range(2) for answer in await store.intake.enqueue([job])] == [False, True]
    (other,) = await store.intake.enqueue([job._replace(id=Ids(store.postgres.now_ms).make(1)[0])])
    assert other == Enqueued(job.id or other.id, duplicate=True)
    assert await stored(sql) == 1


async def test_a_keyed_job_that_is_refused_does_not_take_its_key(store: Store, sql: Sql) -> None:
    with pytest.raises(InvalidPayload):
        await store.intake.enqueue([keyed("k"), keyed("bad", {1, 2})])
    (answer,) = await store.intake.enqueue([keyed("k", "another body")])
    assert not answer.duplicate
    assert await stored(sql) == 1


async def test_texts_of_any_kind_can_be_keys(store: Store, sql: Sql) -> None:
    keys = ["'; drop table windlass.job; --", "{a,b}", "NULL", '"', "\\", "ключ 🔑", " ", "K", "k", "x" * 255]
    answers = await store.intake.enqueue([keyed(key) for key in keys])
    assert not any(answer.duplicate for answer in answers)
    again = await store.intake.enqueue([keyed(key) for key in reversed(keys)])
    assert [answer.id for answer in again] == [answer.id for answer in reversed(answers)]
    assert await stored(sql) == len(keys)


async def test_a_refused_batch_takes_no_key_in_a_transaction_that_goes_on(rig: Rig, store: Store, sql: Sql) -> None:
    await store.intake.enqueue([keyed("used", 1)])
    async with sql.transaction():
        with pytest.raises(KeyReused):
            await store.intake.enqueue([keyed("new"), keyed("used", 2)], connection=sql)
    (answer,) = await store.intake.enqueue([keyed("new")])
    assert not answer.duplicate
    assert await rig.status(answer.id) is Status.READY


# At once. -------------------------------------------------------------------------------------------------------------


async def test_fifty_submissions_of_one_key_at_once_are_one_job(config: StoreConfig, sql: Sql) -> None:
    async with open_store(replace(config, lock_timeout_s=20)) as store:
        answers = [a for b in await asyncio.gather(*(store.intake.enqueue([keyed("k")]) for _ in range(50))) for a in b]
        assert (await store.views.check()).clean
    assert len({answer.id for answer in answers}) == 1
    assert [answer.duplicate for answer in answers].count(False) == 1
    assert await stored(sql) == 1


async def test_batches_of_the_same_keys_in_any_order_do_not_deadlock(config: StoreConfig, sql: Sql) -> None:
    draw = random.Random(7)
    keys = [f"key-{n}" for n in range(20)]
    async with open_store(replace(config, lock_timeout_s=20)) as store:
        batches = [[keyed(key) for key in draw.sample(keys, 20)] for _ in range(30)]
        answers = await asyncio.gather(*(store.intake.enqueue(batch) for batch in batches))
        assert (await store.views.check()).clean
    ids = {
        (job.idempotency_key, a.id)
        for batch, b in zip(batches, answers, strict=True)
        for job, a in zip(batch, b, strict=True)
    }
    assert len(ids) == 20
    assert Counter(a.duplicate for b in answers for a in b) == {False: 20, True: 29 * 20}
    assert await stored(sql) == 20


async def test_only_the_job_whose_key_is_held_by_an_open_transaction_is_turned_away(store: Store, sql: Sql) -> None:
    holder = sql.transaction()
    await holder.start()
    (held,) = await store.intake.enqueue([keyed("held")], connection=sql)
    began_s = time.monotonic()
    a, culprit, b, plain = await store.intake.enqueue_each([keyed("a"), keyed("held"), keyed("b"), NewJob("echo")])
    assert time.monotonic() - began_s < 4  # twice the lock time-out of 0.3 s, not the holder's hours
    assert isinstance(culprit, KeyBusy)
    assert culprit.retryable
    assert culprit.key == "held"
    assert all(isinstance(answer, Enqueued) and not answer.duplicate for answer in (a, b, plain))
    await holder.commit()
    assert await store.intake.enqueue([keyed("held")]) == [Enqueued(held.id, duplicate=True)]
    assert await stored(sql) == 4


async def test_a_held_key_keeps_the_others_of_its_group_waiting_for_a_moment_alone(
    config: StoreConfig, store: Store, sql: Sql
) -> None:
    holder = sql.transaction()
    await holder.start()
    await store.intake.enqueue([keyed("held")], connection=sql)
    async with open_store(replace(config, lock_timeout_s=20)) as patient:
        began_s = time.monotonic()
        answers = await patient.intake.enqueue_each([keyed(f"k{n}") for n in range(100)] + [keyed("held")])
        assert time.monotonic() - began_s < 10
    assert isinstance(answers.pop(), KeyBusy)
    assert all(isinstance(answer, Enqueued) for answer in answers)
    await holder.rollback()


async def test_a_key_is_free_again_when_its_holder_rolls_back(store: Store, sql: Sql) -> None:
    holder = sql.transaction()
    await holder.start()
    (held,) = await store.intake.enqueue([keyed("held")], connection=sql)
    with pytest.raises(KeyBusy):
        await store.intake.enqueue([keyed("held"), keyed("another")])
    await holder.rollback()
    answers = await store.intake.enqueue([keyed("held"), keyed("another")])
    assert [answer.duplicate for answer in answers] == [False, False]
    assert held.id not in {answer.id for answer in answers}
    assert await stored(sql) == 2


async def test_a_submission_that_waits_for_a_holder_takes_what_the_holder_leaves(store: Store, sql: Sql) -> None:
    holder = sql.transaction()
    await holder.start()
    (held,) = await store.intake.enqueue([keyed("held")], connection=sql)
    async with store.postgres.connection() as waiting, waiting.transaction():
        waiter = asyncio.create_task(store.intake.enqueue([keyed("held")], connection=waiting))
        await asyncio.wait({waiter}, timeout=0.1)
        assert not waiter.done()
        await holder.commit()
        assert await waiter == [Enqueued(held.id, duplicate=True)]
    assert await stored(sql) == 1


# Expiry. --------------------------------------------------------------------------------------------------------------


async def test_keys_expire_only_when_old_and_their_job_has_finished(rig: Rig, store: Store, sql: Sql) -> None:
    finished = [s for s in Status if s in {Status.COMPLETED, Status.FAILED, Status.CANCELLED}]
    old = {status: await rig.job(status, idempotency_key=f"old-{status}") for status in Status}
    young = {status: await rig.job(status, idempotency_key=f"young-{status}") for status in finished}
    ttl = f"{store.postgres.config.key_ttl_s} seconds"
    await sql.execute(f"update windlass.idempotency set created_at = now() - interval '{ttl}' where key like 'old-%'")
    assert await store.upkeep.expire_keys(limit=2) == len(finished)  # page by page, all of them
    assert await store.upkeep.expire_keys() == 0
    left = {row["key"] for row in await sql.fetch("select key from windlass.idempotency")}
    assert left == {f"old-{status}" for status in old if status not in finished} | {f"young-{s}" for s in young}
    (again,) = await store.intake.enqueue([keyed(f"old-{Status.COMPLETED}")])
    assert not again.duplicate
