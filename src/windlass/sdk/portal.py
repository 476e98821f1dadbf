"""One event loop in a thread of its own, for callers that have none: where blocking calls do their waiting."""

import asyncio
import atexit
import contextlib
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from typing import Any, Final, TypeAlias, TypeVar

from windlass.blocking import waited
from windlass.errors import WindlassError

T = TypeVar("T")

_CLOSE_S: Final = 10.0
_Began: TypeAlias = "Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]]"


class Portal:
    """A loop that is started with the first call and ended by `close`, or with the program; `leave` is run on it last."""

    def __init__(self, leave: Callable[[], Awaitable[None]]) -> None:
        self._leave = leave
        self.forget()

    def forget(self) -> None:
        """Begin anew. In the child of a fork the thread is gone, and a lock may be held by nobody."""
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._stop: asyncio.Event | None = None

    def run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run it on the portal's loop and wait for it here."""
        loop = self._started()
        if self._thread is threading.current_thread():
            raise WindlassError("a blocking call on the loop it would wait for; await its async twin instead")
        return waited(work(), loop)

    def close(self) -> None:
        """End the loop, and with it whatever its tasks hold open."""
        with self._lock:
            loop, thread, stop = self._loop, self._thread, self._stop
            self._loop = self._thread = self._stop = None
        if loop is None or thread is None or stop is None:
            return
        atexit.unregister(self.close)
        with contextlib.suppress(RuntimeError):  # its loop has ended already
            loop.call_soon_threadsafe(stop.set)
        if thread is not threading.current_thread():
            thread.join(_CLOSE_S)

    def _started(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                began: _Began = Future()
                self._thread = threading.Thread(
                    target=_serve, args=(began, self._leave), name="windlass calls", daemon=True
                )
                self._thread.start()
                self._loop, self._stop = began.result()
                atexit.register(self.close)
            return self._loop


def _serve(began: _Began, leave: Callable[[], Awaitable[None]]) -> None:
    work = _until_stopped(began, leave)
    try:
        asyncio.run(work)
    except BaseException as error:
        work.close()
        if began.done():
            raise
        began.set_exception(error)  # no loop to be had, as without free file descriptors: whoever waits must hear it


async def _until_stopped(began: _Began, leave: Callable[[], Awaitable[None]]) -> None:
    stop = asyncio.Event()
    began.set_result((asyncio.get_running_loop(), stop))
    await stop.wait()
    # While everything still runs: asyncio.run cancels what is left all at once, a wake-up on its way as well, and at
    # the end of a program no name could be looked up for a new connection to send it again.
    await leave()
