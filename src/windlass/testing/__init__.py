"""The testing kit: a database for each test, jobs that run to their end at once, and what was enqueued.

    with temporary_database(app):
        signup("ann")
        assert_enqueued(send, to="ann")
        drain()

The pytest plugin (plugin.py) has the same as fixtures. Each name is imported when it is first used: the plugin is loaded
by every pytest on a machine that has Windlass installed.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from windlass.testing.assertions import StoredJob, aenqueued, assert_enqueued, assert_not_enqueued, enqueued
    from windlass.testing.contexts import Recorded, context_for, recorded
    from windlass.testing.database import DatabaseServer, temporary_database
    from windlass.testing.draining import Drained, DrainFailed, EndlessDrain, adrain, drain

_HOMES: Final = {
    "DatabaseServer": "database",
    "DrainFailed": "draining",
    "Drained": "draining",
    "EndlessDrain": "draining",
    "Recorded": "contexts",
    "StoredJob": "assertions",
    "adrain": "draining",
    "aenqueued": "assertions",
    "assert_enqueued": "assertions",
    "assert_not_enqueued": "assertions",
    "context_for": "contexts",
    "drain": "draining",
    "enqueued": "assertions",
    "recorded": "contexts",
    "temporary_database": "database",
}

__all__ = [
    "DatabaseServer",
    "DrainFailed",
    "Drained",
    "EndlessDrain",
    "Recorded",
    "StoredJob",
    "adrain",
    "aenqueued",
    "assert_enqueued",
    "assert_not_enqueued",
    "context_for",
    "drain",
    "enqueued",
    "recorded",
    "temporary_database",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'windlass.testing' has no attribute {name!r}")
    value = getattr(import_module(f"windlass.testing.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(_HOMES)
