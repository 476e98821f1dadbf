"""The use of PostgreSQL: a pool, named statements, database time, and where the driver's errors become ours.

No session state is used, so any pooler works: connections are handed back as they are, without a reset round trip. How
connections are made is in connections.py.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

import asyncpg
from asyncpg.pool import PoolConnectionProxy

from windlass.clock import steady_s
from windlass.config import StoreConfig
from windlass.errors import Contended, Misconfigured, NoPartition, Unavailable, WindlassError
from windlass.store.statements import statements

if TYPE_CHECKING:
    Pooled: TypeAlias = PoolConnectionProxy[asyncpg.Record]
    Connection: TypeAlias = asyncpg.Connection[asyncpg.Record] | Pooled
else:  # the driver's classes take no parameters at run time
    Pooled = PoolConnectionProxy
    Connection = asyncpg.Connection | Pooled

T = TypeVar("T")

# Deadlock, serialisation failure, lock not available: nothing was written, and the same statement may be made again.
_GAVE_WAY: Final = ("40P01", "40001", "55P03")
_TRIES: Final = 8
_AT_HAND: Final = 2
# A process frozen in the middle of a transaction must not keep its locks, and all others waiting, until it thaws.
_BRIEF: Final = "set local idle_in_transaction_session_timeout = '5s'"
_PINNED: Final = (
    "set local enable_seqscan = off; set local enable_hashjoin = off; set local enable_mergejoin = off;"
    " set local enable_bitmapscan = off; set local plan_cache_mode = force_custom_plan; set local jit = off; " + _BRIEF
)
# Connection trouble, shutdown or crash of the server, a statement cancelled, resources used up, time-outs of idle
# sessions, read-only after a failover, trouble of its disk.
_AWAY: Final = ("08", "53", "57", "25006", "25P03", "25P04", "58")
# A prepared statement that is not there, or is there already: behind a pooler, on a server connection of others. Nothing was done.
_STATEMENT_LOST: Final = (asyncpg.InvalidSQLStatementNameError, asyncpg.DuplicatePreparedStatementError)
_STATEMENT_LOST_STATES: Final = ("26000", "42P05")
_NO_RIGHT: Final = "42501"
_REFUSED: Final = ("3D", "28")  # no such database; no such role, or a wrong password


class Losses:
    """Counts the connections that ended, whoever ended them: the server behind the next one may be another."""

    def __init__(self) -> None:
        self.count = 0

    async def watch(self, connection: Connection) -> None:
        connection.add_termination_listener(self._lose)

    def _lose(self, _connection: Any) -> None:
        self.count += 1


class Postgres:
    """A pool and the statements of one schema. Open it with `async with open_postgres(config)`. `forgo_cache` makes
    connections without prepared statements from then on, and says whether they were made with them until then."""

    def __init__(
        self,
        pool: "asyncpg.Pool[asyncpg.Record]",
        config: StoreConfig,
        losses: "Losses | None" = None,
        forgo_cache: Callable[[], bool] = lambda: False,
    ) -> None:
        self._pool = pool
        self.config = config
        self.sql = statements(config.schema)
        self._at_hand: list[Pooled] = []
        self._waiting = 0
        self._giving: set[asyncio.Task[None]] = set()
        self._database_minus_local_s = 0.0
        self._losses = losses or Losses()
        self._forgo_cache = forgo_cache

    @property
    def losses(self) -> int:
        """How many connections have ended so far."""
        return self._losses.count

    async def fetch(self, name: str, *args: Any, connection: Connection | None = None) -> list[asyncpg.Record]:
        """Run one named statement, giving way and trying again where that is safe."""
        if connection is None:
            return await patiently(lambda: self._fetch(name, args))
        with translated():  # the caller's transaction: only the caller can repeat it
            return await connection.fetch(self.sql[name], *args)

    async def _fetch(self, name: str, args: tuple[Any, ...]) -> list[asyncpg.Record]:
        with translated():
            connection = self._nearest() or await self._take()
            sound = False
            try:
                rows = await connection.fetch(self.sql[name], *args)
                sound = True
            except _STATEMENT_LOST:
                await self._use_no_cache()
                raise
            finally:
                self._give(connection, sound=sound)
            return rows

    # The pool takes a quarter of a millisecond to hand out a connection and have it back, on a system that was idle: so
    # a few stay at hand, for as long as nobody waits for one.

    def _nearest(self) -> Pooled | None:
        while self._at_hand:
            connection = self._at_hand.pop()
            if not _is_closed(connection):
                return connection
            self._give_up(connection)
        return None

    async def _take(self) -> Pooled:
        """Waits no longer than for a statement: while a table is locked, or the database hangs, all may be in use."""
        self._waiting += 1
        try:
            return await self._pool.acquire(timeout=self.config.statement_timeout_s)
        finally:
            self._waiting -= 1

    def _give(self, connection: Pooled, *, sound: bool) -> None:
        if sound and not self._waiting and len(self._at_hand) < _AT_HAND and not _is_closed(connection):
            self._at_hand.append(connection)
        else:
            self._give_up(connection)

    def _give_up(self, connection: Pooled) -> None:
        """Back to the pool, which rolls back a transaction that is open; not awaited, for the answer is here already,
        or the database hangs, and giving back takes as long as it hangs."""
        giving = asyncio.create_task(self._pool.release(connection))
        self._giving.add(giving)
        giving.add_done_callback(self._given)

    def _given(self, giving: "asyncio.Task[None]") -> None:
        self._giving.discard(giving)
        if not giving.cancelled():
            giving.exception()  # a connection that was lost meanwhile: the pool makes another

    def let_go(self) -> None:
        """Keep no connection at hand."""
        while self._at_hand:
            self._give_up(self._at_hand.pop())

    async def fetchrow(self, name: str, *args: Any) -> asyncpg.Record | None:
        rows = await self.fetch(name, *args)
        return rows[0] if rows else None

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        with translated():
            connection = self._nearest() or await self._take()
            try:
                yield connection
            except BaseException as error:
                self._give_up(connection)
                if isinstance(error, _STATEMENT_LOST):
                    await self._use_no_cache()
                raise
            await self._pool.release(connection)

    @asynccontextmanager
    async def transaction(
        self,
        *,
        lock_timeout_s: float | None = None,
        pinned: bool = False,
        brief: bool = False,
        snapshot: bool = False,
    ) -> AsyncIterator[Connection]:
        """One transaction. `pinned`: index plans only, whatever the statistics say of a table that fills and empties.
        `brief`, as all that are pinned: nothing but our statements happens in it, so the server may end an idle one.
        `snapshot`: reads only, and all its statements see the same moment: a job that moves is not missed in between."""
        isolation: Any = "repeatable_read" if snapshot else None
        async with self.connection() as connection, _in_transaction(connection, isolation, readonly=snapshot):
            if lock_timeout_s is not None:
                await connection.execute(
                    "select set_config('lock_timeout', $1, true)", f"{lock_timeout_s * 1000:.0f}ms"
                )
            if pinned or brief:
                await connection.execute(_PINNED if pinned else _BRIEF)
            yield connection

    async def pinned(self, name: str, *args: Any) -> list[asyncpg.Record]:
        """Run one named statement with index plans only."""

        async def run() -> list[asyncpg.Record]:
            async with self.transaction(pinned=True) as connection:
                return await connection.fetch(self.sql[name], *args)

        return await patiently(run)

    async def reconnect(self) -> None:
        """Let go of every connection as soon as it is free: what follows gets new ones."""
        self.let_go()
        await self._pool.expire_connections()

    async def _use_no_cache(self) -> None:
        """A pooler has come between us and the server that does not keep prepared statements: go on without."""
        if self._forgo_cache():
            await self.reconnect()

    async def synchronise(self) -> None:
        """Learn how far the database's clock is from our monotonic one; wall clocks of hosts are not used at all."""
        with translated():
            async with self.connection() as connection:
                before_s = steady_s()
                database_s: float = await connection.fetchval("select date_part('epoch', clock_timestamp())")
            self._database_minus_local_s = database_s - (before_s + steady_s()) / 2

    def take_time_from(self, other: "Postgres") -> None:
        """Another on the same database has asked it for its time."""
        self._database_minus_local_s = other._database_minus_local_s  # noqa: SLF001 - one of our own kind

    def now_ms(self) -> int:
        """The database's time, to within a round trip, for making ids."""
        return int((steady_s() + self._database_minus_local_s) * 1000)


