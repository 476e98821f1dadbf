"""What lies between us and PostgreSQL: nothing, or a pooler such as PgBouncer, and what that pooler breaks.

A pooler in transaction mode gives each transaction of a client to whichever server connection is free. Prepared statements,
LISTEN, session locks and SET then end up on a connection of others: at best an error (26000, 42P05), at worst another client's
statement is run in place of ours, for the driver's names of statements are the same in every process. So this is found out on
the first connection, before any named statement is made, and by what poolers do rather than by what they are called.
"""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import uuid4

import asyncpg

if TYPE_CHECKING:
    Connection = asyncpg.Connection[asyncpg.Record]

_PID: Final = "select pg_backend_pid()"
_HAS_STATEMENT: Final = "select exists (select from pg_prepared_statements where name = $1)"
_LOOKS: Final = 5


class Route(NamedTuple):
    """How a connection reaches the server. `pooled`: a pooler answers. `shared`: it gives each transaction another server
    connection. `keeps_statements`: prepared statements can be used all the same."""

    pooled: bool = False
    shared: bool = False
    keeps_statements: bool = True

    def __str__(self) -> str:
        if not self.pooled:
            return "straight to PostgreSQL"
        if not self.shared:
            return "through a pooler in session mode"
        kept = "keeps" if self.keeps_statements else "does not keep"
        return f"through a pooler in transaction mode that {kept} prepared statements"


async def examine(connection: "Connection", another: Callable[[], Awaitable["Connection"]]) -> Route:
    """Find out how this connection reaches the server. `another` makes a second one the same way, without prepared
    statements; it is only needed behind a pooler."""
    # A pooler tells its clients a process id of its own making, for it is the one who gets their cancel requests.
    if await _unnamed(connection, _PID) == connection.get_server_pid():
        return Route()
    other = await another()
    try:
        if not await _is_shared(connection, other):
            return Route(pooled=True)
    finally:
        other.terminate()
    return Route(pooled=True, shared=True, keeps_statements=await _keeps_statements(connection))


async def _is_shared(connection: "Connection", other: "Connection") -> bool:
    """Two clients that see the same server process share it, and so does one that sees two. Neither waits for a server
    connection while it holds one: many processes that start at once would wait for each other."""
    ours: set[int] = set()
    for _ in range(_LOOKS):
        # Twice: poolers that go round would otherwise give two clients that take turns always the same two.
        ours |= {await _unnamed(connection, _PID), await _unnamed(connection, _PID)}
        if len(ours) > 1 or await _unnamed(other, _PID) in ours:
            return True
    return False


async def _keeps_statements(connection: "Connection") -> bool:
    """A pooler that keeps track of statements gives them names of its own. Others pass ours on to the server, where other
    clients find it and we do not. In one transaction, so that it is removed where it was made."""
    name = f"windlass_{uuid4().hex}"
    async with connection.transaction():
        statement = await connection.prepare(_PID, name=name)
        await statement.fetchval()  # which also keeps the driver from closing it
        passed_on = bool(await _unnamed(connection, _HAS_STATEMENT, name))
        if passed_on:
            await connection.execute(f'deallocate "{name}"')
        del statement
        return not passed_on


async def _unnamed(connection: "Connection", query: str, *args: object) -> int:
    statement = await connection.prepare(query, name="")
    found: int = await statement.fetchval(*args)
    return found
