"""A database is brought to what the code needs once, by however many at once, and never past what the code knows."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import pytest

from windlass.config import StoreConfig
from windlass.errors import Misconfigured, SchemaMismatch
from windlass.model import NewJob, Status
from windlass.store import migrate, partitions
from windlass.store.store import open_store

Sql = asyncpg.Connection
NUMBERS = [migration.number for migration in migrate.migrations()]


@pytest.fixture
async def blank(sql: Sql) -> Sql:
    """A database without our schema."""
    await migrate.downgrade(sql)
    return sql


async def catalogue(sql: Sql, schema: str) -> dict[str, list[tuple[Any, ...]]]:
    """What a schema consists of, without its name."""
    queries = {
        # By their order, not by their number: a column that was dropped and added again has a new one.
        "columns": "select table_name, column_name, rank() over (partition by table_name order by ordinal_position),"
        " data_type, is_nullable, column_default from information_schema.columns where table_schema = $1",
        "indexes": "select tablename, indexdef from pg_indexes where schemaname = $1",
        "functions": "select p.proname, pg_get_functiondef(p.oid) from pg_proc p"
        " join pg_namespace n on n.oid = p.pronamespace where n.nspname = $1",
        "constraints": "select c.conname, pg_get_constraintdef(c.oid) from pg_constraint c"
        " join pg_namespace n on n.oid = c.connamespace where n.nspname = $1",
        "views": "select viewname, definition from pg_views where schemaname = $1",
        "tables": "select c.relname, c.relkind::text, c.reloptions, pg_get_expr(c.relpartbound, c.oid) from pg_class c"
        " join pg_namespace n on n.oid = c.relnamespace where n.nspname = $1",
    }
    found = {}
    for name, query in queries.items():
        rows = [tuple(str(value) for value in row) for row in await sql.fetch(query, schema)]
        found[name] = sorted(
            tuple(v.replace(f"{schema}.", "").replace(f'"{schema}".', "") for v in row) for row in rows
        )
    return found


# Up, down, where it stands. -------------------------------------------------------------------------------------------


async def test_an_upgrade_applies_what_is_missing_once(blank: Sql) -> None:
    assert await migrate.status(blank) == migrate.State((), tuple(NUMBERS), ())
    with pytest.raises(SchemaMismatch, match="migrate upgrade"):
        await migrate.check(blank)
    assert await migrate.upgrade(blank) == NUMBERS
    assert await migrate.upgrade(blank) == []
    state = await migrate.status(blank)
    assert state == migrate.State(tuple(NUMBERS), (), ())
    assert state.current
    await migrate.check(blank)


async def test_a_downgrade_leaves_nothing_behind(sql: Sql, config: StoreConfig) -> None:
    async with open_store(config) as store:
        await store.intake.enqueue([NewJob("echo", idempotency_key="k", tags=["t"])])
    assert await migrate.downgrade(sql) == NUMBERS[::-1]
    assert await sql.fetchval("select to_regnamespace('windlass')") is None
    assert all(rows == [] for rows in (await catalogue(sql, "windlass")).values())
    assert await migrate.downgrade(sql) == []
    assert await migrate.upgrade(sql) == NUMBERS
    async with open_store(config) as store:
        assert await store.views.counts() == {}


async def test_each_downgrade_undoes_exactly_its_upgrade(sql: Sql) -> None:
    before = await catalogue(sql, "windlass")
    for number in NUMBERS[:0:-1]:
        assert await migrate.downgrade(sql, to=number - 1) == [number]
        state = await migrate.status(sql)
        assert (state.applied, state.pending) == (tuple(NUMBERS[: number - 1]), tuple(NUMBERS[number - 1 :]))
        with pytest.raises(SchemaMismatch, match=str(number)):
            await migrate.check(sql)
    assert await migrate.upgrade(sql) == NUMBERS[1:]
    assert await catalogue(sql, "windlass") == before


async def test_what_the_user_keeps_in_the_schema_survives_a_downgrade(sql: Sql) -> None:
    await sql.execute("create table windlass.mine (id int); create function windlass.f() returns int return 1")
    await migrate.downgrade(sql)
    assert await sql.fetchval("select count(*) from windlass.mine") == 0
    assert await sql.fetchval("select windlass.f()") == 1
    await sql.execute("drop table windlass.mine")
    assert await migrate.upgrade(sql) == NUMBERS
    assert await migrate.downgrade(sql) == NUMBERS[::-1]
    assert await sql.fetchval("select windlass.f()") == 1


async def test_many_that_upgrade_at_once_apply_each_migration_once(blank: Sql, url: str) -> None:
    connections = [await asyncpg.connect(url) for _ in range(8)]
    applied = await asyncio.gather(*(migrate.upgrade(connection) for connection in connections))
    assert sorted(applied) == [[]] * 7 + [NUMBERS]
    for connection in connections:
        await migrate.check(connection)
        await connection.close()


async def test_a_failed_upgrade_leaves_nothing_behind(blank: Sql, monkeypatch: pytest.MonkeyPatch) -> None:
    known = migrate.migrations()
    broken = migrate.Migration(known[-1].number + 1, "broken", "create table windlass.x (); select 1 / 0", "")
    monkeypatch.setattr(migrate, "migrations", lambda: [*known, broken])
    with pytest.raises(asyncpg.DivisionByZeroError):
        await migrate.upgrade(blank)
    assert await blank.fetchval("select to_regnamespace('windlass')") is None
    await blank.execute("select 1")


# Other schemas. -------------------------------------------------------------------------------------------------------


async def test_two_schemas_in_one_database_do_not_see_each_other(sql: Sql, config: StoreConfig) -> None:
    assert await migrate.upgrade(sql, "team_b") == NUMBERS
    assert await catalogue(sql, "team_b") == await catalogue(sql, "windlass")
    async with open_store(config) as a, open_store(replace(config, schema="team_b")) as b:
        await a.intake.enqueue([NewJob("echo", idempotency_key="k")] * 2)
        await b.intake.enqueue([NewJob("other", idempotency_key="k", queue="b", tags=["t"]), NewJob("other")])
        assert await a.views.counts() == {("default", "echo", Status.READY): 1}
        assert await b.views.counts() == {("b", "other", Status.READY): 1, ("default", "other", Status.READY): 1}
        assert len((await b.views.jobs()).jobs) == 2
        assert await b.upkeep.fold_counts()
        assert (await b.views.check()).clean
        assert (await b.upkeep.roll_partitions()).removed == []
    await migrate.downgrade(sql)
    await migrate.check(sql, "team_b")
    assert await sql.fetchval("select count(*) from team_b.job") == 2


@pytest.mark.parametrize("schema", ["", "Upper", 'quo"te', "a; drop schema windlass", "1st", "x" * 42, "ключ"])
async def test_a_schema_name_that_needs_quoting_is_refused(schema: str) -> None:
    with pytest.raises(Misconfigured):
        migrate.sql(schema)


async def test_the_upgrade_as_text_is_the_upgrade(sql: Sql) -> None:
    await sql.execute(migrate.sql("by_hand"))
    state = await migrate.status(sql, "by_hand")
    assert state.current
    await migrate.check(sql, "by_hand")
    assert await migrate.upgrade(sql, "by_hand") == []
    assert await catalogue(sql, "by_hand") == await catalogue(sql, "windlass")


async def test_the_upgrade_as_text_can_go_on_from_where_a_schema_stands(sql: Sql) -> None:
    before = await catalogue(sql, "windlass")
    await migrate.downgrade(sql, to=NUMBERS[-1] - 1)
    await sql.execute(migrate.sql(after=NUMBERS[-1] - 1))
    await migrate.check(sql)
    assert await catalogue(sql, "windlass") == before


# What is refused. -----------------------------------------------------------------------------------------------------


async def test_a_schema_newer_than_the_code_is_refused(sql: Sql, config: StoreConfig) -> None:
    await sql.execute("insert into windlass.migration (number, name, checksum) values (9999, 'from the future', 'x')")
    before = await catalogue(sql, "windlass")
    assert not (await migrate.status(sql)).current
    for refused in (migrate.check, migrate.upgrade, migrate.downgrade):
        with pytest.raises(SchemaMismatch, match=r"9999.*newer"):
            await refused(sql)
    with pytest.raises(SchemaMismatch):
        async with open_store(config):
            pass
    assert await catalogue(sql, "windlass") == before


async def test_a_migration_that_was_changed_after_it_was_applied_is_refused(sql: Sql, config: StoreConfig) -> None:
    await sql.execute("update windlass.migration set checksum = 'other' where number = 1")
    for refused in (migrate.check, migrate.upgrade):
        with pytest.raises(SchemaMismatch, match=r"migration 1 .* changed"):
            await refused(sql)
    with pytest.raises(SchemaMismatch):
        async with open_store(config):
            pass


async def test_a_store_without_its_schema_says_what_to_do(blank: Sql, config: StoreConfig) -> None:
    with pytest.raises(SchemaMismatch, match="windlass migrate upgrade"):
        async with open_store(config):
            pass


# Versions that overlap. -----------------------------------------------------------------------------------------------


def known_up_to(monkeypatch: pytest.MonkeyPatch, *migrations: migrate.Migration) -> None:
    """Be the code that has these migrations."""
    monkeypatch.setattr(migrate, "migrations", lambda: list(migrations))


def newer_migration(serves: int) -> migrate.Migration:
    number = NUMBERS[-1] + 1
    up = f"-- serves: {serves}\nalter table windlass.queue add column note text; create table windlass.later (id uuid)"
    down = "alter table windlass.queue drop column note; drop table windlass.later"
    return migrate.Migration(number, "later", up, down)


async def test_code_works_on_a_schema_that_a_newer_version_has_upgraded_compatibly(
    sql: Sql, config: StoreConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = migrate.migrations()
    newer = newer_migration(serves=NUMBERS[-1])
    known_up_to(monkeypatch, *ours, newer)
    assert await migrate.upgrade(sql) == [newer.number]
    known_up_to(monkeypatch, *ours)
    assert (await migrate.check(sql)).newer == (newer.number,)
    assert await migrate.upgrade(sql) == []  # as the old version's start scripts do again
    async with open_store(config) as store:
        await store.intake.enqueue([NewJob("echo")])
        await store.views.ready()
    with pytest.raises(SchemaMismatch, match=f"{newer.number}.*downgrade with"):
        await migrate.downgrade(sql)
    known_up_to(monkeypatch, *ours, newer)
    assert await migrate.downgrade(sql, to=NUMBERS[-1]) == [newer.number]


async def test_code_older_than_a_migration_serves_is_refused(
    sql: Sql, config: StoreConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = migrate.migrations()
    newer = newer_migration(serves=NUMBERS[-1] + 1)
    known_up_to(monkeypatch, *ours, newer)
    await migrate.upgrade(sql)
    known_up_to(monkeypatch, *ours)
    for refused in (migrate.check, migrate.upgrade):
        with pytest.raises(SchemaMismatch, match=rf"{newer.number}.*newer.*from {newer.number} on: upgrade Windlass"):
            await refused(sql)
    with pytest.raises(SchemaMismatch):
        async with open_store(config):
            pass


async def test_each_migration_serves_the_code_it_states_and_none_older(
    sql: Sql, monkeypatch: pytest.MonkeyPatch
) -> None:
    every = migrate.migrations()
    for n in range(1, len(every)):
        known_up_to(monkeypatch, *every[:n])
        state = await migrate.status(sql)
        refused = [each.number for each in every[n:] if each.serves > every[n - 1].number]
        assert len(state.problems) == len(refused)
        assert set(state.newer) == {each.number for each in every[n:]} - set(refused)


async def test_a_schema_from_before_migrations_stated_what_they_serve_is_upgraded(sql: Sql) -> None:
    await sql.execute("alter table windlass.migration drop column serves")
    await migrate.check(sql)
    assert await migrate.upgrade(sql) == []
    rows = await sql.fetch("select number, serves from windlass.migration")
    assert {row["number"]: row["serves"] for row in rows} == {each.number: each.serves for each in migrate.migrations()}


async def test_code_that_lacks_one_migration_and_misses_another_upgrades_nothing(
    sql: Sql, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = migrate.migrations()
    await sql.execute("insert into windlass.migration values (9999, 'later', 'x', now(), 1)")
    known_up_to(monkeypatch, *ours, newer_migration(serves=1))
    with pytest.raises(SchemaMismatch, match=r"9999.*lacks.*newer Windlass"):
        await migrate.upgrade(sql)
    assert await sql.fetchval("select to_regclass('windlass.later')") is None


# Time. ----------------------------------------------------------------------------------------------------------------


async def test_an_upgrade_after_a_long_absence_makes_partitions_for_today(sql: Sql, config: StoreConfig) -> None:
    await partitions.drop_all(sql, "windlass")
    long_ago = datetime.now(UTC).date() - timedelta(days=100)
    for table in ("job", "tag", "outcome", "attempt"):
        await partitions._create(sql, "windlass", table, partitions.Bounds(long_ago, long_ago + timedelta(days=1)))
    assert await migrate.upgrade(sql) == []
    async with open_store(config) as store:
        await store.intake.enqueue([NewJob("echo", tags=["t"])])
        assert await store.views.counts() == {("default", "echo", Status.READY): 1}
    count = await sql.fetchval("select count(*) from pg_inherits where inhparent = 'windlass.job'::regclass")
    assert count == 1 + 5  # long ago; yesterday, today and three ahead
