"""An event loop that handlers cannot end.

asyncio lets SystemExit and KeyboardInterrupt out of a task or callback end the whole loop, and `loop.stop()` ends it for
everybody. In a worker the loop serves many jobs: it goes on until its own work is done. Tasks of Windlass are hidden from
`asyncio.all_tasks()`, which people cancel to clean up.
"""

import asyncio
import contextvars
import logging
import os
from asyncio.tasks import _unregister_task  # for loops of others, says the manual under "Extending"
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

from windlass.clock import steady_s
from windlass.worker.control import EXIT_FAULT

T = TypeVar("T")

_LOOPS: Final = {"asyncio.base_events", "asyncio.events"}  # what calls callbacks
_TOLD_S: Final = 1.0  # a handler may stop the loop a thousand times a second
_log: Final = logging.getLogger(__name__)


def run_to_end(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end, whoever stops the loop meanwhile.

    A loop that cannot go on ends the process at once: cancelling what runs would clear the slots, and the jobs under way
    would not be suspected.
    """
    task = create_own_task(loop, work, name="windlass")
    task.add_done_callback(lambda _: loop.stop())
    told_s = 0.0
    try:
        while not task.done():
            escaped = run_until_stopped(loop)
            if not task.done() and steady_s() - told_s > _TOLD_S:
                told_s = steady_s()
                what = f"raised {type(escaped).__name__} in a task or callback" if escaped else "stopped the event loop"
                _log.error("a handler %s; the loop goes on", what, exc_info=escaped)
    except BaseException:  # noqa: BLE001 - closed, its descriptor gone, or interrupted in the midst of our own work
        if not task.done():
            try:
                _log.critical("the event loop of this process is broken: it ends", exc_info=True)
            finally:
                os._exit(EXIT_FAULT)
    return task.result()


def run_until_stopped(loop: asyncio.AbstractEventLoop) -> BaseException | None:
    """Run the loop until it is stopped; what a handler ended it with, if anything. Raises what was not a handler's to raise."""
    try:
        loop.run_forever()
    except Exception:
        raise
    except BaseException as error:
        if _is_lost_callback(error):
            raise
        return error
    return None


def _is_lost_callback(error: BaseException) -> bool:
    """Whether this struck a callback of asyncio's or ours, as a signal or another thread can: whoever it was to wake, a job's
    sleep say, would wait for ever. A task or callback of a handler that raised it has ended, and no other with it."""
    trace = error.__traceback__
    while trace is not None:
        module = trace.tb_frame.f_globals.get("__name__", "")
        if module != __name__ and module.partition(".")[0] != "uvloop" and module not in _LOOPS:
            return module.partition(".")[0] in {"asyncio", "windlass", "asyncpg"}
        trace = trace.tb_next
    return False


def create_own_task(
    loop: asyncio.AbstractEventLoop,
    work: Coroutine[Any, Any, T],
    *,
    name: str | None = None,
    context: contextvars.Context | None = None,
) -> "asyncio.Task[T]":
    """A task that `asyncio.all_tasks()` does not tell of. Not made by the loop's task factory: a handler may have set it."""
    task = asyncio.Task(work, loop=loop, name=name, context=context)
    _unregister_task(task)
    return task
