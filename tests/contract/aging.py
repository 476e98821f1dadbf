"""Jobs whose ids are of long ago, in a partition of that day: what a store looks like after weeks of use."""

from datetime import date, timedelta
from typing import Any
from uuid import UUID

from tests.factory import Rig
from windlass.store import partitions
from windlass.store.partitions import Bounds
from windlass.store.postgres import Connection
from windlass.store.store import Store

DAYS_AGO = 30


async def partition_of(sql: Connection, *, days_ago: int = DAYS_AGO) -> Bounds:
    """A whole partition of one day long ago."""
    today: date = await sql.fetchval("select now()::date")
    bounds = Bounds(today - timedelta(days=days_ago), today - timedelta(days=days_ago - 1))
    for table in ("job", "tag", "outcome", "attempt"):
        await partitions._create(sql, "windlass", table, bounds)
    return bounds


async def old_jobs(rig: Rig, sql: Connection, count: int = 1, *, days_ago: int = DAYS_AGO, **fields: Any) -> list[UUID]:
    """Jobs submitted that long ago, as far as their ids say."""
    await partition_of(sql, days_ago=days_ago)
    postgres = rig.store.postgres
    postgres._database_minus_local_s -= days_ago * 86_400
    try:
        return await rig.enqueue(count, **fields)
    finally:
        postgres._database_minus_local_s += days_ago * 86_400


async def finished_long_ago(sql: Connection) -> None:
    await sql.execute("update windlass.outcome set finished_at = finished_at - interval '30 days'")


async def attached(store: Store) -> set[str]:
    """The days that have partitions."""
    async with store.postgres.connection() as connection:
        rows = await connection.fetch(store.postgres.sql["partitions"], "windlass")
    return {Bounds.of(row["name"]).suffix for row in rows}
