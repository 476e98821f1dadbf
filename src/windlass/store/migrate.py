"""Bring a database's schema to what this code needs, and say where it stands.

Migrations are numbered pairs of SQL files, `0001_name.up.sql` and `.down.sql`, each applied once, in order, in one
transaction under a transaction-level advisory lock: several processes may start at once, and a failed upgrade leaves
nothing behind. A checksum is kept with each, so an edited migration is noticed.

Each migration states in its first line the oldest code it serves: `-- serves: 7` means that code whose last migration is 7
or later can work with it. That number is stored with it, so an older process can tell whether a schema newer than itself
still serves it: during a rolling deploy the old version goes on, and starts again, on the new schema. A newer schema that
does not serve this code is refused.
"""

import hashlib
import re
from dataclasses import dataclass
from typing import Final

import asyncpg

from windlass.errors import Misconfigured, SchemaMismatch
from windlass.store import partitions
from windlass.store.postgres import Connection, translated
from windlass.store.statements import in_schema, migration_files

_FILE: Final = re.compile(r"(\d{4})_(\w+)\.(up|down)\.sql")
_SERVES: Final = re.compile(r"-- serves: (\d+)\n")
_LOCK: Final = "select pg_advisory_xact_lock(hashtextextended('windlass migrate ' || $1, 0))"


@dataclass(frozen=True, slots=True)
class Migration:
    number: int
    name: str
    up: str
    down: str

    @property
    def serves(self) -> int:
        """The oldest code that can work with it, by the number of its last migration; not stated: none older."""
        stated = _SERVES.match(self.up)
        return int(stated[1]) if stated else self.number

    @property
    def checksum(self) -> str:
        """Of the statements: what a migration serves may turn out to be less, after it was applied."""
        return hashlib.sha256(_SERVES.sub("", self.up, count=1).encode()).hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class State:
    """Where a schema stands: what is applied, what is still to come, what is wrong with it. `newer`: what is applied, is not
    known to this code, and serves it all the same."""

    applied: tuple[int, ...]
    pending: tuple[int, ...]
    problems: tuple[str, ...]
    newer: tuple[int, ...] = ()

    @property
    def current(self) -> bool:
        return not self.pending and not self.problems


def migrations() -> list[Migration]:
    texts = migration_files()
    found = []
    for file in sorted(texts):
        match = _FILE.fullmatch(file)
        if match is None:
            raise Misconfigured(f"{file} is not named like 0001_name.up.sql")
        if match[3] == "up":
            down = texts[f"{match[1]}_{match[2]}.down.sql"]
            found.append(Migration(int(match[1]), match[2], texts[file], down))
    return found


async def upgrade(connection: Connection, schema: str = "windlass", *, ahead: int = 3) -> list[int]:
    """Apply what is missing; returns the numbers applied. Safe when several processes do it at once."""
    with translated():
        async with connection.transaction():
            await connection.execute(_LOCK, schema)
            await _prepare(connection, schema)
            state = await status(connection, schema)
            if state.problems:
                raise SchemaMismatch("; ".join(state.problems))
            if state.newer and state.pending:
                raise SchemaMismatch(
                    f"schema {schema!r} has migrations {list(state.newer)}, which this Windlass does not know, and lacks "
                    f"{list(state.pending)}: upgrade with the newer Windlass"
                )
            for migration in migrations():
                if migration.number in state.pending:
                    await connection.execute(in_schema(migration.up, schema))
                    await connection.execute(
                        in_schema(_NOTE, schema),
                        migration.number, migration.name, migration.checksum, migration.serves,
                    )  # fmt: skip
            await _correct_serves(connection, schema)
            # The first jobs need a partition to go to before any leader has had time to make one.
            await partitions.create_missing(connection, schema, ahead=ahead)
    return list(state.pending)


async def downgrade(connection: Connection, schema: str = "windlass", *, to: int = 0) -> list[int]:
    """Undo migrations above `to`, newest first; returns the numbers undone. Undoing the tables drops every job."""
    undone = []
    with translated():
        async with connection.transaction():
            await connection.execute(_LOCK, schema)
            state = await status(connection, schema)
            if state.problems:
                raise SchemaMismatch("; ".join(state.problems))
            if state.newer:
                raise SchemaMismatch(
                    f"schema {schema!r} has migrations {list(state.newer)}, newer than this Windlass knows: downgrade with "
                    "the Windlass that made them"
                )
            for migration in reversed(migrations()):
                if migration.number > to and migration.number in state.applied:
                    if migration.number == 1:
                        await partitions.drop_all(connection, schema)
                    await connection.execute(in_schema(migration.down, schema))
                    await connection.execute(
                        in_schema("delete from windlass.migration where number = $1", schema), migration.number
                    )
                    undone.append(migration.number)
            if to == 0 and undone:
                await connection.execute(in_schema("drop table windlass.migration", schema))
                await _drop_if_empty(connection, schema)
    return undone


