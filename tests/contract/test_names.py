"""The names that submissions use: noted once, counted, and forgotten when nobody uses them any more."""

import asyncpg

from tests.factory import Rig
from windlass.model import Declared
from windlass.store.store import Store

Sql = asyncpg.Connection


async def known(sql: Sql) -> set[tuple[str, str]]:
    return {(row["kind"], row["name"]) for row in await sql.fetch("select kind, name from windlass.known_name")}


async def test_new_names_are_noted_all_or_none(store: Store, sql: Sql) -> None:
    assert await store.intake.admit_names("queue", ["a", "b"], most=3) == set()
    assert await store.intake.admit_names("queue", ["a", "c", "d"], most=3) == {"c", "d"}
    assert await known(sql) == {("queue", "a"), ("queue", "b")}
    assert await store.intake.admit_names("tag", ["c"], most=3) == set()  # each kind has its own bound


async def test_names_of_jobs_are_noted_and_those_that_nobody_uses_forgotten(rig: Rig, store: Store, sql: Sql) -> None:
    await store.upkeep.declare([Declared("echo")])
    await rig.enqueue(queue="used", tags=["used"])
    await rig.enqueue(type="undeclared")
    await store.intake.admit_names("queue", ["x", "y"], most=3)
    await store.intake.admit_names("tag", ["x", "used"], most=4)
    assert await store.upkeep.keep_names() == set()  # noted a moment ago
    assert await store.upkeep.forget_tags() == 0
    assert await store.upkeep.keep_names(unused_s=0) == {"x", "y"}
    assert await store.upkeep.forget_tags(unused_s=0) == 1
    assert await known(sql) == {("queue", "used"), ("queue", "default"), ("type", "undeclared")}
    assert await store.intake.admit_names("tag", ["used"], most=0) == set()  # some job has it


async def test_tags_are_forgotten_in_pages(store: Store, sql: Sql) -> None:
    await store.intake.admit_names("tag", [f"tag-{n}" for n in range(25)], most=100)
    assert await store.upkeep._names.forget_tags(unused_s=0, limit=10) == 25
    assert await known(sql) == set()


async def test_an_empty_queue_that_is_open_is_forgotten_and_a_paused_one_is_not(rig: Rig, store: Store) -> None:
    for name in ("open", "paused", "used"):
        await store.intake.set_paused(name, paused=True)
    await store.intake.set_paused("open", paused=False)
    await rig.enqueue(queue="used")
    await store.intake.set_paused("used", paused=False)
    await store.upkeep.keep_names()
    assert {queue.name: queue.paused for queue in await store.views.queues()} == {"paused": True, "used": False}
