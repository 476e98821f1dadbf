"""The link to Redis or Valkey: the only place that speaks to the driver. Asked within a time limit, or not at all.

Nothing here raises to its callers. A call that fails, is late, or is not made at all is a miss. While the server is not
known to be well, calls are not made; a task of the link's own finds out when it is well again, so that no caller pays for
the question. It is not waited for at start: a server that is not there then is one that is not well yet.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Self, TypeVar

from windlass.bus.patience import done_in_time
from windlass.bus.redis.breaker import Breaker
from windlass.clock import steady_s
from windlass.config.redis_url import RedisAddress
from windlass.errors import Misconfigured
from windlass.extras import needed

try:
    from redis.asyncio import Redis
    from redis.asyncio.cluster import ClusterNode, RedisCluster
    from redis.asyncio.connection import (
        BlockingConnectionPool,
        Connection,
        SSLConnection,
        UnixDomainSocketConnection,
    )
    from redis.asyncio.retry import Retry
    from redis.asyncio.sentinel import Sentinel
    from redis.backoff import NoBackoff
    from redis.exceptions import ResponseError

    _missing = False
except ImportError:
    _missing = True

T = TypeVar("T")

# The driver's client: of one server, or of a cluster. Its commands are typed as sync or async at once.
Client = Any

_CALLS: Final = 16  # at once, on as many connections
_CONNECT_S: Final = 1.0  # for a probe, which may have to find the server first, and speak TLS
_LOOK_S: Final = 5.0
_SET_MANY: Final = """
for n, name in ipairs(KEYS) do
  redis.call('SET', name, ARGV[2 * n - 1], 'PX', ARGV[2 * n], 'NX')
