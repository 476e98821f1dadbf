"""The connection to PostgreSQL: the pool, named statements, database time, and where the driver's errors become ours.

No session state is used, so any pooler works: connections are handed back as they are, without a reset round trip.
"""

import asyncio
import random
import socket
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
# A silent network, or a machine that vanished, is noticed by either side within 11 s, in use within 10; without these
# after two hours, or in use a quarter of one.
_IDLE_S: Final = 5
_INTERVAL_S: Final = 2
_PROBES: Final = 3
_UNANSWERED_S: Final = 10
_CONNECT_S: Final = 10.0
# What poolers say to a setting they do not know: PgBouncer, RDS Proxy, others.
_UNKNOWN_SETTING: Final = (
    asyncpg.ProtocolViolationError,
    asyncpg.FeatureNotSupportedError,
    asyncpg.UndefinedObjectError,
)
# No such database, no such role or wrong password, no right to do it.
_REFUSED: Final = ("3D", "28", "42501")


class Losses:
    """Counts the connections that ended, whoever ended them: the server behind the next one may be another."""

    def __init__(self) -> None:
        self.count = 0

    async def watch(self, connection: Connection) -> None:
        connection.add_termination_listener(self._lose)

    def _lose(self, _connection: Any) -> None:
        self.count += 1


class Postgres:
    """A pool and the statements of one schema. Open it with `async with open_postgres(config)`."""

    def __init__(
        self, pool: "asyncpg.Pool[asyncpg.Record]", config: StoreConfig, losses: "Losses | None" = None
    ) -> None:
        self._pool = pool
        self.config = config
        self.sql = statements(config.schema)
        self._at_hand: list[Pooled] = []
        self._waiting = 0
        self._giving: set[asyncio.Task[None]] = set()
        self._database_minus_local_s = 0.0
        self._losses = losses or Losses()

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
                return rows
            finally:
                self._give(connection, sound=sound)

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
        self._waiting += 1
        try:
            return await self._pool.acquire()
        finally:
            self._waiting -= 1

    def _give(self, connection: Pooled, *, sound: bool) -> None:
        if sound and not self._waiting and len(self._at_hand) < _AT_HAND and not _is_closed(connection):
            self._at_hand.append(connection)
        else:
            self._give_up(connection)

    def _give_up(self, connection: Pooled) -> None:
        """Back to the pool; not awaited, for the answer is here already."""
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
            finally:
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
        async with self.connection() as connection, connection.transaction(isolation=isolation, readonly=snapshot):
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

    async def synchronise(self) -> None:
        """Learn how far the database's clock is from our monotonic one; wall clocks of hosts are not used at all."""
        with translated():
            async with self.connection() as connection:
                before_s = steady_s()
                database_s: float = await connection.fetchval("select date_part('epoch', clock_timestamp())")
            self._database_minus_local_s = database_s - (before_s + steady_s()) / 2

    def now_ms(self) -> int:
        """The database's time, to within a round trip, for making ids."""
        return int((steady_s() + self._database_minus_local_s) * 1000)


@asynccontextmanager
async def open_postgres(config: StoreConfig) -> AsyncIterator[Postgres]:
    losses = Losses()
    pool = await _open_pool(config, losses)
    postgres = Postgres(pool, config, losses)
    try:
        await postgres.synchronise()
        yield postgres
    finally:
        postgres.let_go()
        try:
            await asyncio.wait_for(pool.close(), timeout=5)
        except (TimeoutError, OSError, asyncpg.PostgresError):
            pool.terminate()


async def connect(
    config: StoreConfig, *, direct: bool = False, patient: bool = False
) -> "asyncpg.Connection[asyncpg.Record]":
    """One connection outside the pool; `direct` past any pooler, `patient` without a time-out for statements."""
    with _reachable():
        return await _dial(
            (direct and config.direct_url) or _url(config),
            command_timeout=None if patient else config.statement_timeout_s,
            statement_cache_size=0,
            server_settings=_server_settings(pooled=config.direct_url is not None and not direct),
        )


async def _open_pool(config: StoreConfig, losses: Losses) -> "asyncpg.Pool[asyncpg.Record]":
    with _reachable():
        return await asyncpg.create_pool(
            _url(config),
            min_size=min(config.pool_min, config.pool_max),
            max_size=config.pool_max,
            command_timeout=config.statement_timeout_s,
            statement_cache_size=config.statement_cache_size,
            connect=_dial,
            init=losses.watch,
            reset=_keep,
            server_settings=_server_settings(pooled=config.direct_url is not None),
        )


async def _dial(*args: Any, **options: Any) -> "asyncpg.Connection[asyncpg.Record]":
    """Every connection of ours is made here."""
    options.setdefault("timeout", _CONNECT_S)
    try:
        connection: asyncpg.Connection[asyncpg.Record] = await asyncpg.connect(*args, **options)
    except _UNKNOWN_SETTING:  # a pooler nobody told us of
        connection = await asyncpg.connect(*args, **options | {"server_settings": _server_settings(pooled=True)})
    _keep_alive(connection)
    return connection


def _server_settings(*, pooled: bool) -> dict[str, str]:
    settings = {"application_name": "windlass"}
    if not pooled:  # the server's side of it: else locks of a machine that vanished are held for two hours
        settings |= {
            "tcp_keepalives_idle": str(_IDLE_S),
            "tcp_keepalives_interval": str(_INTERVAL_S),
            "tcp_keepalives_count": str(_PROBES),
            "tcp_user_timeout": str(_UNANSWERED_S * 1000),
        }
    return settings


def _keep_alive(connection: "asyncpg.Connection[asyncpg.Record]") -> None:
    """Our side of it. The driver has no option for this and hides its socket; should it hide it better, go without."""
    transport: asyncio.Transport | None = getattr(connection, "_transport", None)
    ours: Any = transport.get_extra_info("socket") if transport else None
    if ours is None or ours.family not in (socket.AF_INET, socket.AF_INET6):
        return
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    options = {
        "TCP_KEEPIDLE": _IDLE_S,
        "TCP_KEEPINTVL": _INTERVAL_S,
        "TCP_KEEPCNT": _PROBES,
        "TCP_USER_TIMEOUT": _UNANSWERED_S * 1000,
    }
    for name, value in options.items():
        if hasattr(socket, name):  # Linux has them all, others some
            ours.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


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
    except ValueError:  # without the driver's words: they quote what they could not read, a part of the password too
        raise Misconfigured(
            "WINDLASS_DATABASE_URL (or WINDLASS_DIRECT_URL) is no address of a PostgreSQL database, or has a wrong "
            "option; it is like postgresql://user@host:5432/name, with :password after the user (/ ? # @ % are %2F %3F %23 "
            "%40 %25 there)"
        ) from None


def _is_closed(connection: Pooled) -> bool:
    """By the server, meanwhile. If the driver has noticed first, it has taken the connection away from us."""
    try:
        return connection.is_closed()
    except asyncpg.InterfaceError:
        return True


async def _keep(_connection: Connection) -> None:
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
        raise Unavailable(f"PostgreSQL cannot be reached: {str(error) or type(error).__name__}") from error


def ours(state: str, message: str) -> WindlassError | None:
    """Our error for a SQLSTATE, whichever driver was told it; None for what is a bug."""
    if state == "23514" and "no partition" in message:
        return NoPartition(message)
    if state in _GAVE_WAY:
        return Contended(message)
    if state.startswith(_AWAY):
        return Unavailable(f"PostgreSQL: {message}")
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
