"""The program that children for isolated jobs are forked from: `python -m windlass.worker.template CHANNEL_FD PARENT_PID`.

Imports the app once, which takes half a second, and then makes children in milliseconds, each as fresh as a started
one. It runs no job, starts no thread and waits for nothing but the orders of its worker (forks.py): Fork, answered with
the pidfd of the child, and Reap, when the worker has seen its end. Until then the child's number stays its own.

An app whose import leaves threads running, or connections, pipes, loops or databases open, cannot be forked: a lock
would stay taken for ever, two processes would talk on one connection. The template says so, and the worker starts
children anew instead. What is beyond our sight: a generator of random numbers of the app's own is the same in each.
"""

import contextlib
import fcntl
import gc
import os
import random
import select
import signal
import socket
import stat
import sys
import warnings
from pathlib import Path
from typing import Final

from windlass.errors import Misconfigured
from windlass.worker.child import Loaded, load, serve, settle_in
from windlass.worker.frames import (
    Fork,
    Forked,
    FromTemplate,
    NotForked,
    Ready,
    Reap,
    Reaped,
    Refused,
    Start,
    ToTemplate,
    Unfit,
    packet,
    packet_bytes_max,
    plain_text,
    to_template,
)
from windlass.worker.parentage import die_with, leave_signals_to_parent

_CHILD_FDS: Final = 2
_TRIAL_S: Final = 1.0


def main() -> None:
    channel_fd, parent_pid = map(int, sys.argv[1:3])
    die_with(parent_pid)
    leave_signals_to_parent()
    os.set_inheritable(channel_fd, False)
    orders = Orders(socket.socket(fileno=channel_fd))
    loaded = prepare(orders)
    # Returns in every child, with an empty stack below it.
    if loaded is not None and (fds := take_orders(orders)) is not None:
        serve(settle_in(*fds), loaded)


class Orders:
    """The template's end of the channel."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end

    def hear(self) -> tuple[ToTemplate | None, list[int]]:
        """The next order and what came with it; None once the worker is gone."""
        data, fds, _, _ = socket.recv_fds(self._socket, packet_bytes_max, _CHILD_FDS, socket.MSG_CMSG_CLOEXEC)
        return (to_template.decode(data) if data else None), fds

    def say(self, answer: FromTemplate, *fds: int) -> None:
        socket.send_fds(self._socket, [packet(answer)], fds)

    def close(self) -> None:
        self._socket.close()


def prepare(orders: Orders) -> Loaded | None:
    """Import the app, and say whether children can be forked now."""
    start, _ = orders.hear()
    if not isinstance(start, Start):
        return None
    before = _open_fds()
    try:
        loaded = load(start)
    except Misconfigured as problem:
        orders.say(Refused(plain_text(str(problem))))
        return None
    if (left_behind := _unfit(_open_fds() - before)) is not None:
        orders.say(Unfit(left_behind))
        return None
    # Children look at what there is, and would copy every page of it: 9 MB of their own instead of 3, for a small app.
    gc.collect()
    gc.freeze()
    orders.say(Ready())
    return loaded


def take_orders(orders: Orders) -> tuple[int, int] | None:
    """Fork and reap until the worker is gone; in a child, return with what it was given."""
    while True:
        order, fds = orders.hear()
        match order:
            case Fork() if len(fds) == _CHILD_FDS:
                channel_fd, words_fd = fds
                if _fork(orders):
                    return channel_fd, words_fd
            case Reap(pid):
                _, status = os.waitpid(pid, 0)
                orders.say(Reaped(os.waitstatus_to_exitcode(status)))
            case _:
                return None
        for fd in fds:
            os.close(fd)


def _fork(orders: Orders) -> bool:
    """Returns twice: True in the child."""
    own_pid = os.getpid()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()  # what waits here would be written by both
    try:
        pid = os.fork()
    except OSError as error:
        orders.say(NotForked(str(error)))
        return False
    if pid == 0:
        _become_child(own_pid, orders)
        return True
    with contextlib.suppress(OSError):  # it does so itself; whoever is first, nobody may find it in our group
        os.setpgid(pid, pid)
    try:
        pidfd = os.pidfd_open(pid)
    except OSError as error:  # no descriptors left
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        orders.say(NotForked(str(error)))
        return False
    orders.say(Forked(pid), pidfd)
    os.close(pidfd)
    return False


def _become_child(template_pid: int, orders: Orders) -> None:
    die_with(template_pid)
    with contextlib.suppress(OSError):
        os.setpgid(0, 0)
    orders.close()
    # All children would draw the same numbers.
    random.seed()
    if (numpy_random := sys.modules.get("numpy.random")) is not None:
        numpy_random.seed()


# What must not be forked. -----------------------------------------------------------------------------------------


def _open_fds() -> set[int]:
    """Without the folder that is read here: the next to be opened gets its number."""
    return {fd for fd in map(int, os.listdir("/proc/self/fd")) if Path(f"/proc/self/fd/{fd}").exists()}  # noqa: PTH208


def _unfit(opened: set[int]) -> str | None:
    """Why a process that has just imported the app, and opened these, cannot be forked."""
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError as error:
        return f"the kernel has no pidfds: {error}"
    if signal.getsignal(signal.SIGCHLD) is not signal.SIG_DFL:
        return "it handles SIGCHLD, and could take the end of a child away from us"
    # OpenBLAS, and so numpy, ends its threads for a fork and has them again when it needs them: only trying tells.
    if _threads() > 1 and (not _try_fork() or _threads() > 1):
        return f"its import leaves {_threads() - 1} more threads running"
    for fd in sorted(opened):
        if _is_shared(fd):
            return f"its import leaves {_name(fd)} open"
    return None


def _threads() -> int:
    """The kernel's count: threading knows nothing of the threads of libraries."""
    return len(list(Path("/proc/self/task").iterdir()))


def _try_fork() -> bool:
    """Whether a fork gets as far as its first line of ours, in spite of threads."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # newer Pythons warn of them, too
        pid = os.fork()
    if pid == 0:
        os._exit(0)
    pidfd = os.pidfd_open(pid)
    ended, _, _ = select.select([pidfd], [], [], _TRIAL_S)
    os.close(pidfd)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return bool(ended)


def _is_shared(fd: int) -> bool:
    """Whether two processes would get into each other's way: sockets, pipes, loops, databases, devices; not logs."""
    if stat.S_ISFIFO(os.fstat(fd).st_mode):
        return True
    both_ways = fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDWR
    return both_ways and _name(fd) != os.devnull


def _name(fd: int) -> str:
    return os.readlink(f"/proc/self/fd/{fd}")  # noqa: PTH115 - many are no paths


if __name__ == "__main__":
    main()
