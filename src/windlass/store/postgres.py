"""The connection to PostgreSQL: the pool, named statements, database time, and where the driver's errors become ours.

No session state is used, so any pooler works: connections are handed back as they are, without a reset round trip.
"""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

import asyncpg
from asyncpg.pool import PoolConnectionProxy

from windlass.config import StoreConfig
from windlass.errors import Contended, Misconfigured, NoPartition, Unavailable
from windlass.store.statements import statements

if TYPE_CHECKING:
    Connection: TypeAlias = asyncpg.Connection[asyncpg.Record] | PoolConnectionProxy[asyncpg.Record]
else:  # the driver's classes take no parameters at run time
    Connection = asyncpg.Connection | PoolConnectionProxy

T = TypeVar("T")

# Deadlock, serialisation failure, lock not available: nothing was written, and the same statement may be made again.
_GAVE_WAY: Final = ("40P01", "40001", "55P03")
_TRIES: Final = 8
_PINNED: Final = (
    "set local enable_seqscan = off; set local enable_hashjoin = off; set local enable_mergejoin = off;"
    " set local enable_bitmapscan = off; set local plan_cache_mode = force_custom_plan; set local jit = off"
)
# Connection trouble, shutdown or crash of the server, a statement cancelled, resources used up, time-outs of idle
# sessions, read-only after a failover, trouble of its disk.
_AWAY: Final = ("08", "53", "57", "25006", "25P03", "25P04", "58")
# No such database, no such role or wrong password, no right to do it.
_REFUSED: Final = ("3D", "28", "42501")


class Postgres:
    """A pool and the statements of one schema. Open it with `async with open_postgres(config)`."""

    def __init__(self, pool: "asyncpg.Pool[asyncpg.Record]", config: StoreConfig) -> None:
        self._pool = pool
        self.config = config
        self.sql = statements(config.schema)
        self._database_minus_local_s = 0.0

    async def fetch(self, name: str, *args: Any, connection: Connection | None = None) -> list[asyncpg.Record]:
        """Run one named statement, giving way and trying again where that is safe."""
        if connection is None:
            return await patiently(lambda: self._fetch(name, args))
        with translated():  # the caller's transaction: only the caller can repeat it
            return await connection.fetch(self.sql[name], *args)

    async def _fetch(self, name: str, args: tuple[Any, ...]) -> list[asyncpg.Record]:
        with translated():
            async with self._pool.acquire() as connection:
                return await connection.fetch(self.sql[name], *args)

    async def fetchrow(self, name: str, *args: Any) -> asyncpg.Record | None:
        rows = await self.fetch(name, *args)
        return rows[0] if rows else None

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        with translated():
            async with self._pool.acquire() as connection:
                yield connection

    @asynccontextmanager
    async def transaction(
        self, *, lock_timeout_s: float | None = None, pinned: bool = False
    ) -> AsyncIterator[Connection]:
        """One transaction. `pinned`: index plans only, whatever the statistics say of a table that fills and empties."""
        async with self.connection() as connection, connection.transaction():
            if lock_timeout_s is not None:
                await connection.execute(
                    "select set_config('lock_timeout', $1, true)", f"{lock_timeout_s * 1000:.0f}ms"
                )
            if pinned:
                await connection.execute(_PINNED)
            yield connection

    async def pinned(self, name: str, *args: Any) -> list[asyncpg.Record]:
        """Run one named statement with index plans only."""

        async def run() -> list[asyncpg.Record]:
            async with self.transaction(pinned=True) as connection:
                return await connection.fetch(self.sql[name], *args)

        return await patiently(run)

    async def synchronise(self) -> None:
        """Learn how far the database's clock is from our monotonic one; wall clocks of hosts are not used at all."""
        with translated():
            async with self._pool.acquire() as connection:
                before_s = _steady_s()
                database_s: float = await connection.fetchval("select date_part('epoch', clock_timestamp())")
            self._database_minus_local_s = database_s - (before_s + _steady_s()) / 2

    def now_ms(self) -> int:
        """The database's time, to within a round trip, for making ids."""
        return int((_steady_s() + self._database_minus_local_s) * 1000)


def _steady_s() -> float:
    """A clock that nobody sets and that, where there is such a one, goes on while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


@asynccontextmanager
async def open_postgres(config: StoreConfig) -> AsyncIterator[Postgres]:
    pool = await _open_pool(config)
    try:
        postgres = Postgres(pool, config)
        await postgres.synchronise()
        yield postgres
    finally:
        try:
            await asyncio.wait_for(pool.close(), timeout=5)
        except (TimeoutError, OSError, asyncpg.PostgresError):
            pool.terminate()


async def connect(
    config: StoreConfig, *, direct: bool = False, patient: bool = False
) -> "asyncpg.Connection[asyncpg.Record]":
    """One connection outside the pool; `direct` past any pooler, `patient` without a time-out for statements."""
    with _reachable():
        url = (direct and config.direct_url) or _url(config)
        timeout_s = None if patient else config.statement_timeout_s
        return await asyncpg.connect(url, command_timeout=timeout_s, statement_cache_size=0)


async def _open_pool(config: StoreConfig) -> "asyncpg.Pool[asyncpg.Record]":
    with _reachable():
        return await asyncpg.create_pool(
            _url(config),
            min_size=min(config.pool_min, config.pool_max),
            max_size=config.pool_max,
            command_timeout=config.statement_timeout_s,
            statement_cache_size=config.statement_cache_size,
            reset=_keep,
            server_settings={"application_name": "windlass"},
        )


def _url(config: StoreConfig) -> str:
    if not config.database_url:
        raise Misconfigured("no database: set WINDLASS_DATABASE_URL (`windlass up` brings one of its own)")
    return config.database_url


@contextmanager
def _reachable() -> Iterator[None]:
    """What a wrong address, name, role or password raises, as one line for the person who set it."""
    try:
        with translated():
            yield
    except ValueError as error:
        raise Misconfigured(f"WINDLASS_DATABASE_URL: {error}") from None


async def _keep(_connection: Connection) -> None:
    """Nothing to reset: we leave no session state behind."""


@contextmanager
def translated() -> Iterator[None]:
    """The driver's errors as ours. What is no fault of the network or of contention goes up as it is: it is a bug."""
    try:
        yield
    except asyncpg.PostgresError as error:
        state = error.sqlstate or ""
        if state == "23514" and "no partition" in str(error):
            raise NoPartition(str(error)) from error
        if state in _GAVE_WAY:
            raise Contended(str(error)) from error
        if state.startswith(_AWAY):
            raise Unavailable(f"PostgreSQL: {error}") from error
        if state.startswith(_REFUSED):
            raise Misconfigured(f"PostgreSQL refuses: {error}") from error
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
        raise Unavailable(f"PostgreSQL cannot be reached: {str(error) or type(error).__name__}") from error


async def patiently(run: Callable[[], Awaitable[T]]) -> T:
    """Run it again while other transactions are in the way. Only for what writes all or nothing."""
    for n in range(_TRIES - 1):
        try:
            return await run()
        except Contended:
            await asyncio.sleep(0.002 * 2**n * random.random())
    return await run()
