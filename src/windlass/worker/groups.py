"""What is left of a process group whose head has ended: found, killed if it is provably ours, and asked after.

The programs that a handler starts are in the group of the process it runs in. A SIGKILL of that process does not reach
them: they would go on, and run twice at once when the job begins elsewhere.

The number of a group is not given out anew while it has members. So a group is taken for ours if its head is still
the process that we started, or if that number is no process's at all and whoever is left belongs to our session, which
no group ever leaves.
"""

import contextlib
import os
import signal
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from windlass.worker.parentage import stat_of

_STATE, _GROUP, _SESSION, _STARTED = 0, 2, 3, 19
_DEAD: Final = frozenset({"Z", "X"})


class Head(NamedTuple):
    """A process that leads a group of its own; `started` (parentage.started_ticks) tells it from others of its pid."""

    pid: int
    started: int


def kill_groups(heads: Iterable[Head]) -> int:
    """SIGKILL whatever lives in these groups; says how many did. They are gone when it says 0: ask again."""
    return sum(map(_kill_group, heads))


def _kill_group(head: Head) -> int:
    if head.pid <= 1 or not head.started or head.pid == os.getpgrp() or not _exists(head.pid):
        return 0
    holder = stat_of(head.pid)
    if holder and int(holder[_STARTED]) != head.started:  # the number is another's by now
        return 0
    living = [member for member in _members(head.pid) if member[_STATE] not in _DEAD]
    ours = all(int(m[_SESSION]) == os.getsid(0) and int(m[_STARTED]) >= head.started for m in living)
    if not living or not ours:
        return 0
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(head.pid, signal.SIGKILL)  # all at once: one by one, they could fork meanwhile
    return len(living)


def _exists(group: int) -> bool:
    """Spares the search in nearly every case."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _members(group: int) -> Iterator[list[str]]:
    for name in os.listdir("/proc"):  # noqa: PTH208 - hundreds of names, most of them not wanted
        if name.isdecimal() and (stat := stat_of(int(name))) and int(stat[_GROUP]) == group:
            yield stat
