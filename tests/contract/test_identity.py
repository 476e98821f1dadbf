"""A store is another one after whatever may have lost or brought back jobs, and the same for all who use it meanwhile."""

from uuid import uuid4

import asyncpg

from tests.conftest import TEMPLATE, database_url
from tests.eventually import aeventually
from windlass.bus.redis.seals import Seal, Seals
from windlass.config import StoreConfig
from windlass.embedded.postgres import EmbeddedPostgres
from windlass.store import migrate
from windlass.store.identity import Identities, Identity
from windlass.store.store import Store, open_store

Sql = asyncpg.Connection


async def test_all_processes_of_a_store_agree_on_it(store: Store, config: StoreConfig) -> None:
    first = await store.identities.read()
    async with open_store(config) as other:
        assert await other.identities.read() == first
    assert await store.identities.read() == first
    assert len(first.key) == 32


async def test_a_row_that_was_restored_is_another_store_though_it_says_the_same(store: Store, sql: Sql) -> None:
    before = await store.identities.read()
    await sql.execute(
        "create temp table dump as select * from windlass.identity; delete from windlass.identity;"
        "insert into windlass.identity select * from dump"
    )
    after = await store.identities.read()
    assert after.key == before.key
    assert after.name != before.name


async def test_a_copy_of_the_database_is_another_store(store: Store, postgres_server: EmbeddedPostgres) -> None:
    copy = await store.identities.read()
    async with open_store(
        StoreConfig(database_url=database_url(postgres_server.url, TEMPLATE), pool_min=0)
    ) as template:
        original = await template.identities.read()
    assert copy.key == original.key
    assert copy.name != original.name


async def test_a_schema_that_was_made_anew_is_another_store_with_another_key(store: Store, sql: Sql) -> None:
    before = await store.identities.read()
    await migrate.downgrade(sql, to=4)
    await migrate.upgrade(sql)
    after = await store.identities.read()
    assert after.key != before.key
    assert after.name != before.name


async def test_who_may_not_look_at_the_servers_insides_has_an_identity_all_the_same(
    store: Store, sql: Sql, config: StoreConfig
) -> None:
    full = await store.identities.read()
    role, name = f"plain_{uuid4().hex[:8]}", await sql.fetchval("select current_database()")
    await sql.execute(
        f"revoke execute on function pg_control_system() from public; create role {role};"
        f"grant usage on schema windlass to {role}; grant select on all tables in schema windlass to {role};"
        f"alter database {name} set role = {role}"
    )
    try:
        async with open_store(config) as other:
            plain = await other.identities.read()
            assert plain.key == full.key
            assert plain.name != full.name
            assert await other.identities.read() == plain
    finally:
        await sql.execute(f"alter database {name} reset role; drop owned by {role}; drop role {role}")


# Seals. -----------------------------------------------------------------------------------------------------------------


async def test_a_lost_connection_makes_the_identity_unknown_until_it_is_read_again(store: Store, sql: Sql) -> None:
    async with Seals(store.identities, every_s=60) as seals:
        first = seals.current
        assert first is not None
        await sql.fetch(
            "select pg_terminate_backend(pid) from pg_stat_activity where pid <> pg_backend_pid()"
            " and datname = current_database()"
        )
        await aeventually(lambda: _lost(store.identities, 1))
        assert seals.current is None

        async def again() -> bool:
            return seals.current is first

        await aeventually(again)


async def _lost(identities: Identities, least: int) -> bool:
    return identities.losses >= least


async def test_an_identity_that_cannot_be_read_is_none(store: Store, sql: Sql) -> None:
    async with Seals(store.identities, every_s=0.01) as seals:
        assert seals.current is not None
        await sql.execute("delete from windlass.identity")

        async def unknown() -> bool:
            return seals.current is None

        await aeventually(unknown)
        await sql.execute("insert into windlass.identity (id, key) values (gen_random_uuid(), '\\x00')")

        async def known() -> bool:
            return seals.current is not None

        await aeventually(known)


def test_a_seal_opens_what_it_sealed_under_that_name_and_nothing_else() -> None:
    seal, other = Seal(Identity("a" * 32, b"k" * 32)), Seal(Identity("b" * 32, b"k" * 32))
    name = seal.name("key", "order-1")
    value = seal.sealed(name, b"body")
    assert seal.opened(name, value) == b"body"
    assert seal.opened(seal.name("key", "order-2"), value) is None
    assert other.opened(name, value) is None
    assert other.name("key", "order-1") != name
    assert Seal(Identity("a" * 32, b"j" * 32)).opened(name, value) is None
    for wrong in (None, 7, "text", b"", b"x" * 31, value[:-1], value + b"x", bytes(len(value)), [value]):
        assert seal.opened(name, wrong) is None
    for n in range(len(value)):
        assert seal.opened(name, value[:n] + bytes([value[n] ^ 1]) + value[n + 1 :]) is None
    assert "order-1" not in name