end
"""
_PROBE: Final = "windlass:probe"
_log: Final = logging.getLogger(__name__)


def client_of(address: RedisAddress, *, timeout_s: float | None, connections: int) -> Client:
    """A client that has not connected yet. Without `timeout_s` a reply is waited for as long as it takes, as a blocking pop
    wants it; to connect there is a limit in any case."""
    if _missing:
        raise Misconfigured(needed("WINDLASS_REDIS_URL", "redis"))
    options: dict[str, Any] = {
        "username": address.username,
        "password": address.password,
        "socket_timeout": timeout_s,
        "socket_connect_timeout": max(_CONNECT_S, timeout_s or 0),
        # Not the driver's own: we would wait for each of its tries.
        "retry": Retry(NoBackoff(), 0),
        "driver_info": None,
        "protocol": 2,
    }
    tls: dict[str, Any] = dict(address.tls_options)
    if address.kind == "cluster":
        nodes = [ClusterNode(host, port) for host, port in address.nodes]
        return RedisCluster(
            startup_nodes=nodes,
            max_connections=connections,
            ssl=address.tls,
            require_full_coverage=False,
            **tls,
            **options,
        )
    options["db"] = address.db
    if address.kind == "sentinel":
        return _of_sentinels(address, options, connections)
    kind: Any = SSLConnection if address.tls else Connection
    if address.kind == "socket":
        kind, options["path"] = UnixDomainSocketConnection, address.path
    else:
        (options["host"], options["port"]), *_ = address.nodes
    pool = BlockingConnectionPool(connections, timeout=timeout_s or _CONNECT_S, connection_class=kind, **options, **tls)
    return Redis.from_pool(pool)


def _of_sentinels(address: RedisAddress, options: dict[str, Any], connections: int) -> Client:
    tls = {"ssl": True, **address.tls_options} if address.tls else {}
    asking = {**options, "username": address.sentinel_username, "password": address.sentinel_password, "db": 0}
    sentinel: Any = Sentinel(address.nodes, sentinel_kwargs={**asking, **tls}, **options, **tls)  # type: ignore[no-untyped-call]
    client = sentinel.master_for(address.service, max_connections=connections)
    aclose = client.aclose

    async def close_all() -> None:
        """Also the connections to the sentinels, which the driver forgets."""
        for each in (aclose, *(one.aclose for one in sentinel.sentinels)):
            await each()

    client.aclose = close_all
    return client


def pipeline(client: Client) -> Any:
    """Several commands in one message to each server, and no transaction."""
    return client.pipeline() if isinstance(client, RedisCluster) else client.pipeline(transaction=False)


async def get_many(client: Client, names: Sequence[str]) -> Any:
    if not isinstance(client, RedisCluster):
        return await client.mget(names)
    pipe = pipeline(client)  # they are on several servers
    for name in names:
        pipe.get(name)
    return await pipe.execute()


async def set_many(client: Client, values: Sequence[tuple[str, bytes, int]]) -> None:
    """Each under its name for so many milliseconds, where there is nothing yet. One command, where that is possible: the
    driver takes as long for a command as for all else that is done to remember a key."""
    if len(values) > 1 and not isinstance(client, RedisCluster):
        arguments = [each for _, value, life_ms in values for each in (value, life_ms)]
        try:
            await client.eval(_SET_MANY, len(values), *(name for name, _, _ in values), *arguments)
        except ResponseError:  # no scripts for us; or no memory, which is told once more
            pass
        else:
            return
    pipe = pipeline(client)
    for name, value, life_ms in values:
        pipe.set(name, value, px=life_ms, nx=True)
    await pipe.execute()


class Link:
    """`async with Link(address, timeout_s=0.05) as link`; then `await link.ask("recall", lambda redis: redis.get("x"))`."""

    def __init__(self, address: RedisAddress, *, timeout_s: float, look_s: float = _LOOK_S) -> None:
        self.address = address
        self._look_s = look_s
        self._timeout_s = timeout_s
        # One more for the probe.
        self._client = client_of(address, timeout_s=max(timeout_s, _CONNECT_S), connections=_CALLS + 1)
        self._room = asyncio.Semaphore(_CALLS)
        self._breaker = Breaker()
        self._opened = asyncio.Event()
        self._opened.set()
        self._healing: asyncio.Task[None] | None = None
        self._left: set[asyncio.Task[Any]] = set()
        self._told_well: bool | None = None
        self._refused: set[str] = set()

    @property
    def well(self) -> bool:
        """Whether calls are made at all."""
        return not self._breaker.is_open

    def health(self) -> str:
        """For anyone to read: neither names nor addresses."""
        return "ok" if self.well else "does not answer; done without"

    async def __aenter__(self) -> Self:
        self._healing = asyncio.create_task(self._heal(), name="windlass redis")
        return self

    async def __aexit__(self, *_: object) -> None:
        self._breaker.is_open = True
        tasks = [task for task in (self._healing, *self._left) if task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=_CONNECT_S)
        with contextlib.suppress(Exception):
            async with asyncio.timeout(_CONNECT_S):
                await self._client.aclose()

    async def ask(self, what: str, call: Callable[[Client], Awaitable[T]]) -> T | None:
        """The answer, or None for none: in time, or not at all. `what` it is about, for the log."""
        if self._breaker.is_open:
            return None
        began = asyncio.Event()
        task = asyncio.create_task(self._made(call, began))
        try:
            answer = await self._in_time(task, self._timeout_s)
        except _Late:
            if began.is_set():  # else others are late, and they tell
                self._fail(TimeoutError(f"no answer within {self._timeout_s:g} s"), timed_out=True)
            return None
        except Exception as error:  # noqa: BLE001 - whatever it says or does: what it is asked can be done without
            if not _missing and isinstance(error, ResponseError):
                self._is_refused(what, error)
            else:
                self._fail(error)
            return None
        self._breaker.succeeded()
        self._is_taken(what)
        return answer

    async def _made(self, call: Callable[[Client], Awaitable[T]], began: asyncio.Event) -> T:
        async with self._room:
            began.set()
            return await call(self._client)

    async def _in_time(self, task: "asyncio.Task[T]", within_s: float) -> T:
        self._left.add(task)
        task.add_done_callback(self._ended)
        try:
            if await done_in_time(task, within_s) and not task.cancelled():  # as it is when the link is closed
                return task.result()
        finally:
            task.cancel()
        raise _Late

    def _ended(self, task: "asyncio.Task[Any]") -> None:
        self._left.discard(task)
        if not task.cancelled():
            task.exception()  # told already, or too late to be of interest

    # Health. --------------------------------------------------------------------------------------------------------

    def _fail(self, error: Exception, *, timed_out: bool = False) -> None:
        if self._breaker.failed(steady_s(), timed_out=timed_out):
            if self._breaker.pause_s:  # no first failure, which the probe that follows at once may well refute
                self._tell(error)
            self._opened.set()

    async def _heal(self) -> None:
        """Finds out when the server is well, whenever it is not; and while nobody asks, whether it still is."""
        while True:
            try:
                async with asyncio.timeout(self._look_s):
                    await self._opened.wait()
            except TimeoutError:
                if (problem := await self._probed()) is not None:
                    self._fail(problem, timed_out=True)
                continue
            self._opened.clear()
            while self._breaker.is_open:
                await asyncio.sleep(self._breaker.pause_s)
                problem = await self._probed()
                self._breaker.probed(steady_s(), well=problem is None)
                self._tell(problem)

    async def _probed(self) -> Exception | None:
        """What is wrong with it. First found and connected to, in peace; then it must be as quick as it will have to be."""
        try:
            for within_s in (max(_CONNECT_S, self._timeout_s), self._timeout_s):
                await self._in_time(asyncio.create_task(self._client.get(_PROBE)), within_s)
        except _Late:
            return TimeoutError(f"no answer within {self._timeout_s:g} s")
        except Exception as error:  # noqa: BLE001 - as above
            return error
        return None

    def _tell(self, problem: Exception | None) -> None:
        """One line for each change, not for each call."""
        well = problem is None
        if well is self._told_well:
            return
        if problem is not None:
            _log.warning("Redis is not used, until it answers; everything works without: %s", reason(problem))
        elif self._told_well is not None:
            _log.info("Redis is used again")
        self._told_well = well

    def _is_refused(self, what: str, error: Exception) -> None:
        """It answers, and will not do this: its memory is full, say, or we have no right to."""
        self._breaker.succeeded()
        if what not in self._refused:
            self._refused.add(what)
            _log.warning("Redis refuses to %s; everything works without: %s", what, reason(error))

    def _is_taken(self, what: str) -> None:
        if what in self._refused:
            self._refused.discard(what)
            _log.info("Redis no longer refuses to %s", what)


class _Late(Exception):
    """No answer in time."""


def reason(problem: Exception) -> str:
    """On one line, and not more of it than that: a server that is none may say anything."""
    text = " ".join(str(problem).split()) or type(problem).__name__
    return ascii(text if len(text) <= 200 else f"{text[:98]} ... {text[-98:]}")[1:-1]
