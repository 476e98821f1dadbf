"""Wake-ups over LISTEN and NOTIFY. A hint that is lost here costs a poll, never a job.

PostgresWaker sends: after commits, targeted, one statement in flight per process. (NOTIFY inside every submitting
transaction costs 58 % of the throughput of 32 connections: its lock makes their commits wait for each other's disk.)
Listener hears: on one connection of its own, past any pooler, which it proves to be alive by talking to itself. A
half-open connection is silent for ever. Through a pooler in transaction mode it does not listen at all: a probe may come back by
luck, on the server connection that happens to listen, and what is left on that connection is heard by others.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Iterable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Self
from uuid import UUID, uuid4

from windlass.bus.patience import done_in_time
from windlass.bus.protocol import RECONNECTED, OnHint
from windlass.clock import steady_s
from windlass.config import StoreConfig
from windlass.errors import Unavailable, WindlassError
from windlass.model import Want
from windlass.pauses import Pauses
from windlass.store.connections import connect, route_of
from windlass.store.postgres import translated
from windlass.store.protocol import Hints, channel

if TYPE_CHECKING:
    import asyncpg

    Connection = asyncpg.Connection[asyncpg.Record]

_KINDS_MAX: Final = 64  # different wants in one statement; beyond, everyone is woken
_NUDGES_MAX: Final = 10_000  # jobs; beyond, supervisors find the cancel requests by polling
_START_S: Final = 2.0
# Held for as long as the connection lasts, so that all can see that it does (enqueue_one). Shared, lest a new one find the
# old still there. Never waited for: whoever may connect may hold it against us, and a backend that waits for a lock
# outlives its client.
_PRESENCE: Final = "select pg_try_advisory_lock_shared(hashtextextended($1, 0))"
_BACK_OFF_S: Final = (0.1, 5.0)
_POOLED_S: Final = 60.0  # how soon to look again whether the pooler is gone
_SHARED: Final = (
    "the pooler in front of PostgreSQL is in transaction mode, which delivers no notifications; set WINDLASS_DIRECT_URL to "
    "the address of PostgreSQL itself"
)
_log: Final = logging.getLogger(__name__)


class PostgresWaker:
    """Sends wake-ups from the loop's thread: the first at once, those that come meanwhile together in the next."""

    def __init__(self, hints: Hints) -> None:
        self._hints = hints
        self._counts: dict[tuple[str, str, int], int] = {}
        self._named: set[UUID] = set()
        self._everyone = False
        self._cancelled: set[UUID] = set()
        self._sending: asyncio.Task[None] | None = None
        self._well = True

    def wake(self, wants: Iterable[Want]) -> None:
        counts = self._counts
        for queue, type_, threads, count in wants:
            kind = queue, type_, threads
            counts[kind] = counts.get(kind, 0) + count
        if len(counts) > _KINDS_MAX:
            counts.clear()
            self._everyone = True
        self._send_soon()

    def wake_workers(self, worker_ids: Iterable[UUID]) -> None:
        self._named.update(worker_ids)
        self._send_soon()

    def wake_all(self) -> None:
        self._everyone = True
        self._send_soon()

    def nudge(self, job_ids: Iterable[UUID]) -> None:
        self._cancelled.update(islice(job_ids, _NUDGES_MAX - len(self._cancelled)))
        self._send_soon()

    async def aclose(self, *, timeout_s: float = 2.0) -> None:
        """Send what is left, as far as it can be sent in time."""
        deadline_s = steady_s() + timeout_s
        while self._is_sending() or self._is_waiting():
            # The end of a loop cancels every task at once, the sending one too: what it had in hand goes from here.
            sending = self._send_soon()
            _, late = await asyncio.wait([sending], timeout=max(0.0, deadline_s - steady_s()))
            if late:
                sending.cancel()
                await asyncio.wait([sending])
                return

    def _is_sending(self) -> bool:
        return self._sending is not None and not self._sending.done()

    def _is_waiting(self) -> bool:
        return bool(self._counts or self._named or self._everyone or self._cancelled)

    def _send_soon(self) -> asyncio.Task[None]:
        # Not `is None` alone: a task that is cancelled before its first step ends without having run at all.
        if self._sending is None or self._sending.done():
            self._sending = asyncio.create_task(self._send(), name="windlass wake-ups")
        return self._sending

    async def _send(self) -> None:
        while self._is_waiting():
            counts, self._counts = self._counts, {}
            named, self._named = self._named, set()
            everyone, self._everyone = self._everyone, False
            cancelled, self._cancelled = self._cancelled, set()
            try:
                if cancelled:
                    await self._try(self._hints.nudge(cancelled))
                if named:
                    await self._try(self._hints.wake_workers(named))
                if everyone:  # includes those who would be woken for single jobs
                    await self._try(self._hints.call_all())
                elif counts:
                    await self._try(self._hints.rouse([Want(*kind, count) for kind, count in counts.items()]))
            except asyncio.CancelledError:
                self._put_back(counts, named, cancelled, everyone=everyone)
                raise

    def _put_back(
        self, counts: dict[tuple[str, str, int], int], named: set[UUID], cancelled: set[UUID], *, everyone: bool
    ) -> None:
        """Perhaps for a second time, which does no harm: the answer to the first was not awaited."""
        for kind, count in counts.items():
            self._counts[kind] = self._counts.get(kind, 0) + count
        self._named |= named
        self._everyone = self._everyone or everyone
        self._cancelled |= cancelled

    async def _try(self, sent: Awaitable[object]) -> None:
        try:
            await sent
        except Exception as problem:  # noqa: BLE001  # whoever submitted has his job stored: it is found by polling
            if self._well:
                ours = None if isinstance(problem, WindlassError) else problem
                _log.warning("wake-ups cannot be sent; workers poll: %s", problem, exc_info=ours)
            self._well = False
        else:
            if not self._well:
                _log.info("wake-ups are sent again")
            self._well = True


