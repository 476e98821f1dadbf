"""What workers declare is what the catalogue shows; and saying it again writes nothing."""

import asyncio
import json
import random
from dataclasses import replace
from typing import Any

import asyncpg

from tests.factory import Rig
from windlass.model import Declared, RetryPolicy
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
