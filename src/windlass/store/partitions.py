"""Partitions of job, tag, outcome and attempt, by the time in the job's id.

Daily (weekly when more than 60 days are kept), some ahead, no default one. Made with LIKE and ATTACH, removed with
DETACH CONCURRENTLY, each under a lock time-out and tried again later: plain CREATE … PARTITION OF and DROP would queue
every look-up behind any open reader. A partition's name holds its bounds, so the catalogue alone says what is there,
what was made but not attached, and what was detached but not dropped: interrupted work is taken up where it stopped.

DETACH CONCURRENTLY runs in no transaction, so the lock time-out is the session's. Through a pooler in transaction mode, without
WINDLASS_DIRECT_URL, there is no session: the detach is a plain one then, in a transaction, with a time-out so short that nobody
notices those who queue behind it.

Before a removal the horizon is raised (later writes about those jobs go to the `_kept` tables), older transactions are
waited for, and every job that must outlive its partition is moved; after the detach they are looked for once more.
"""

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Final
from uuid import UUID

import asyncpg

from windlass.config import StoreConfig
from windlass.errors import Contended
from windlass.store.connections import connect, route_of
from windlass.store.ids import least_at
from windlass.store.postgres import Connection, translated
from windlass.store.protocol import Rolled
from windlass.store.statements import statements

# job comes last: made first, it would take jobs that cannot finish; removed first, they would be out of sight.
_TABLES: Final = ("attempt", "outcome", "tag", "job")
_PAGE: Final = 1_000
_LOCK_TIMEOUT_MS: Final = 2_000
_PLAIN_DETACH_MS: Final = 50


@dataclass(frozen=True, order=True, slots=True)
class Bounds:
    """A range of days, and so of ids."""

    lower: date
    upper: date

    @property
    def suffix(self) -> str:
        return f"{self.lower:%Y%m%d}_{self.upper:%Y%m%d}"

    @property
    def ids(self) -> tuple[UUID, UUID]:
        return _least_of(self.lower), _least_of(self.upper)

    @classmethod
    def of(cls, name: str) -> "Bounds":
        _, lower, upper = name.rsplit("_", 2)
        return cls(date.fromisoformat(lower), date.fromisoformat(upper))


def _least_of(day: date) -> UUID:
    return least_at(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp())


def wanted(today: date, made: Collection[Bounds], *, ahead: int, retention_days: int) -> list[Bounds]:
    """The partitions still to be made: whatever days from yesterday (ids may be a day old) to `ahead` steps from now are
    not in one yet. Days long gone are left out, however long we were away."""
    step = timedelta(days=7 if retention_days > 60 else 1)
    found = []
    lower = today - timedelta(days=1)
    while lower <= today + step * ahead:
        covering = next((bounds for bounds in made if bounds.lower <= lower < bounds.upper), None)
        if covering is None:
            next_made = min((bounds.lower for bounds in made if bounds.lower > lower), default=lower + step)
            covering = Bounds(lower, min(lower + step, next_made))
            found.append(covering)
        lower = covering.upper
    return found


async def create_missing(connection: Connection, schema: str, *, ahead: int, retention_days: int = 1) -> list[str]:
    """Make what is missing inside the caller's transaction: all of it, or nothing that would have to be mended."""
    sql = statements(schema)
    await connection.fetch(sql["partition_lock"], schema)
    today: date = await connection.fetchval(sql["today"])
    rows = await connection.fetch(sql["partitions"], schema)
    attached = [Bounds.of(row["name"]) for row in rows if row["attached"] and not row["detaching"]]
    whole = {bounds for bounds in attached if attached.count(bounds) == len(_TABLES)}
    return [
        f"{table}_{bounds.suffix}"
        for bounds in wanted(today, whole, ahead=ahead, retention_days=retention_days)
        for table in _TABLES
        if await _create(connection, schema, table, bounds)
    ]


async def made_until(connection: Connection, schema: str) -> tuple[date, date]:
    """Today, and the first day from then on for which no job could be stored, because some partition is missing."""
    sql = statements(schema)
    today: date = await connection.fetchval(sql["today"])
    rows = await connection.fetch(sql["partitions"], schema)
    attached = [Bounds.of(row["name"]) for row in rows if row["attached"] and not row["detaching"]]
    until = today
    for bounds in sorted(set(attached)):
        if bounds.lower <= until < bounds.upper and attached.count(bounds) == len(_TABLES):
            until = bounds.upper
    return today, until


async def rights_problem(connection: Connection, schema: str) -> str | None:
    """Why the role of this connection could not make or remove partitions; None if it could."""
    row = await connection.fetchrow(statements(schema)["partition_rights"], schema)
    if row is None or (row["creates"] and row["foreign_owner"] is None):
        return None
    if row["foreign_owner"] is not None:
        cure = f'grant "{row["foreign_owner"]}" to "{row["role"]}"'
    else:
        cure = f'grant create on schema "{schema}" to "{row["role"]}"'
    return f"the role {row['role']} cannot make partitions of schema {schema}, and without them no job can be stored ({cure})"


async def drop_all(connection: Connection, schema: str) -> None:
    """Drop what detached partitions and unattached ones a downgrade would leave behind."""
    for row in await connection.fetch(statements(schema)["partitions"], schema):
        await connection.execute(f'drop table if exists "{schema}"."{row["name"]}"')


async def make_ahead(config: StoreConfig) -> list[str]:
    """Make the partitions that are missing."""
    async with _session(config) as connection:
        return await _make_ahead(connection, config)


