"""Bring a database's schema to what this code needs, and say where it stands.

Migrations are numbered pairs of SQL files, `0001_name.up.sql` and `.down.sql`, each applied once, in order, in one
transaction under a transaction-level advisory lock: several processes may start at once, and a failed upgrade leaves
nothing behind. A checksum is kept with each, so an edited migration is noticed. A schema newer than the code is
refused: an old process must not write into tables it does not know.
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
_LOCK: Final = "select pg_advisory_xact_lock(hashtextextended('windlass migrate ' || $1, 0))"


@dataclass(frozen=True, slots=True)
class Migration:
    number: int
    name: str
    up: str
    down: str

    @property
    def checksum(self) -> str:
        return hashlib.sha256(self.up.encode()).hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class State:
    """Where a schema stands: what is applied, what is still to come, what is wrong with it."""

    applied: tuple[int, ...]
    pending: tuple[int, ...]
    problems: tuple[str, ...]

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
            for migration in migrations():
                if migration.number in state.pending:
                    await connection.execute(in_schema(migration.up, schema))
                    await connection.execute(
                        in_schema("insert into windlass.migration (number, name, checksum) values ($1, $2, $3)", schema),
                        migration.number, migration.name, migration.checksum,
                    )  # fmt: skip
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
            if state.problems:  # what a newer version made cannot be undone from here
                raise SchemaMismatch("; ".join(state.problems))
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
            rows = await connection.fetch(
                in_schema("select number, checksum from windlass.migration order by 1", schema)
            )
        except (asyncpg.UndefinedTableError, asyncpg.InvalidSchemaNameError):
            rows = []
    applied = tuple(row["number"] for row in rows)
    problems = [
        f"schema {schema!r} is at migration {row['number']}, newer than this Windlass knows ({max(known)}): upgrade Windlass"
        for row in rows
        if row["number"] not in known
    ]
    problems += [
        f"migration {row['number']} of schema {schema!r} is not the one this Windlass has: it was changed after it was applied"
        for row in rows
        if row["number"] in known and known[row["number"]].checksum != row["checksum"]
    ]
    return State(applied, tuple(sorted(set(known) - set(applied))), tuple(problems))


async def check(connection: Connection, schema: str = "windlass") -> None:
    """Refuse to go on with a schema that is older, newer or other than this code's."""
    state = await status(connection, schema)
    if state.problems:
        raise SchemaMismatch("; ".join(state.problems))
    if state.pending:
        raise SchemaMismatch(
            f"schema {schema!r} lacks migrations {list(state.pending)}: run `windlass migrate upgrade`"
        )


def sql(schema: str = "windlass", *, after: int = 0) -> str:
    """The upgrade as text, for teams with their own migration tool. `upgrade` afterwards makes the partitions."""
    parts = [f'create schema if not exists "{schema}";', in_schema(_TABLE, schema) + ";"]
    for m in migrations():
        if m.number > after:
            note = f"insert into windlass.migration (number, name, checksum) values ({m.number}, '{m.name}', '{m.checksum}');"  # noqa: S608 - our own file names
            parts += [f"-- {m.number:04}_{m.name}", in_schema(m.up, schema).strip(), in_schema(note, schema)]
    return "\n\n".join(["begin;", *parts, "commit;"]) + "\n"


_TABLE: Final = """create table if not exists windlass.migration (
  number     integer primary key,
  name       text not null,
  checksum   text not null,
  applied_at timestamptz not null default now()
)"""


async def _prepare(connection: Connection, schema: str) -> None:
    # `create schema if not exists` needs the right to create even where the schema is there already.
    if not await connection.fetchval("select exists (select from pg_namespace where nspname = $1)", schema):
        await connection.execute(f'create schema "{schema}"')
    await connection.execute(in_schema(_TABLE, schema))


async def _drop_if_empty(connection: Connection, schema: str) -> None:
    """Something of the user's may live in the schema: then it stays."""
    try:
        async with connection.transaction():
            await connection.execute(f'drop schema "{schema}" restrict')
    except asyncpg.DependentObjectsStillExistError:
        pass
