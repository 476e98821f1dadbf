"""The first tier of idempotency says what PostgreSQL would say, or nothing: whatever is in Redis, and whoever put it there."""

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from tests.eventually import aeventually
from tests.factory import Rig
from tests.shortcuts import Behind, behind, client, jobs_stored, keyed, learnt, values
from windlass.bus.protocol import NoKeyMemory, Shortcuts
from windlass.bus.remembering import Remembering
from windlass.config import StoreConfig
from windlass.errors import InvalidJob, InvalidPayload, KeyBusy, KeyReused, WindlassError
from windlass.model import Enqueued, NewJob, Status
from windlass.store.store import Store, open_store

Sql = asyncpg.Connection


pytestmark = pytest.mark.usefixtures("emptied")


class Locked:
    """Nobody gets at jobs or keys meanwhile: what is answered is answered without PostgreSQL."""

    def __init__(self, sql: Sql) -> None:
        self._sql = sql
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> None:
        await self._stack.enter_async_context(self._sql.transaction())
        await self._sql.execute("lock table windlass.job, windlass.idempotency in access exclusive mode")

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()


# What it answers. -------------------------------------------------------------------------------------------------------


async def test_a_key_that_is_known_is_answered_without_postgresql(door: Behind, sql: Sql, valkey: Any) -> None:
    jobs = [keyed("a", {"n": 1}), keyed("b", {"n": 2})]
    first = await door.intake.enqueue(jobs)
    await learnt(valkey, 2)
    same = [Enqueued(one.id, duplicate=True) for one in first]
    async with Locked(sql):
        async with asyncio.timeout(2):
            assert await door.intake.enqueue(jobs) == same
            assert await door.intake.enqueue_each(jobs[::-1]) == same[::-1]
            assert await door.intake.enqueue([keyed("a", {"n": 1})] * 3) == [same[0]] * 3
        with pytest.raises(WindlassError):
            await door.intake.enqueue([keyed("unknown")])


async def test_what_is_known_and_what_is_not_go_together_in_their_order(door: Behind, sql: Sql, valkey: Any) -> None:
    (old,) = await door.intake.enqueue([keyed("old")])
    await learnt(valkey, 1)
    batch = [keyed("new"), keyed("old"), NewJob("echo"), keyed("new"), keyed("old")]
    answers = await door.intake.enqueue(batch)
    assert [one.duplicate for one in answers] == [False, True, False, True, True]
    assert answers[1].id == answers[4].id == old.id
    assert answers[0].id == answers[3].id
    assert await jobs_stored(sql) == 3


async def test_another_body_is_refused_as_by_postgresql_and_nothing_of_the_batch_is_stored(
    door: Behind, store: Store, sql: Sql, valkey: Any
) -> None:
    await door.intake.enqueue([keyed("k", {"n": 1})])
    await learnt(valkey, 1)
    for batch in ([keyed("k", {"n": 2})], [keyed("new"), keyed("k", {"n": 1}), keyed("k", {"n": 2})]):
        with pytest.raises(KeyReused) as here:
            await door.intake.enqueue(batch)
        with pytest.raises(KeyReused) as there:
            await store.intake.enqueue(batch)
        assert str(here.value) == str(there.value)
    answers = await door.intake.enqueue_each([keyed("k", {"n": 1}), keyed("k", {"n": 2})])
    assert isinstance(answers[0], Enqueued)
    assert isinstance(answers[1], KeyReused)
    assert await jobs_stored(sql) == 1
    await learnt(valkey, 1)


async def test_what_is_wrong_with_a_job_is_told_also_when_its_key_is_known(door: Behind, valkey: Any) -> None:
    await door.intake.enqueue([keyed("k", {"n": 1})])
    await learnt(valkey, 1)
    for wrong, error in (
        (keyed("k", {"n": 1}, priority=10**6), InvalidJob),
        (keyed("k", "x" * (1 << 20)), InvalidPayload),
        (keyed("k", {"n": 1}, id=UUID(int=5)), InvalidJob),
    ):
        with pytest.raises(error):
            await door.intake.enqueue([wrong])


async def test_the_answer_is_the_same_for_a_job_that_is_cancelled_or_done(
    door: Behind, rig: Rig, store: Store, valkey: Any
) -> None:
    (first,) = await door.intake.enqueue([keyed("k")])
    await learnt(valkey, 1)
    assert await door.intake.cancel(first.id) is Status.CANCELLED
    assert await door.intake.enqueue([keyed("k")]) == await store.intake.enqueue([keyed("k")])