async def status(connection: Connection, schema: str = "windlass") -> State:
    """Where the schema stands. Reads only."""
    known = {migration.number: migration for migration in migrations()}
    with translated():
        try:
            rows = await connection.fetch(in_schema(_APPLIED, schema))
        except (asyncpg.UndefinedTableError, asyncpg.InvalidSchemaNameError):
            rows = []
    applied = tuple(row["number"] for row in rows)
    unknown = [row for row in rows if row["number"] not in known]
    newest = max(known)
    newer = tuple(row["number"] for row in unknown if row["serves"] is not None and row["serves"] <= newest)
    problems = [
        f"schema {schema!r} is at migration {row['number']}, newer than this Windlass knows ({newest})"
        + (f", and serves code from {row['serves']} on" if row["serves"] is not None else "")
        + ": upgrade Windlass"
        for row in unknown
        if row["number"] not in newer
    ]
    problems += [
        f"migration {row['number']} of schema {schema!r} is not the one this Windlass has: it was changed after it was applied"
        for row in rows
        if row["number"] in known and known[row["number"]].checksum != row["checksum"]
    ]
    return State(applied, tuple(sorted(set(known) - set(applied))), tuple(problems), newer)


async def check(connection: Connection, schema: str = "windlass") -> State:
    """Refuse to go on with a schema that is older or other than this code's, or newer and does not serve it."""
    state = await status(connection, schema)
    if state.problems:
        raise SchemaMismatch("; ".join(state.problems))
    if state.pending:
        raise SchemaMismatch(
            f"schema {schema!r} lacks migrations {list(state.pending)}: run `windlass migrate upgrade`"
        )
    return state


def sql(schema: str = "windlass", *, after: int = 0) -> str:
    """The upgrade as text, for teams with their own migration tool. `upgrade` afterwards makes the partitions."""
    parts = [
        f'create schema if not exists "{schema}";',
        in_schema(_TABLE, schema) + ";",
        in_schema(_COLUMN, schema) + ";",
    ]
    for m in migrations():
        if m.number > after:
            values = f"({m.number}, '{m.name}', '{m.checksum}', {m.serves})"
            note = f"insert into windlass.migration (number, name, checksum, serves) values {values};"  # noqa: S608 - our own file names
            parts += [f"-- {m.number:04}_{m.name}", in_schema(m.up, schema).strip(), in_schema(note, schema)]
    return "\n\n".join(["begin;", *parts, "commit;"]) + "\n"


_TABLE: Final = """create table if not exists windlass.migration (
  number     integer primary key,
  name       text not null,
  checksum   text not null,
  applied_at timestamptz not null default now(),
  serves     integer
)"""
_COLUMN: Final = "alter table windlass.migration add column if not exists serves integer"
_HAS_TABLE: Final = """select exists (
  select from pg_class c join pg_namespace n on n.oid = c.relnamespace where n.nspname = $1 and c.relname = 'migration'
)"""
_HAS_COLUMN: Final = """select exists (
  select from pg_attribute a join pg_class c on c.oid = a.attrelid join pg_namespace n on n.oid = c.relnamespace
  where n.nspname = $1 and c.relname = 'migration' and a.attname = 'serves' and not a.attisdropped
)"""
_NOTE: Final = "insert into windlass.migration (number, name, checksum, serves) values ($1, $2, $3, $4)"
_SERVES_NOW: Final = "update windlass.migration set serves = $2 where number = $1"
# By way of JSON: a schema that was last upgraded before the column came has none, and must still be told what it lacks.
_APPLIED: Final = """select m.number, m.checksum, (to_jsonb(m) ->> 'serves')::integer as serves
from windlass.migration m order by m.number"""


async def _prepare(connection: Connection, schema: str) -> None:
    # `create … if not exists` needs the right to create even where it is there already; and a deploy may run an upgrade that
    # has nothing to do as a role without it.
    if not await connection.fetchval("select exists (select from pg_namespace where nspname = $1)", schema):
        await connection.execute(f'create schema "{schema}"')
    if not await connection.fetchval(_HAS_TABLE, schema):
        await connection.execute(in_schema(_TABLE, schema))
    # Only where it is missing: the lock would keep the readiness probes of running processes waiting for the upgrade.
    if not await connection.fetchval(_HAS_COLUMN, schema):
        await connection.execute(in_schema(_COLUMN, schema))


async def _correct_serves(connection: Connection, schema: str) -> None:
    """Store what migrations that were applied before state now."""
    stated = {each.number: each.serves for each in migrations()}
    for row in await connection.fetch(in_schema(_APPLIED, schema)):
        if row["number"] in stated and row["serves"] != stated[row["number"]]:
            await connection.execute(in_schema(_SERVES_NOW, schema), row["number"], stated[row["number"]])


async def _drop_if_empty(connection: Connection, schema: str) -> None:
    """Something of the user's may live in the schema: then it stays."""
    try:
        async with connection.transaction():
            await connection.execute(f'drop schema "{schema}" restrict')
    except asyncpg.DependentObjectsStillExistError:
        pass
