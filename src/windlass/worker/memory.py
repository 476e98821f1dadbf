"""The memory limit of an isolated job, enforced by the kernel on its child process.

The limit is on the data a process may allocate (RLIMIT_DATA), counted from what the child has before its first job. Not
on its address space: libraries reserve gigabytes of that without using any. What a handler allocates beyond the limit
raises MemoryError, or makes a library fail or abort; the worker and its other jobs are not concerned. Processes that the
handler starts have a limit of the same size each. Linux only; elsewhere the limit is not enforced.
"""

import re
import resource
from pathlib import Path
from typing import Final

_MIB: Final = 1_048_576
_STATUS: Final = Path("/proc/self/status")
_DATA: Final = re.compile(r"^VmData:\s+(\d+) kB$", re.MULTILINE)


class MemoryLimit:
    """The limit of this process. Jobs set it one after another."""

    def __init__(self) -> None:
        self._base_bytes = _data_bytes()
        self._before, self._most = resource.getrlimit(resource.RLIMIT_DATA)

    def set(self, limit_mb: int | None) -> None:
        """Let the process allocate this much more than it began with; None: as much as before."""
        if self._base_bytes is None:
            return
        wanted = self._before if limit_mb is None else self._base_bytes + limit_mb * _MIB
        # A limit of the operator's own (ulimit -d) is never raised.
        lower = [each for each in (wanted, self._before, self._most) if each != resource.RLIM_INFINITY]
        resource.setrlimit(resource.RLIMIT_DATA, (min(lower, default=resource.RLIM_INFINITY), self._most))


def explain(error: BaseException, limit_mb: int | None) -> None:
    """Say in a MemoryError without a message which limit was met."""
    if isinstance(error, MemoryError) and limit_mb is not None and not error.args:
        error.args = (f"the job needs more memory than its memory_limit_mb of {limit_mb:,} MiB",)


def _data_bytes() -> int | None:
    try:
        found = _DATA.search(_STATUS.read_text())
    except OSError:  # no /proc
        return None
    return int(found[1]) * 1024 if found else None