@pytest.mark.parametrize(("size", "questions"), [(500, 1), (501, 0)])
async def test_hundreds_of_keys_take_one_question_and_a_large_batch_takes_none(
    door: Behind, valkey: Any, size: int, questions: int
) -> None:
    batch = [keyed(f"k{size}-{n}") for n in range(size)]
    first = await door.intake.enqueue(batch)
    if questions:
        await learnt(valkey, size)
    door.asked.clear()
    assert await door.intake.enqueue(batch) == [Enqueued(one.id, duplicate=True) for one in first]
    assert [what for what, _ in door.asked] == ["recall idempotency keys"] * questions


# What it learns. --------------------------------------------------------------------------------------------------------


async def test_it_learns_after_the_commit_and_never_before(
    sql: Sql, valkey: Any, url: str, config: StoreConfig
) -> None:
    other = await asyncpg.connect(url)
    transaction = other.transaction()
    await transaction.start()
    await other.execute(
        "insert into windlass.idempotency (key, job_id, created_at, fingerprint)"
        " values ('k', gen_random_uuid(), now(), '')"
    )
    patient = replace(config, lock_timeout_s=20)
    async with open_store(patient) as store, behind(valkey.url, store) as door:
        waiting = asyncio.create_task(door.intake.enqueue([keyed("k")]))
        await aeventually(lambda: _waits_for_a_lock(sql))
        await door.intake.enqueue([keyed("later")])
        (witness,) = await learnt(valkey, 1)  # what was to be learnt before it would be there, too
        await transaction.rollback()
        await other.close()
        assert not (await waiting)[0].duplicate
        assert witness in await learnt(valkey, 2)


async def _waits_for_a_lock(sql: Sql) -> bool:
    return bool(await sql.fetchval("select count(*) from pg_locks where not granted"))


async def test_what_was_not_stored_is_not_learnt(door: Behind, store: Store, sql: Sql, valkey: Any) -> None:
    with pytest.raises(InvalidJob):
        await door.intake.enqueue([keyed("k"), NewJob("echo", priority=10**6)])
    async with Locked(sql):
        with pytest.raises(KeyBusy):
            await door.intake.enqueue([keyed("k")])
    await door.intake.enqueue([keyed("known")])
    await learnt(valkey, 1)


async def test_a_key_in_a_callers_own_transaction_is_neither_looked_up_nor_learnt(
    door: Behind, sql: Sql, valkey: Any, url: str
) -> None:
    connection = await asyncpg.connect(url)
    async with connection.transaction():
        (first,) = await door.intake.enqueue([keyed("k")], connection=connection)
    await connection.close()
    assert door.asked == []
    assert values(valkey.url) == {}
    assert await door.intake.enqueue([keyed("k")]) == [Enqueued(first.id, duplicate=True)]
    await learnt(valkey, 1)


async def test_a_key_is_remembered_for_less_than_postgresql_keeps_it(
    store: Store, door: Behind, valkey: Any, config: StoreConfig
) -> None:
    await door.intake.enqueue([keyed("k")])
    (name,) = await learnt(valkey, 1)
    with client(valkey.url) as connection:
        life_ms = connection.pttl(name)
    assert 0.99 * 86_400_000 < life_ms < 86_400_000 - 300_000


async def test_keys_that_live_too_short_to_be_worth_it_are_not_learnt(
    store: Store, valkey: Any, config: StoreConfig
) -> None:
    async with open_store(replace(config, key_ttl_s=300)) as other, behind(valkey.url, other) as door:
        await door.intake.enqueue([keyed("short")])
        assert values(valkey.url) == {}
        assert (await door.intake.enqueue([keyed("short")]))[0].duplicate


async def test_nothing_that_was_submitted_can_be_read_in_redis(door: Behind, valkey: Any) -> None:
    await door.intake.enqueue([keyed("order-of-alice", {"card": "4111-1111"})])
    for name, value in (await learnt(valkey, 1)).items():
        assert b"alice" not in name + value
        assert b"4111" not in name + value


# The twin. --------------------------------------------------------------------------------------------------------------


async def test_the_twin_remembers_nothing_and_the_answers_are_the_same(store: Store, sql: Sql) -> None:
    intake = Remembering(store.intake, Shortcuts(keys=NoKeyMemory()), bytes_max=1 << 20)
    (first,) = await intake.enqueue([keyed("k", 1)])
    assert await intake.enqueue([keyed("k", 1)]) == [Enqueued(first.id, duplicate=True)]
    assert await intake.enqueue_each([keyed("k", 1)]) == [Enqueued(first.id, duplicate=True)]
    with pytest.raises(KeyReused):
        await intake.enqueue([keyed("k", 2)])
    NoKeyMemory().forget(["k"])
    assert await jobs_stored(sql) == 1
