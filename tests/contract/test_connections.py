"""Connections that the server has ended are not taken up again."""

import asyncpg

from tests.eventually import aeventually
from windlass.store.postgres import _is_closed
from windlass.store.store import Store

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
