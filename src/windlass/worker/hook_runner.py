"""Calls `on_success`, `on_failure` and `on_dead`: in the worker, after the database has stored what they are about.

`async def` hooks run on the worker's loop, `def` hooks in threads of their own, as many at a time as the worker has
threads. They hold up no job and no settlement; but what waits for them counts as the settler's backlog, so that a worker
claims no more while too much has gathered, and ends only when they are done.
"""

import asyncio
import contextvars
import inspect
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from windlass.lifecycle import Settlement
from windlass.model import Status
from windlass.telemetry import current
from windlass.worker.hooks import Hook, JobEvent, log_hook_failure
from windlass.worker.run import Run
from windlass.worker.run_loop import create_own_task

_LIMIT_S: Final = 60.0  # a hook that never returns must not keep its worker from ending
_TOLD_EVERY: Final = 250


class HookRunner:
    """`drained` is called on the loop when less is waiting than before."""

    def __init__(self, width: int, drained: Callable[[], None], *, limit_s: float = _LIMIT_S) -> None:
        self._width = width
        self._drained = drained
        self._limit_s = limit_s
        self._waiting: deque[tuple[Run, Sequence[Hook], JobEvent]] = deque()
        self._running: set[asyncio.Task[None]] = set()
        self._threads: ThreadPoolExecutor | None = None
        self.backlog = 0

    def ended(self, run: Run, settlement: Settlement, status: Status) -> None:
        """An attempt has ended, and that is stored. On the loop's thread only."""
        hooks = run.job.hooks
        chosen = [] if hooks is None else hooks.of_end(run.lease, settlement, status)
        error, run.exception = run.exception, None  # its traceback holds the run: a circle that only gc would open
        if not chosen:
            return
        self._waiting.append((run, chosen, JobEvent(run.lease, settlement, error)))
        self.backlog += 1
        if len(self._running) < self._width:
            # In a context of its own: what a hook leaves in it must not reach the settler.
            task = create_own_task(asyncio.get_running_loop(), self.work(), context=contextvars.Context())
            self._running.add(task)
            task.add_done_callback(self._running.discard)

    async def work(self) -> None:
        """Call hooks until none are left."""
        while self._waiting:
            run, hooks, event = self._waiting.popleft()
            current.set(run)  # what a hook logs names the job
            for hook in hooks:
                await self._call(hook, event, run)
            self.backlog -= 1
            if self.backlog % _TOLD_EVERY == 0:
                self._drained()

    async def _call(self, hook: Hook, event: JobEvent, run: Run) -> None:
        try:
            async with asyncio.timeout(self._limit_s) as limit:
                if inspect.iscoroutinefunction(hook):
                    await hook(event)
                else:
                    await self._in_thread(hook, event)
        except BaseException as error:  # not even sys.exit() of a hook may end the worker
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            late = TimeoutError(f"it did not return within {self._limit_s:g} s") if limit.expired() else None
            log_hook_failure(hook, run.lease, late or error)

    async def _in_thread(self, hook: Hook, event: JobEvent) -> None:
        if self._threads is None:
            self._threads = ThreadPoolExecutor(self._width, thread_name_prefix="windlass-hook")
        work: Callable[..., Any] = contextvars.copy_context().run
        await asyncio.get_running_loop().run_in_executor(self._threads, work, hook, event)

    def close(self) -> None:
        for task in self._running:
            task.cancel()
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
