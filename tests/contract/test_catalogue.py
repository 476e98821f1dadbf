"""What workers declare is what the catalogue shows; and saying it again writes nothing."""

import asyncio
import json
import random
from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

import asyncpg

from tests.factory import Rig
from windlass.model import Declared, NewJob, NewWorker, RetryPolicy
from windlass.store.store import Store

Sql = asyncpg.Connection
FULL = Declared(
    name="images.resize",
    queue="media",
    priority=-3,
    thread_demand=4,
    max_attempts=7,
    timeout_s=9.5,
    retry=RetryPolicy(2, 3, 60, 0),
    tags=("red", "it's"),
    if_too_wide="fail",
    isolation="process",
    description="Make it smaller.\n\nMuch.",
    schema=json.dumps({"type": "object", "properties": {"width": {"type": "integer"}}}),
)


async def shown(store: Store) -> list[Declared]:
    return [known.declared for known in await store.views.types()]


async def test_a_declared_type_is_shown_as_it_was_declared(store: Store) -> None:
    assert await store.upkeep.declare([]) == 0
    assert await store.views.types() == []
    assert await store.upkeep.declare([FULL, Declared("echo")]) == 2
    assert await shown(store) == [Declared("echo"), FULL]


async def test_what_changed_is_written_and_nothing_else(store: Store, sql: Sql) -> None:
    async def rows() -> list[asyncpg.Record]:
        return await sql.fetch("select name, xmin::text, xmax::text, ctid::text from windlass.job_type order by name")

    types = [FULL, Declared("echo"), Declared("other")]
    await store.upkeep.declare(types)
    before = await rows()
    assert await store.upkeep.declare(types[::-1]) == 0
    assert await rows() == before, "not even locked"
    changes: dict[str, Any] = {
        "queue": "q", "priority": 1, "thread_demand": 2, "max_attempts": 2, "timeout_s": 1.0, "retry": None, "tags": (),
        "if_too_wide": "wait", "isolation": "none", "description": None, "schema": None,
    }  # fmt: skip
    changed = FULL
    for field, value in changes.items():
        changed = replace(changed, **{field: value})
        assert await store.upkeep.declare([changed, *types[1:]]) == 1, field
        assert (await shown(store))[1] == changed
    assert (await rows())[::2] == before[::2]
    assert await store.upkeep.declare([FULL]) == 1


async def test_many_may_declare_at_once_and_one_writes(store: Store, sql: Sql) -> None:
    types = [replace(FULL, name=f"t{n}") for n in range(30)]
    draw = random.Random(1)
    written = await asyncio.gather(*(store.upkeep.declare(draw.sample(types, len(types))) for _ in range(12)))
    assert sum(written) == len(types)
    assert len(await shown(store)) == len(types)
    assert await sql.fetchval("select count(*) from windlass.job_type where xmax <> '0'") <= len(types)


async def test_a_type_is_alive_while_a_living_worker_knows_it(store: Store, rig: Rig) -> None:
    async def alive() -> dict[str, bool]:
        return {known.declared.name: known.alive for known in await store.views.types()}

    await store.upkeep.declare([Declared("echo"), Declared("strange")])
    assert await alive() == {"echo": False, "strange": False}
    worker = await rig.worker(types=["echo", "undeclared"])
    assert await alive() == {"echo": True, "strange": False}
    await store.upkeep.bury([worker.id], "left")
    assert await alive() == {"echo": False, "strange": False}


async def test_a_docstring_or_a_schema_that_cannot_be_stored_keeps_no_type_out(store: Store) -> None:
    odd = [json.dumps({"default": "\0"}), json.dumps({"enum": ["\ud800"]}), json.dumps({"default": "\\u0000"})]
    types = [Declared(f"t{n}", description="a\0b\ud800", schema=schema) for n, schema in enumerate(odd)]
    await store.upkeep.declare(types)
    assert [(one.description, one.schema is None) for one in await shown(store)] == [("a\ufffdb\ufffd", True)] * 3


def versioned(*fields: str) -> Declared:
    return Declared("send", schema=json.dumps({"properties": {name: {} for name in fields}}), fields=fields)


async def register(store: Store, *types: Declared) -> UUID:
    worker_id = uuid4()
    names, digests = [one.name for one in types], [one.digest for one in types]
    await store.upkeep.register(NewWorker(worker_id, "w", 1, ["default"], names, None, digests), lease_ttl_s=600)
    await store.upkeep.declare(types)
    return worker_id


async def test_the_schema_shown_is_that_of_the_one_version_that_lives(store: Store) -> None:
    v1, v2 = versioned("to"), versioned("to", "note")

    async def shown() -> tuple[str | None, int, bool]:
        (known,) = await store.views.types()
        return known.declared.schema, known.versions, known.current

    old = await register(store, v1)
    assert await shown() == (v1.schema, 1, True)
    new = await register(store, v2)
    assert await shown() == (v2.schema, 2, False)
    await store.upkeep.bury([new], "left")
    assert await shown() == (v1.schema, 1, True), "not the last one to be declared"
    await store.upkeep.bury([old], "left")
    assert await shown() == (v2.schema, 0, False)


async def test_saying_again_that_a_type_is_declared_writes_once_a_day(store: Store, sql: Sql) -> None:
    async def written() -> list[asyncpg.Record]:
        kinds = "select 'type', xmin::text from windlass.job_type union all select 'version', xmin::text from windlass.type_version"
        return await sql.fetch(kinds)

    await store.upkeep.declare([FULL])
    before = await written()
    await store.upkeep.declare([FULL])
    assert await written() == before
    await age(sql, "25 hours")
    await store.upkeep.declare([FULL])
    assert await ages(sql) == [0, 0]


async def age(sql: Sql, span: str) -> None:
    for table in ("job_type", "type_version"):
        await sql.execute(f"update windlass.{table} set declared_at = declared_at - interval '{span}'")


async def ages(sql: Sql) -> list[int]:
    """Of all types and versions, in days."""
    rows = await sql.fetch(
        "select extract(day from now() - declared_at)::integer as days from windlass.job_type"
        " union all select extract(day from now() - declared_at)::integer from windlass.type_version"
    )
    return sorted(row["days"] for row in rows)


async def test_types_that_nobody_declared_for_long_are_forgotten(store: Store, sql: Sql) -> None:
    worker = await register(store, FULL, Declared("echo"))
    await age(sql, "31 days")
    assert await store.upkeep.forget_types() == set(), "a worker has them all the while"
    assert await ages(sql) == [0] * 4
    await store.upkeep.bury([worker], "left")
    await age(sql, "29 days")
    assert await store.upkeep.forget_types() == set()
    await store.upkeep.declare([FULL])
    await age(sql, "2 days")
    assert await store.upkeep.forget_types() == {"echo"}
    assert [one.name for one in await shown(store)] == [FULL.name]
    assert await sql.fetchval("select count(*) from windlass.type_version") == 1


async def test_the_keys_that_are_taken_are_told(store: Store) -> None:
    await store.intake.enqueue([NewJob("echo", idempotency_key="a"), NewJob("echo", idempotency_key="b")])
    assert [await store.views.is_key_taken(None, key) for key in ("a", "c")] == [True, False]
