"""Coroutines from where nothing can be awaited: on the loop of another thread, or with no loop at all."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from windlass.errors import WindlassError

T = TypeVar("T")


def waited(work: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop) -> T:
    """Run a coroutine on the loop of another thread; whoever interrupts the wait ends the work too."""
    try:
        future = asyncio.run_coroutine_threadsafe(work, loop)
    except RuntimeError:  # closed a moment ago
        work.close()
        raise
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise


def driven(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never waits, because all it awaits is done by a blocking connection."""
    try:
        work.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    work.close()
    raise WindlassError("a blocking call had to wait for a loop; await its async twin instead")
