"""What a child process does about its parent: dies with it, and leaves signals to it. Imports next to nothing."""

import contextlib
import ctypes
import os
import signal
import sys
from pathlib import Path
from typing import Final

_PR_SET_PDEATHSIG: Final = 1


def die_with(parent_pid: int) -> None:
    """From now on this process ends when its parent does; at once, if that has happened already.

    The kernel sends the signal when the *thread* that made the child ends: make children in the main thread.
    """
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
    if os.getppid() != parent_pid:
        os._exit(1)


def leave_signals_to_parent() -> None:
    """Ctrl-C and TERM reach the whole group or container: what they mean is for the parent to decide."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # Not SIG_IGN: that is inherited by what handlers start, and terminate() would be lost on it.
        signal.signal(number, lambda _number, _frame: None)


def started_ticks(pid: int) -> int:
    """When a process started, as the kernel counts it: with the pid it names one process. 0 where it cannot be told."""
    with contextlib.suppress(IndexError, ValueError):
        return int(stat_of(pid)[19])
    return 0


def stat_of(pid: int) -> list[str]:
    """What the kernel says of a process, from its state on (proc(5), field 3); nothing of one that is gone."""
    with contextlib.suppress(OSError):
        # The name, in brackets, may itself hold spaces and brackets.
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    return []
