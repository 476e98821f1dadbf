"""Partitions of job, tag, outcome and attempt, by the time in the job's id.

Daily (weekly when more than 60 days are kept), some ahead, no default one. Made with LIKE and ATTACH, removed with
DETACH CONCURRENTLY, each under a lock time-out and tried again later: plain CREATE … PARTITION OF and DROP would queue
every look-up behind any open reader. A partition's name holds its bounds, so the catalogue alone says what is there,
what was made but not attached, and what was detached but not dropped: interrupted work is taken up where it stopped.

Before a removal the horizon is raised (later writes about those jobs go to the `_kept` tables), older transactions are
waited for, and every job that must outlive its partition is moved; after the detach they are looked for once more.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Final
from uuid import UUID

import asyncpg

from windlass.config import StoreConfig
from windlass.errors import Contended
from windlass.store.ids import least_at
from windlass.store.postgres import Connection, connect, translated
from windlass.store.protocol import Rolled
from windlass.store.statements import statements

_KEYS: Final = {"job": "id", "tag": "job_id", "outcome": "job_id", "attempt": "job_id"}
_PAGE: Final = 1_000
_LOCK_TIMEOUT_MS: Final = 2_000


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


def wanted(today: date, last: date | None, *, ahead: int, retention_days: int) -> list[Bounds]:
    """The partitions still to be made, from the last one's end (or yesterday) to `ahead` steps from now."""
    step = timedelta(days=7 if retention_days > 60 else 1)
    # Ids may be up to a day old. Days nobody could have written to are left out, however long we were away.
    lower = max(last, today - timedelta(days=1)) if last else today - timedelta(days=1)
    found = []
    while lower <= today + step * ahead:
        found.append(Bounds(lower, lower + step))
        lower += step
    return found


async def create_first(connection: Connection, schema: str, *, ahead: int, retention_days: int = 1) -> None:
    """Make what is missing inside the caller's transaction, under its lock: for the migration that made the tables."""
    for bounds in await _missing(connection, schema, ahead=ahead, retention_days=retention_days):
        for table in _KEYS:
            await _create(connection, schema, table, bounds)


async def drop_all(connection: Connection, schema: str) -> None:
    """Drop what detached partitions and unattached ones a downgrade would leave behind."""
    for row in await connection.fetch(statements(schema)["partitions"], schema):
        await connection.execute(f'drop table if exists "{schema}"."{row["name"]}"')


async def make_ahead(config: StoreConfig) -> list[str]:
    """Make the partitions that are missing, from today on."""
    async with _impatient(config) as connection:
        return await _make_ahead(connection, config)


async def roll(config: StoreConfig) -> Rolled:
    """Make partitions ahead and remove old ones. Repeat it at leisure: each step is safe to repeat."""
    async with _impatient(config) as connection:
        made = await _make_ahead(connection, config)
        removed, waiting = await _remove_old(connection, config)
        return Rolled(made, removed, waiting)


@asynccontextmanager
async def _impatient(config: StoreConfig) -> AsyncIterator[Connection]:
    """A session of its own that gives up rather than let others queue behind a lock it waits for."""
    connection = await connect(config, direct=True)
    try:
        with translated():
            await connection.execute(f"set lock_timeout = {_LOCK_TIMEOUT_MS}")
            yield connection
    finally:
        await connection.close(timeout=5)


async def _make_ahead(connection: Connection, config: StoreConfig) -> list[str]:
    made = []
    missing = await _missing(
        connection, config.schema, ahead=config.partitions_ahead, retention_days=config.retention_days
    )
    for bounds in missing:
        for table in _KEYS:
            async with connection.transaction():
                await connection.fetch(statements(config.schema)["partition_lock"], config.schema)
                if await _create(connection, config.schema, table, bounds):
                    made.append(f"{table}_{bounds.suffix}")
    return made


