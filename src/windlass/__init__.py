"""Windlass: a distributed, fault-tolerant job scheduler on PostgreSQL that knows threads.

The public names. Each is imported when it is first used: a program that only raises Retry pays for nothing else.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from windlass.app import App
    from windlass.errors import (
        Cancel,
        Fail,
        JobCancelled,
        JobFailed,
        LeaseLost,
        ResultMismatch,
        ResultNotStored,
        Retry,
        Snooze,
        WindlassError,
    )
    from windlass.model import NewJob, RetryPolicy, Status
    from windlass.sdk.calls import Handle
    from windlass.sdk.http import AsyncClient, Client
    from windlass.worker.context import AsyncContext, Context
    from windlass.worker.effects import Effect
    from windlass.worker.hooks import JobEvent
    from windlass.worker.run import Stopped

    __version__: str

_HOMES: Final = {
    "App": "windlass.app",
    "AsyncClient": "windlass.sdk.http",
    "AsyncContext": "windlass.worker.context",
    "Cancel": "windlass.errors",
    "Client": "windlass.sdk.http",
    "Context": "windlass.worker.context",
    "Effect": "windlass.worker.effects",
    "Fail": "windlass.errors",
    "Handle": "windlass.sdk.calls",
    "JobCancelled": "windlass.errors",
    "JobEvent": "windlass.worker.hooks",
    "JobFailed": "windlass.errors",
    "LeaseLost": "windlass.errors",
    "NewJob": "windlass.model",
    "ResultMismatch": "windlass.errors",
    "ResultNotStored": "windlass.errors",
    "Retry": "windlass.errors",
    "RetryPolicy": "windlass.model",
    "Snooze": "windlass.errors",
    "Status": "windlass.model",
    "Stopped": "windlass.worker.run",
    "WindlassError": "windlass.errors",
}

__all__ = [
    "App",
    "AsyncClient",
    "AsyncContext",
    "Cancel",
    "Client",
    "Context",
    "Effect",
    "Fail",
    "Handle",
    "JobCancelled",
    "JobEvent",
    "JobFailed",
    "LeaseLost",
    "NewJob",
    "ResultMismatch",
    "ResultNotStored",
    "Retry",
    "RetryPolicy",
    "Snooze",
    "Status",
    "Stopped",
    "WindlassError",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version  # noqa: PLC0415 - 40 ms, and hardly anybody asks

        globals()[name] = version("windlass")
        return globals()[name]
    if name not in _HOMES:
        raise AttributeError(f"module 'windlass' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*_HOMES, "__version__"])
