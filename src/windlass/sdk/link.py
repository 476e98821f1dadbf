"""A program's way to the store, from any thread and any loop: opened at the first call, once per event loop.

Blocking calls wait for the portal's loop, or for the loop of the worker that has lent its store. In the caller's own
transaction nothing waits for a loop: the work is done where the caller's connection is.
"""

import asyncio
import contextlib
import os
import threading
import weakref
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from contextvars import Context
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from windlass.blocking import driven, waited
from windlass.errors import RequestError, Unavailable
from windlass.model import Enqueued, NewJob
from windlass.sdk.portal import Portal
from windlass.store.protocol import Intake, Views

T = TypeVar("T")

_READ_ONLY: Final = "25006"


class Opened(NamedTuple):
    """A store in use: what callers do, and what they look at."""

    intake: Intake
    views: Views


class Wiring(Protocol):
    """How to reach a store, and to use a caller's own connection."""

    def open(self) -> AbstractAsyncContextManager[Opened]: ...

    def is_async(self, connection: Any) -> bool:
        """Whether the connection can be used only on its own loop."""

    def is_blocking(self, connection: Any) -> bool:
        """Whether its calls would hold up the loop they are made on."""

    async def adapted(self, connection: Any) -> Any:
        """The caller's connection as the store takes it."""


class _Lent(NamedTuple):
    """A worker's own store, on the worker's own loop."""

    opened: Opened
    loop: asyncio.AbstractEventLoop
    thread: int


class Link:
    """Calls to one store. `ask` on the running loop, `wait` from a thread without one."""

    def __init__(self, wiring: Wiring) -> None:
        self._wiring = wiring
        self._portal = Portal(self.aclose)
        self._lent: _Lent | None = None
        self._kept: dict[asyncio.AbstractEventLoop, _Kept] = {}
        _links.add(self)

    async def ask(self, work: Callable[[Opened], Awaitable[T]]) -> T:
        return await work(await self._here())

    def wait(self, work: Callable[[Opened], Awaitable[T]]) -> T:
        lent = self._lent
        if lent is not None and lent.thread != threading.get_ident():
            return waited(self.ask(work), lent.loop)
        return self._portal.run(lambda: self.ask(work))

    async def aenqueue(self, jobs: Sequence[NewJob], connection: Any = None) -> list[Enqueued]:
        opened = await self._here()
        if connection is None:
            return await opened.intake.enqueue(jobs)
        if self._wiring.is_blocking(connection):
            raise RequestError("connection: is a blocking one; call enqueue(…) with it, from a thread")
        return await _within(opened, jobs, await self._wiring.adapted(connection))

    def enqueue(self, jobs: Sequence[NewJob], connection: Any = None) -> list[Enqueued]:
        if connection is None:
            return self.wait(lambda opened: opened.intake.enqueue(jobs))
        if self._wiring.is_async(connection):
            raise RequestError("connection: is an async one; await aenqueue(…) with it")
        opened = self.wait(_itself)
        adapted = driven(self._wiring.adapted(connection))
        return driven(_within(opened, jobs, adapted))

    def attach(self, intake: Intake, views: Views) -> None:
        """Use this store on the running loop, and for blocking calls of other threads; its owner closes it."""
        self._lent = _Lent(Opened(intake, views), asyncio.get_running_loop(), threading.get_ident())

    def detach(self) -> None:
        self._lent = None

    async def aclose(self) -> None:
        """Close what was opened on the running loop."""
        kept = self._kept.pop(asyncio.get_running_loop(), None)
        if kept is not None:
            await kept.close()

    def close(self) -> None:
        """Close what blocking calls have opened."""
        self._portal.close()

    async def _here(self) -> Opened:
        loop = asyncio.get_running_loop()
        if self._lent is not None and self._lent.loop is loop:
            return self._lent.opened
        kept = self._kept.get(loop)
        if kept is None or kept.task.done():
            for ended in [each for each in self._kept.copy() if each.is_closed()]:
                self._kept.pop(ended, None)  # other loops, in other threads, come and go meanwhile
            kept = self._kept[loop] = _Kept(self._wiring)
        return await kept.opened()

    def forget(self) -> None:
        """In the child of a fork: what the parent has opened is the parent's."""
        _abandoned.append((self._kept, self._lent))
        self._kept, self._lent = {}, None
        self._portal.forget()


class _Kept:
    """A store held open by a task: whoever ends the loop properly cancels its tasks, and that closes the store."""

    def __init__(self, wiring: Wiring) -> None:
        self._ready: asyncio.Future[Opened] = asyncio.get_running_loop().create_future()
        # An empty context: the store outlives the job, if it is one, that made the first call.
        self.task = asyncio.create_task(self._keep(wiring), name="windlass store", context=Context())

    async def opened(self) -> Opened:
        return await asyncio.shield(self._ready)

    async def close(self) -> None:
        self.task.cancel()
        await asyncio.wait([self.task])

    async def _keep(self, wiring: Wiring) -> None:
        try:
            async with wiring.open() as opened:
                self._ready.set_result(opened)
                await asyncio.Event().wait()
        except asyncio.CancelledError:
            self._ready.cancel()
            raise
        except Exception as error:
            if self._ready.done():  # while closing: for the log of the loop
                raise
            self._ready.set_exception(error)


async def _itself(opened: Opened) -> Opened:
    return opened


async def _within(opened: Opened, jobs: Sequence[NewJob], connection: Any) -> list[Enqueued]:
    try:
        return await opened.intake.enqueue(jobs, connection=connection)
    except Unavailable as error:
        if (
            getattr(error.__cause__, "sqlstate", None) == _READ_ONLY
        ):  # on our own connection: a server that has lost its lead
            raise RequestError("connection: its transaction is read-only, so nothing can be stored in it") from error
        raise


_links: "weakref.WeakSet[Link]" = weakref.WeakSet()
# Never let go of in a child: ending a connection there would say goodbye on the socket that the parent still uses.
_abandoned: list[Any] = []


def _forget_all() -> None:
    for link in list(_links):
        link.forget()


with contextlib.suppress(AttributeError):  # systems without fork
    os.register_at_fork(after_in_child=_forget_all)