async def _missing(connection: Connection, schema: str, *, ahead: int, retention_days: int) -> list[Bounds]:
    sql = statements(schema)
    today = await connection.fetchval(sql["today"])
    rows = await connection.fetch(sql["partitions"], schema)
    # A range counts as made only when all of its tables are attached.
    attached = [Bounds.of(row["name"]) for row in rows if row["attached"] and not row["detaching"]]
    whole = [bounds for bounds in set(attached) if attached.count(bounds) == len(_KEYS)]
    last = max((bounds.upper for bounds in whole), default=None)
    return wanted(today, last, ahead=ahead, retention_days=retention_days)


async def _create(connection: Connection, schema: str, table: str, bounds: Bounds) -> bool:
    name = f'"{schema}"."{table}_{bounds.suffix}"'
    rows = await connection.fetch(statements(schema)["partitions"], schema)
    row = next((row for row in rows if row["name"] == f"{table}_{bounds.suffix}"), None)
    if row is not None and row["attached"]:
        return False
    if row is None:
        await connection.execute(f'create table {name} (like "{schema}"."{table}" including all)')
    lower, upper = bounds.ids
    await connection.execute(
        f"alter table \"{schema}\".\"{table}\" attach partition {name} for values from ('{lower}') to ('{upper}')"
    )
    return True


async def _remove_old(connection: Connection, config: StoreConfig) -> tuple[list[str], list[str]]:
    sql = statements(config.schema)
    today: date = await connection.fetchval(sql["today"])
    oldest = today - timedelta(days=config.retention_days)
    rows = await connection.fetch(sql["partitions"], config.schema)
    old = sorted({bounds for row in rows if (bounds := Bounds.of(row["name"])).upper <= oldest})
    removed, waiting = [], []
    for bounds in old:
        try:
            await _remove(connection, config, bounds)
            removed.append(bounds.suffix)
        except (Contended, asyncpg.UndefinedTableError, asyncpg.ObjectNotInPrerequisiteStateError):
            # Open transactions, or another leader that is a step ahead of us.
            waiting.append(bounds.suffix)
    return removed, waiting


async def _remove(connection: Connection, config: StoreConfig, bounds: Bounds) -> None:
    sql = statements(config.schema)
    lower, upper = bounds.ids
    retention_s = config.retention_days * 86_400.0
    await connection.execute(sql["raise_horizon"], upper)
    await _old_writers_end(connection, config.schema)
    while keepers := await connection.fetch(sql["keepers"], lower, upper, retention_s, _PAGE):
        with translated():
            await connection.fetch(sql["keep"], [row["job_id"] for row in keepers])
    for table in _KEYS:
        await _detach(connection, config.schema, table, bounds)
    with translated():
        async with connection.transaction():
            names = [f'"{config.schema}"."{table}_{bounds.suffix}"' for table in _KEYS]
            # Two leaders may remove at once: the second waits here, and finds the tables gone.
            if await connection.fetchval("select to_regclass($1) is null", names[0]):
                return
            await connection.execute(f"lock table {', '.join(names)} in access exclusive mode")
            await connection.execute(sql["keep_late"].replace("{bounds}", bounds.suffix), retention_s)
            await connection.execute(sql["uncount"].replace("{bounds}", bounds.suffix))
            await connection.execute(f"drop table {', '.join(names)}")


async def _old_writers_end(connection: Connection, schema: str) -> None:
    """Wait for transactions that do not know of the raised horizon: one of them may yet finish a job into the partition,
    where it would be out of sight from the detach until the last look."""
    for _ in range(max(1, _LOCK_TIMEOUT_MS // 20)):
        if not await connection.fetchval(statements(schema)["stale_writers"]):
            return
        await asyncio.sleep(0.02)
    raise Contended("older transactions are still open")


async def _detach(connection: Connection, schema: str, table: str, bounds: Bounds) -> None:
    """Detach without blocking anyone; an earlier detach that was interrupted is finished instead."""
    name = f"{table}_{bounds.suffix}"
    rows = {row["name"]: row for row in await connection.fetch(statements(schema)["partitions"], schema)}
    if name not in rows or not rows[name]["attached"]:
        return
    how = "finalize" if rows[name]["detaching"] else "concurrently"
    with translated():
        await connection.execute(f'alter table "{schema}"."{table}" detach partition "{schema}"."{name}" {how}')