class Listener:
    """Listens on channels while its block lasts, on one connection that it replaces when it is lost or deaf.

    `on_hint` is called in the loop's thread and must return at once; with RECONNECTED, for every channel, whenever
    hints may have been missed. `presence`: a lock of that name is held while it listens.
    """

    def __init__(
        self,
        config: StoreConfig,
        channels: Sequence[str],
        on_hint: OnHint,
        *,
        presence: UUID | None = None,
        probe_s: float = 10.0,
        deaf_after_s: float = 5.0,
    ) -> None:
        self._config = config
        self._channels = tuple(channels)
        self._on_hint = on_hint
        self._presence = presence
        self._probe_s = probe_s
        self._deaf_after_s = deaf_after_s
        self._own_channel = channel(uuid4())
        self._heard = asyncio.Event()
        self._gone = asyncio.Event()
        self._began = asyncio.Event()
        self._missed = False
        self._listening = False
        self._pooled = False
        self._task: asyncio.Task[None] | None = None

    @property
    def listening(self) -> bool:
        """Whether hints arrive, as far as the last probe could tell."""
        return self._listening

    async def __aenter__(self) -> Self:
        """Listening, if that can be had at once; else it is told by "reconnected"."""
        self._task = asyncio.create_task(self._keep_listening(), name="windlass listener")
        try:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._began.wait(), _START_S)
        except BaseException:  # no block begins, so none would end: its task and connection would outlive it
            await self.__aexit__()
            raise
        self._missed = not self._listening
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        self._listening = False

    async def _keep_listening(self) -> None:
        pauses = Pauses(*_BACK_OFF_S)
        while True:
            try:
                await self._listen()
            except Exception as problem:  # noqa: BLE001  # a deaf worker polls; one whose listener has died never hears again
                if self._listening:
                    pauses.reset()
                if self._listening or not self._began.is_set():
                    ours = None if isinstance(problem, WindlassError) else problem
                    _log.warning("wake-ups are not heard; polling: %s", problem, exc_info=ours)
                self._listening = False
                self._missed = True
                self._began.set()
            if self._pooled:
                await asyncio.sleep(_POOLED_S)
            await pauses.wait()

    async def _listen(self) -> None:
        """One connection's life; ends by an error."""
        connection = await connect(self._config, direct=True)
        try:
            self._pooled = (await route_of(connection, self._config, direct=True)).shared
            if self._pooled:
                raise Unavailable(_SHARED)
            self._gone.clear()
            connection.add_termination_listener(self._lose)
            with translated():
                async with asyncio.timeout(self._deaf_after_s):
                    for name in (self._own_channel, *self._channels):
                        await connection.add_listener(name, self._hear)
                present = self._presence is None
                while True:
                    await self._probe(connection)
                    # Only now: behind a pooler, which fails the probe, the lock would stay with a connection of others.
                    present = present or await connection.fetchval(_PRESENCE, str(self._presence))
                    self._is_listening()
                    # Not wait_for: in Python 3.11 it forgets a cancellation that comes as the connection is lost.
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(self._probe_s):
                            await self._gone.wait()
        except asyncio.CancelledError:  # the block ends: take leave, if the server still listens
            with contextlib.suppress(Exception):
                await connection.close(timeout=1)
            raise
        finally:
            connection.terminate()

    async def _probe(self, connection: "Connection") -> None:
        """A round trip through the server's notifications and back."""
        probing = asyncio.create_task(self._round_trip(connection))
        try:
            if await done_in_time(probing, self._deaf_after_s):
                return await probing
        finally:
            probing.cancel()
        raise Unavailable(
            f"a notification to ourselves did not arrive in {self._deaf_after_s:g} s; "
            "behind a pooler, WINDLASS_DIRECT_URL must be set"
        )

    async def _round_trip(self, connection: "Connection") -> None:
        self._heard.clear()
        await connection.execute("select pg_notify($1, '')", self._own_channel)
        await self._heard.wait()

    def _is_listening(self) -> None:
        if not self._listening and self._began.is_set():
            _log.info("wake-ups are heard again")
        self._listening = True
        self._began.set()
        if self._missed:
            self._missed = False
            for name in self._channels:
                self._tell(name, RECONNECTED)

    def _hear(self, _connection: Any, _pid: int, name: str, payload: object) -> None:
        if name == self._own_channel:
            self._heard.set()
        else:
            self._tell(name, str(payload))

    def _lose(self, _connection: Any) -> None:
        self._gone.set()

    def _tell(self, name: str, payload: str) -> None:
        try:
            self._on_hint(name, payload)
        except Exception:  # noqa: BLE001  # one hint that cannot be followed must not cost the connection
            _log.exception("a hint could not be followed")  # not on which channel: some are secret