async def roll(config: StoreConfig) -> Rolled:
    """Make partitions ahead and remove old ones. Repeat it at leisure: each step is safe to repeat."""
    async with _session(config) as connection:
        made = await _make_ahead(connection, config)
        shared = (await route_of(connection, config, direct=True)).shared
        removed, waiting = await _remove_old(connection, config, shared=shared)
        return Rolled(made, removed, waiting)


@asynccontextmanager
async def _session(config: StoreConfig) -> AsyncIterator["asyncpg.Connection[asyncpg.Record]"]:
    """A connection of its own, without a time-out for statements: a large partition takes its time."""
    connection = await connect(config, direct=True, patient=True)
    try:
        with translated():
            yield connection
    finally:
        try:
            await connection.close(timeout=5)
        except (TimeoutError, OSError, asyncpg.PostgresError):
            connection.terminate()


async def _make_ahead(connection: Connection, config: StoreConfig) -> list[str]:
    async with _limited(connection):
        return await create_missing(
            connection, config.schema, ahead=config.partitions_ahead, retention_days=config.retention_days
        )


async def _create(connection: Connection, schema: str, table: str, bounds: Bounds) -> bool:
    name = f'"{schema}"."{table}_{bounds.suffix}"'
    rows = await connection.fetch(statements(schema)["partitions"], schema)
    row = next((row for row in rows if row["name"] == f"{table}_{bounds.suffix}"), None)
    if row is not None and row["attached"]:
        return False
    if row is None:
        await connection.execute(f'create table {name} (like "{schema}"."{table}" including all)')
        owner = await connection.fetchval(statements(schema)["partition_owner"], schema, table)
        if owner is not None:
            quoted = owner.replace('"', '""')
            await connection.execute(f'alter table {name} owner to "{quoted}"')
    lower, upper = bounds.ids
    await connection.execute(
        f"alter table \"{schema}\".\"{table}\" attach partition {name} for values from ('{lower}') to ('{upper}')"
    )
    return True


async def _remove_old(connection: Connection, config: StoreConfig, *, shared: bool) -> tuple[list[str], list[str]]:
    sql = statements(config.schema)
    today: date = await connection.fetchval(sql["today"])
    oldest = today - timedelta(days=config.retention_days)
    rows = await connection.fetch(sql["partitions"], config.schema)
    old = sorted({bounds for row in rows if (bounds := Bounds.of(row["name"])).upper <= oldest})
    removed, waiting = [], []
    for bounds in old:
        try:
            await _remove(connection, config, bounds, shared=shared)
            removed.append(bounds.suffix)
        except (Contended, asyncpg.UndefinedTableError, asyncpg.ObjectNotInPrerequisiteStateError):
            # Open transactions, or another leader that is a step ahead of us.
            waiting.append(bounds.suffix)
    return removed, waiting


async def _remove(connection: Connection, config: StoreConfig, bounds: Bounds, *, shared: bool) -> None:
    sql = statements(config.schema)
    lower, upper = bounds.ids
    async with _limited(connection):
        await connection.execute(sql["raise_horizon"], upper)
    await _old_writers_end(connection, config.schema)
    while keepers := await connection.fetch(sql["keepers"], lower, upper, config.retention_s, _PAGE):
        async with _limited(connection):
            await connection.fetch(sql["keep"], [row["job_id"] for row in keepers])
    for table in _TABLES:
        await _detach(connection, config.schema, table, bounds, shared=shared)
    async with _limited(connection):
        names = [f'"{config.schema}"."{table}_{bounds.suffix}"' for table in _TABLES]
        # Two leaders may remove at once: the second waits here, and finds the tables gone.
        if await connection.fetchval("select to_regclass($1) is null", names[0]):
            return
        await connection.execute(f"lock table {', '.join(names)} in access exclusive mode")
        await connection.execute(sql["keep_late"].replace("{bounds}", bounds.suffix), config.retention_s)
        await connection.execute(sql["uncount"].replace("{bounds}", bounds.suffix))
        await connection.execute(f"drop table {', '.join(names)}")


@asynccontextmanager
async def _limited(connection: Connection, milliseconds: int | None = None) -> AsyncIterator[None]:
    """A transaction that rather gives up than lets others queue behind a lock it waits for."""
    with translated():
        async with connection.transaction():
            await connection.execute(f"set local lock_timeout = {milliseconds or _LOCK_TIMEOUT_MS}")
            yield


async def _old_writers_end(connection: Connection, schema: str) -> None:
    """Wait for transactions that do not know of the raised horizon: one of them may yet finish a job into the partition,
    where it would be out of sight from the detach until the last look."""
    for _ in range(max(1, _LOCK_TIMEOUT_MS // 20)):
        if not await connection.fetchval(statements(schema)["stale_writers"]):
            return
        await asyncio.sleep(0.02)
    raise Contended("older transactions are still open")


async def _detach(connection: Connection, schema: str, table: str, bounds: Bounds, *, shared: bool) -> None:
    """Detach without blocking anyone; an earlier detach that was interrupted is finished instead."""
    name = f"{table}_{bounds.suffix}"
    rows = {row["name"]: row for row in await connection.fetch(statements(schema)["partitions"], schema)}
    if name not in rows or not rows[name]["attached"]:
        return
    detach = f'alter table "{schema}"."{table}" detach partition "{schema}"."{name}"'
    if rows[name]["detaching"] or shared:
        async with _limited(connection, _PLAIN_DETACH_MS if shared else None):
            await connection.execute(f"{detach} finalize" if rows[name]["detaching"] else detach)
        return
    with translated():
        # In no transaction, so the time-out is the session's.
        await connection.execute(f"set lock_timeout = {_LOCK_TIMEOUT_MS}")
        try:
            await connection.execute(f"{detach} concurrently")
        finally:
            await connection.execute("reset lock_timeout")
