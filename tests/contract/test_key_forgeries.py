"""What Redis says of idempotency keys is believed if this very store said it, of itself as it is now; else PostgreSQL decides."""

from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from tests.eventually import aeventually
from tests.shortcuts import Behind, behind, client, jobs_stored, keyed, learnt, values
from windlass.bus.protocol import Remembered
from windlass.bus.redis.keys import RedisKeyMemory
from windlass.bus.redis.seals import Seals
from windlass.config import StoreConfig
from windlass.model import Enqueued, NewJob
from windlass.store import migrate
from windlass.store.rows import fingerprint_of
from windlass.store.store import Store, open_store

Sql = asyncpg.Connection


pytestmark = pytest.mark.usefixtures("emptied")


async def both(door: Behind, jobs: Sequence[NewJob], sql: Sql) -> list[Enqueued]:
    """The answer, which must be that of PostgreSQL, and have been asked there."""
    answers = await door.intake.enqueue(jobs)
    holders = {row["key"]: row["job_id"] for row in await sql.fetch("select key, job_id from windlass.idempotency")}
    assert [one.id for one in answers] == [holders[job.idempotency_key] for job in jobs]
    return answers


async def test_forged_values_are_misses_and_are_replaced_by_true_ones(door: Behind, sql: Sql, valkey: Any) -> None:
    a, b = keyed("a", 1), keyed("b", 1)
    await door.intake.enqueue([a, b])
    true = await learnt(valkey, 2)
    one, two = true
    forgeries: list[dict[bytes, bytes]] = [
        {one: true[two], two: true[one]},
        {one: b"", two: b"x" * 88},
        {one: true[one][:-1], two: true[two] + b"\0"},
        {one: bytes([true[one][0] ^ 1]) + true[one][1:], two: true[two][:40] + b"\0" * 48},
    ]
    for forged in forgeries:
        with client(valkey.url) as connection:
            connection.mset(forged)
        await both(door, [a, b], sql)

        async def healed() -> bool:
            return {name: value[32:80] for name, value in values(valkey.url).items()} == {
                name: value[32:80] for name, value in true.items()
            }

        await aeventually(healed)
    assert await jobs_stored(sql) == 2


async def test_values_of_another_kind_are_misses(door: Behind, sql: Sql, valkey: Any) -> None:
    await door.intake.enqueue([keyed("a")])
    (name,) = await learnt(valkey, 1)
    with client(valkey.url) as connection:
        connection.delete(name)
        connection.rpush(name, "a", "list")
    assert (await both(door, [keyed("a")], sql))[0].duplicate


async def test_installations_that_share_a_redis_do_not_answer_for_each_other(
    store: Store, sql: Sql, valkey: Any, config: StoreConfig
) -> None:
    await migrate.upgrade(sql, "team_b")
    async with AsyncExitStack() as stack:
        other = await stack.enter_async_context(open_store(replace(config, schema="team_b")))
        ours = await stack.enter_async_context(behind(valkey.url, store))
        theirs = await stack.enter_async_context(behind(valkey.url, other))
        (first,) = await ours.intake.enqueue([keyed("k")])
        (name,) = await learnt(valkey, 1)
        (second,) = await theirs.intake.enqueue([keyed("k")])
        assert not second.duplicate
        found = await learnt(valkey, 2)
        # Not even if one of them could write under the other's name.
        (their_name,) = set(found) - {name}
        with client(valkey.url) as connection:
            connection.set(their_name, found[name])
        assert await theirs.intake.enqueue([keyed("k")]) == [Enqueued(second.id, duplicate=True)]
        assert await ours.intake.enqueue([keyed("k")]) == [Enqueued(first.id, duplicate=True)]


async def test_after_a_restore_nothing_that_was_remembered_before_counts(store: Store, sql: Sql, valkey: Any) -> None:
    """The job is gone with everything since the backup; the row of the identity is in the backup, too."""
    async with behind(valkey.url, store) as door:
        (lost,) = await door.intake.enqueue([keyed("k")])
        await learnt(valkey, 1)
    await sql.execute(
        "create temp table dump as select * from windlass.identity;"
        "truncate windlass.identity, windlass.job, windlass.ready, windlass.idempotency, windlass.counter;"
        "insert into windlass.identity select * from dump"
    )
    async with behind(valkey.url, store) as door:
        (stored,) = await door.intake.enqueue([keyed("k")])
        assert not stored.duplicate
        assert stored.id != lost.id


async def test_what_is_learnt_under_one_store_is_not_told_to_the_next(store: Store, sql: Sql, valkey: Any) -> None:
    """A standby takes over between the commit and the moment it would be learnt; perhaps it lacks that commit."""
    async with behind(valkey.url, store) as door:
        keys = door.shortcuts.keys
        before = (await keys.recall(["k"])).under
        assert before is not None
        await sql.execute("update windlass.identity set id = gen_random_uuid()")

        async def noticed() -> bool:
            return (await keys.recall(["k"])).under not in (before, None)

        await aeventually(noticed)
        print_ = fingerprint_of(keyed("k"), bytes_max=1024)
        keys.learn({"k": Remembered(UUID(int=1 << 100), print_)}, under=before)
        assert (await keys.recall(["k"])).found == {}
        assert values(valkey.url) == {}


async def test_while_the_store_is_not_known_redis_is_not_asked(door: Behind, sql: Sql, valkey: Any) -> None:
    await door.intake.enqueue([keyed("k")])
    await learnt(valkey, 1)
    await sql.fetch(
        "select pg_terminate_backend(pid) from pg_stat_activity where pid <> pg_backend_pid()"
        " and datname = current_database()"
    )

    async def unknown() -> bool:
        return (await door.shortcuts.keys.recall(["k"])).under is None

    async def known() -> bool:
        return (await door.shortcuts.keys.recall(["k"])).found != {}

    await aeventually(unknown)
    await aeventually(known)


async def test_a_value_past_its_time_is_a_miss_though_redis_still_has_it(
    store: Store, door: Behind, valkey: Any
) -> None:
    await door.intake.enqueue([keyed("k")])
    (name,) = await learnt(valkey, 1)
    with client(valkey.url) as connection:
        connection.persist(name)
    now_ms = store.postgres.now_ms
    async with Seals(store.identities) as seals:
        for later_ms, count in ((23 * 3_600_000, 1), (24 * 3_600_000, 0)):
            memory = RedisKeyMemory(door.link, seals, key_ttl_s=86_400, now_ms=partial(_later, now_ms, later_ms))
            assert len((await memory.recall(["k"])).found) == count
            await memory.aclose()


def _later(now_ms: Callable[[], int], by_ms: int) -> int:
    return now_ms() + by_ms


async def test_a_key_there_is_doubt_about_is_asked_of_postgresql_from_then_on(
    door: Behind, sql: Sql, valkey: Any
) -> None:
    await door.intake.enqueue([keyed("k")])
    await learnt(valkey, 1)
    door.shortcuts.keys.forget(["k"])
    assert (await door.shortcuts.keys.recall(["k"])).found == {}
    assert (await both(door, [keyed("k")], sql))[0].duplicate

    async def gone() -> bool:
        return values(valkey.url) == {}

    await aeventually(gone)
