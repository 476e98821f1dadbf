"""Connections are made when they are needed, and those that the server has ended are not taken up again."""

from dataclasses import replace

import asyncpg

from tests.eventually import aeventually
from windlass.config import StoreConfig
from windlass.model import NewJob, Status
from windlass.store.postgres import _is_closed
from windlass.store.store import Store, open_store

Sql = asyncpg.Connection


async def test_a_connection_the_server_has_ended_is_not_taken_up_again(store: Store, sql: Sql) -> None:
    for _ in range(3):
        assert await store.views.types() == []  # leaves its connection at hand
        at_hand = list(store.postgres._at_hand)
        assert at_hand
        await sql.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
        )

        async def noticed(connections: list[asyncpg.pool.PoolConnectionProxy] = at_hand) -> bool:
            return all(map(_is_closed, connections))

        await aeventually(noticed)


async def test_a_store_beside_another_makes_no_connection_until_it_is_used(
    store: Store, config: StoreConfig, sql: Sql
) -> None:
    async def count() -> int:
        counted: int = await sql.fetchval("select count(*) from pg_stat_activity where datname = current_database()")
        return counted

    before = await count()
    async with open_store(replace(config, pool_min=0), beside=store) as second:
        assert await count() == before
        assert abs(second.postgres.now_ms() - store.postgres.now_ms()) < 1000  # its ids are of the database's time
        (stored,) = await second.intake.enqueue([NewJob("echo")])
        assert await count() == before + 1
    assert (await store.views.job(stored.id)).status is Status.READY
