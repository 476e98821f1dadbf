"""Chunked parallel work: split, run the chunks at once on threads or processes, keep their order."""

import asyncio
import contextvars
import multiprocessing
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, wait
from typing import Any, Final, TypeVar

from windlass.worker.parentage import die_with
from windlass.worker.run import Stopped, throw

T = TypeVar("T")

_WAIT_S: Final = 0.05


def split(data: Sequence[Any], parts: int) -> list[Any]:
    """At most `parts` slices in order, of nearly equal length; none is empty."""
    size, more = divmod(len(data), max(1, parts))
    chunks, start = [], 0
    for n in range(max(1, parts)):
        end = start + size + (n < more)
        if end > start:
            chunks.append(data[start:end])
        start = end
    return chunks


def over_threads(fn: Callable[[Any], T], chunks: Sequence[Any]) -> list[T]:
    """The first chunk in this thread, the others beside it. An error is raised when all have ended; a request to stop
    is passed on to them at once, and overrules what they make of it."""
    parts: list[Any] = [None] * len(chunks)
    errors: list[BaseException] = []

    def run(n: int, chunk: Any) -> None:
        try:
            parts[n] = fn(chunk)
        except BaseException as error:  # noqa: BLE001 - raised in the handler's own thread, below
            errors.append(error)

    threads = [
        # A copy of the context each, so that what a chunk logs is known to be this job's.
        threading.Thread(target=contextvars.copy_context().run, args=(run, n, chunk), daemon=True)
        for n, chunk in enumerate(chunks[1:], start=1)
    ]
    for thread in threads:
        thread.start()
    begun = joined = False
    while not joined:  # told to stop more than once, it is told more than once: nothing may outlive this call
        try:
            if chunks and not begun:
                begun = True
                run(0, chunks[0])
            _join(threads, errors)
            joined = True
        except Stopped as stop:
            errors.append(stop)
    for error in sorted(errors, key=lambda error: not isinstance(error, Stopped)):
        raise error
    return parts


def _join(threads: Sequence[threading.Thread], errors: Sequence[BaseException]) -> None:
    """In short waits: nothing can be thrown into a thread that waits for a lock."""
    for thread in threads:
        while thread.is_alive():
            thread.join(_WAIT_S)
            if thread.ident is not None and thread.is_alive() and any(isinstance(e, Stopped) for e in tuple(errors)):
                throw(thread.ident, Stopped)


def over_processes(fn: Callable[[Any], T], chunks: Sequence[Any]) -> list[T]:
    """Each chunk in a process of its own. Spawned, not forked: a fork of a process with threads can hang."""
    if len(chunks) <= 1:
        return [fn(chunk) for chunk in chunks]
    spawn = multiprocessing.get_context("spawn")
    # They die with us: a pool does not notice that its owner was killed, and would wait for work for ever.
    with ProcessPoolExecutor(len(chunks), spawn, initializer=die_with, initargs=(os.getpid(),)) as pool:
        try:
            futures = [pool.submit(fn, chunk) for chunk in chunks]
            while wait(futures, timeout=_WAIT_S).not_done:  # in short waits: see _join
                pass
            return [future.result() for future in futures]
        except BaseException:
            for process in list((pool._processes or {}).values()):  # noqa: SLF001 - there is no other way to end one at work
                process.kill()
            raise


async def beside_the_loop(work: Callable[..., T], *args: Any) -> T:
    """Run blocking work in a thread of its own. A cancel is passed on to it as a request to stop, and awaits its end: what
    goes on after its attempt has ended would run beside the next."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[T] = loop.create_future()

    def run() -> None:
        try:
            result = work(*args)
        except BaseException as error:  # noqa: BLE001 - raised where it is awaited
            loop.call_soon_threadsafe(ended.set_exception, error)
        else:
            loop.call_soon_threadsafe(ended.set_result, result)

    thread = threading.Thread(target=contextvars.copy_context().run, args=(run,), daemon=True)
    thread.start()
    cancel: asyncio.CancelledError | None = None
    while not ended.done():
        try:
            await asyncio.wait([ended])
        except asyncio.CancelledError as error:
            cancel = error
            if thread.ident is not None and thread.is_alive():
                throw(thread.ident, Stopped)
    if cancel is not None:
        ended.exception()  # heard
        raise cancel
    return ended.result()
