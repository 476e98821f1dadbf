"""Making connections to PostgreSQL: the pool, single ones past any pooler, and what each of them is told at its start.

Nothing that is set by `WINDLASS_…` must fit the pooler in front of the database: what it breaks is found out (pooler.py) and
gone without, and that is said once.
"""

import asyncio
import logging
import socket
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final

import asyncpg

from windlass.config import StoreConfig
from windlass.errors import Misconfigured
from windlass.store.pooler import Route, examine
from windlass.store.postgres import Losses, Postgres, keep_session, translated

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
_log: Final = logging.getLogger(__name__)


class Connector:
    """Makes the connections of one pool. The first one shows what lies between us and the server."""

    def __init__(self, *, cache_size: int, pooled: bool = False) -> None:
        self.route: Route | None = None
        self._cache_size = cache_size
        self._pooled = pooled
        self._examining = asyncio.Lock()

    async def dial(self, *args: Any, **options: Any) -> "asyncpg.Connection[asyncpg.Record]":
        """A connection that is as it may be behind this pooler, if there is one."""
        cached = self._cache_size > 0
        connection = await self._dial(*args, **options | {"statement_cache_size": self._cache_size})
        try:
            if cached:
                await self._examine(connection, args, options)
        except BaseException:
            connection.terminate()
            raise
        if cached and not self._cache_size:
            connection.terminate()
            return await self._dial(*args, **options | {"statement_cache_size": 0})
        return connection

    def forgo_cache(self) -> bool:
        """Make no prepared statements from now on; whether there were any until now."""
        had, self._cache_size = self._cache_size > 0, 0
        if had:
            _say_once()
        return had

    async def _examine(
        self, connection: "asyncpg.Connection[asyncpg.Record]", args: tuple[Any, ...], options: dict[str, Any]
    ) -> None:
        async with self._examining:
            if self.route is None:
                uncached = options | {"statement_cache_size": 0}
                self.route = await examine(connection, lambda: self._dial(*args, **uncached))
        if not self.route.keeps_statements:
            self.forgo_cache()

    async def _dial(self, *args: Any, **options: Any) -> "asyncpg.Connection[asyncpg.Record]":
        """Every connection of ours is made here."""
        options = {"timeout": _CONNECT_S} | options
        self._pooled = self._pooled or args[:1] in _refusing
        try:
            connection = await self._connect(*args, **options)
        except _UNKNOWN_SETTING:
            if self._pooled:
                raise
            self._pooled = True  # by a pooler nobody told us of
            _refusing.add(args[:1])
            connection = await self._connect(*args, **options)
        _keep_alive(connection)
        return connection

    async def _connect(self, *args: Any, **options: Any) -> "asyncpg.Connection[asyncpg.Record]":
        return await asyncpg.connect(*args, **options, server_settings=_server_settings(pooled=self._pooled))


@asynccontextmanager
async def open_postgres(config: StoreConfig, *, beside: Postgres | None = None) -> AsyncIterator[Postgres]:
    """A pool. `beside`: one on the same database that is open already and knows its time; nothing is asked again."""
    losses = Losses()
    connector = Connector(cache_size=config.statement_cache_size, pooled=config.direct_url is not None)
    pool = await _open_pool(config, connector, losses)
    postgres = Postgres(pool, config, losses, forgo_cache=connector.forgo_cache)
    try:
        if beside is None:
            await postgres.synchronise()
        else:
            postgres.take_time_from(beside)
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
    return await _single(config, direct=direct, patient=patient)


async def route_of(
    connection: "asyncpg.Connection[asyncpg.Record]", config: StoreConfig, *, direct: bool = False
) -> Route:
    """How a connection that `connect` has made reaches the server."""
    with translated():
        return await examine(connection, lambda: _single(config, direct=direct))


async def _single(config: StoreConfig, *, direct: bool, patient: bool = False) -> "asyncpg.Connection[asyncpg.Record]":
    connector = Connector(cache_size=0, pooled=config.direct_url is not None and not direct)
    with _reachable():
        return await connector.dial(
            (direct and config.direct_url) or _url(config),
            command_timeout=None if patient else config.statement_timeout_s,
        )


async def _open_pool(config: StoreConfig, connector: Connector, losses: Losses) -> "asyncpg.Pool[asyncpg.Record]":
    with _reachable():
        return await asyncpg.create_pool(
            _url(config),
            min_size=min(config.pool_min, config.pool_max),
            max_size=config.pool_max,
            command_timeout=config.statement_timeout_s,
            connect=connector.dial,
            init=losses.watch,
            reset=keep_session,
        )


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
        raise Misconfigured(
            "no database: set WINDLASS_DATABASE_URL (to the address that `windlass up` prints as its database, if that runs)"
        )
    return config.database_url


@contextmanager
def _reachable() -> Iterator[None]:
    """What a wrong address, name, role or password raises, as one line for the person who set it."""
    try:
        with translated():
            yield
    except ssl.SSLCertVerificationError as error:
        raise Misconfigured(f"PostgreSQL's certificate is not trusted: {error.verify_message}") from None
    except (
        ValueError
    ) as error:  # without the driver's words: they quote what they could not read, a part of the password too
        if "certificate" in str(error):
            raise Misconfigured(
                "WINDLASS_DATABASE_URL (or WINDLASS_DIRECT_URL): sslmode=verify-ca and verify-full need sslrootcert=/path/to/ca.pem, "
                "a file that can be read"
            ) from None
        raise Misconfigured(
            "WINDLASS_DATABASE_URL (or WINDLASS_DIRECT_URL) is no address of a PostgreSQL database, or has a wrong "
            "option; it is like postgresql://user@host:5432/name, with :password after the user (/ ? # @ % are %2F %3F %23 "
            "%40 %25 there)"
        ) from None


# In a process, which has several pools: what was said, and which addresses refuse settings.
_said: list[bool] = []
_refusing: set[object] = set()


def _say_once() -> None:
    """Once in a process, which has several pools."""
    if not _said:
        _said.append(True)
        _log.warning(
            "the pooler in front of PostgreSQL does not keep prepared statements: going without them, which is slower "
            "(PgBouncer from 1.21 on keeps them with max_prepared_statements = 200)"
        )