def _is_closed(connection: Pooled) -> bool:
    """By the server, meanwhile. If the driver has noticed first, it has taken the connection away from us."""
    try:
        return connection.is_closed()
    except asyncpg.InterfaceError:
        return True


@asynccontextmanager
async def _in_transaction(connection: Connection, isolation: Any, *, readonly: bool) -> AsyncIterator[None]:
    """Commit at the end, or roll back. Not where a statement has not been answered in time or its caller has gone: a
    rollback waits as long again if the database hangs. The pool rolls back when the connection is given back."""
    transaction = connection.transaction(isolation=isolation, readonly=readonly)
    await transaction.__aenter__()
    try:
        yield
    except (TimeoutError, asyncio.CancelledError):
        raise
    except BaseException as error:
        await transaction.__aexit__(type(error), error, None)
        raise
    await transaction.__aexit__(None, None, None)


async def keep_session(_connection: Connection) -> None:
    """Nothing to reset: we leave no session state behind."""


@contextmanager
def translated() -> Iterator[None]:
    """The driver's errors as ours. What is no fault of the network or of contention goes up as it is: it is a bug."""
    try:
        yield
    except asyncpg.PostgresError as error:
        if known := ours(error.sqlstate or "", str(error)):
            raise known from error
        raise
    # InternalClientError: what asyncpg says when a connection ends while it is being made or given back.
    except (
        asyncpg.InterfaceError,
        asyncpg.InternalClientError,
        OSError,
        TimeoutError,
        asyncio.IncompleteReadError,
    ) as error:
        if isinstance(error, ValueError):  # a URL or an argument that makes no sense
            raise
        why = str(error) or ("it did not answer in time" if isinstance(error, TimeoutError) else type(error).__name__)
        raise Unavailable(f"PostgreSQL cannot be reached: {why}") from error


def ours(state: str, message: str) -> WindlassError | None:
    """Our error for a SQLSTATE, whichever driver was told it; None for what is a bug."""
    message = "; ".join(message.splitlines())  # a detail or a hint has a line of its own
    if state == "23514" and "no partition" in message:
        return NoPartition(message)
    if state in _STATEMENT_LOST_STATES:
        return Contended(f"behind a pooler that does not keep prepared statements: {message}")
    if state in _GAVE_WAY:
        return Contended(message)
    if state.startswith(_AWAY):
        return Unavailable(f"PostgreSQL: {message}")
    if state == _NO_RIGHT:
        return Misconfigured(
            f"PostgreSQL refuses: {message} (`windlass migrate grants` prints the rights a role needs)"
        )
    if state.startswith(_REFUSED):
        return Misconfigured(f"PostgreSQL refuses: {message}")
    return None


async def patiently(run: Callable[[], Awaitable[T]]) -> T:
    """Run it again while other transactions are in the way. Only for what writes all or nothing."""
    for n in range(_TRIES - 1):
        try:
            return await run()
        except Contended:
            await asyncio.sleep(0.002 * 2**n * random.random())
    return await run()
