"""The event loop of a worker, where tasks of Windlass and tasks of handlers live side by side."""

import contextvars
from typing import Any

import uvloop

from windlass.telemetry import current
from windlass.worker.run_loop import create_own_task


class WorkerLoop(uvloop.Loop):
    """Hides every task that no handler creates, such as those of connection pools, and leaves the task factory to handlers:
    with one that fails, or that another job left behind, connections would not come back to their pool."""

    def create_task(
        self, coro: Any, *, name: Any = None, context: contextvars.Context | None = None, **options: Any
    ) -> Any:
        if current.get() is None:
            return create_own_task(self, coro, name=name, context=context)
        return super().create_task(coro, name=name, context=context, **options)
