"""What a worker serves: queues by name, and by pattern. `tenant-*` is every queue whose name begins so, `*` is every queue.

Names have no star, so one list can hold both. Pure.
"""

import re
from collections.abc import Iterable
from typing import Final

from windlass.errors import InvalidJob

_SERVED: Final = re.compile(r"\*|[A-Za-z0-9_][A-Za-z0-9_.:/-]{0,98}\*|[A-Za-z0-9_][A-Za-z0-9_.:/-]{0,99}")


def is_pattern(served: str) -> bool:
    return served.endswith("*")


def is_served_name(served: str) -> bool:
    """Whether this is a queue's name or a pattern that a worker can serve."""
    return _SERVED.fullmatch(served) is not None


def check_served(field: str, served: str) -> None:
    if not isinstance(served, str) or not is_served_name(served):
        raise InvalidJob(field, "must be names of queues, or patterns such as tenant-* or *")


def prefixes(served: Iterable[str]) -> list[str]:
    """What the names of queues begin with that are served by pattern; the empty text for `*`."""
    return [each[:-1] for each in served if is_pattern(each)]


def matches(served: str, queue: str) -> bool:
    """Whether one entry of what a worker serves is about this queue."""
    return queue.startswith(served[:-1]) if is_pattern(served) else queue == served


def serves(served: Iterable[str], queue: str) -> bool:
    """Whether a worker that serves these serves this queue."""
    return any(matches(each, queue) for each in served)
