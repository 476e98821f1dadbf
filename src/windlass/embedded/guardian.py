"""The process between the owner and its server: `python -I -S guardian.py '{…}'`.

    owner ──stop pipe──▶ guardian ──death signal──▶ server

It starts one program, tells the owner its pid, and stops it when the owner says so, ends, crashes or is killed: the
stop pipe then reads end-of-file and, on Linux, the owner's pidfd fires even if some other process still holds a copy of
the pipe. If the guardian itself is killed, the kernel sends the program its death signal. So no way of dying
leaves a program behind. A process of its own is needed because the kernel sends the death signal when the *thread* that made the
child ends: started straight from a thread of the owner, the server would stop with that thread.

This file runs alone, so that it starts in 20 ms: it imports a little of the standard library and nothing of ours.
"""

import contextlib
import ctypes
import json
import os
import select
import signal
import sys
import time
from pathlib import Path
from typing import Any, NoReturn, TypedDict

LINUX = sys.platform == "linux"
PR_SET_PDEATHSIG = 1
CLONE_NEWUSER = 0x10000000
STDIN, STDOUT, STDERR = 0, 1, 2


class Orders(TypedDict):
    """What the owner asks for, as JSON in argv."""

    owner_pid: int
    argv: list[str]
    stdin_fd: int  # the program's standard input; -1 for none
    death_signal: int  # what the kernel sends the program if the guardian dies
    stop: list[tuple[int, float]]  # signals for stopping, each with the seconds it is given
    identity: str  # "same", "namespace" or "uid:gid"
    reach: list[str]  # folders the program must be able to enter under that identity
    run_dir: str | None  # a temporary folder to remove once the program has ended


def main() -> None:
    orders: Orders = json.loads(sys.argv[1])
    wake_fd = _wake_on_signals()
    pid = _spawn(orders)
    if pid:
        _tell({"pid": pid})
        status = _watch(pid, orders, wake_fd)
        if orders["run_dir"]:
            remove_run_dir(Path(orders["run_dir"]))
        _tell({"exit": os.waitstatus_to_exitcode(status)})


def remove_run_dir(folder: Path) -> None:
    """Remove a folder of sockets and the files in it; never fails, never descends."""
    with contextlib.suppress(OSError):
        for entry in folder.iterdir():
            entry.unlink()
        folder.rmdir()


def _wake_on_signals() -> int:
    """A pipe that becomes readable on SIGCHLD and SIGTERM, so that one poll() waits for everything."""
    read_end, write_end = os.pipe()
    os.set_blocking(read_end, False)
    os.set_blocking(write_end, False)
    signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    # A terminal's Ctrl-C or hang-up is the owner's to judge; the guardian outlives it to stop the server in order.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    return read_end


def _spawn(orders: Orders) -> int:
    """Start the program. Returns its pid once exec has succeeded, or 0 after telling the owner why not."""
    guardian_pid = os.getpid()
    problem_read, problem_write = os.pipe()  # close-on-exec: end-of-file means that exec succeeded
    pid = os.fork()
    if pid == 0:
        _become(orders, guardian_pid, problem_write)
    os.close(problem_write)
    with os.fdopen(problem_read, "rb") as problems:
        problem = problems.read()
    if not problem:
        return pid
    os.waitpid(pid, 0)
    _tell(json.loads(problem))
    return 0


def _become(orders: Orders, guardian_pid: int, problem_fd: int) -> NoReturn:
    """In the forked child: turn into the program, or write the problem and exit."""
    step: dict[str, Any] = {"failed": "signals"}
    try:
        # Default actions first: a death signal that arrives between prctl and exec must kill, not be swallowed by a
        # handler of Python's that exec then forgets. The same holds for what the owner had ignored.
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGCHLD, signal.SIGPIPE):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        step = {"failed": "identity"}
        _change_identity(orders["identity"])
        # After the identity: a change of credentials clears the death signal.
        if LINUX:
            _libc_call("prctl", PR_SET_PDEATHSIG, orders["death_signal"], 0, 0, 0)
        if os.getppid() != guardian_pid:  # died before prctl: that signal will never come
            os._exit(1)
        for folder in orders["reach"]:
            step = {"failed": "reach", "folder": folder}
            os.stat(folder + "/.")  # noqa: PTH116 - pathlib would drop the dot, which asks for the right to enter
        step = {"failed": "exec"}
        _arrange_fds(orders["stdin_fd"])
        os.execv(orders["argv"][0], orders["argv"])  # noqa: S606 - no shell is the point
    except OSError as error:
        step |= {"errno": error.errno, "reason": error.strerror}
        os.write(problem_fd, json.dumps(step).encode())
    finally:
        os._exit(127)


def _change_identity(identity: str) -> None:
    if identity == "namespace":
        _libc_call("unshare", CLONE_NEWUSER)
    elif identity != "same":
        uid, gid = (int(part) for part in identity.split(":"))
        os.setgroups([])
        os.setgid(gid)
        os.setuid(uid)


def _arrange_fds(stdin_fd: int) -> None:
    """Standard input from the owner or nothing, output to the log: neither of the guardian's pipes goes along."""
    source = stdin_fd if stdin_fd >= 0 else os.open(os.devnull, os.O_RDONLY)
    os.dup2(source, STDIN)
    if stdin_fd >= 0:
        os.close(stdin_fd)
    os.dup2(STDERR, STDOUT)


def _libc_call(name: str, *arguments: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _watch(pid: int, orders: Orders, wake_fd: int) -> int:
    """Wait for the program's end, stopping it step by step once the owner wants that or is gone. Returns its status."""
    stop_requested = False

    def request_stop(*_: object) -> None:
        nonlocal stop_requested
        stop_requested = True

    signal.signal(signal.SIGTERM, request_stop)
    owner_fds = [STDIN, *_owner_pidfd(orders["owner_pid"])]
    # An owner that is no longer our parent died before its pidfd could be opened. Asked after opening it, this also
    # proves that the pidfd is the owner's and not that of a later process with the same pid.
    if os.getppid() != orders["owner_pid"]:
        stop_requested = True
    steps = iter(orders["stop"])
    stopping, next_step_at = False, float("inf")
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return status
        if stop_requested and not stopping:
            stopping, next_step_at = True, 0.0
        if time.monotonic() >= next_step_at:
            number, patience_s = next(steps, (signal.SIGKILL, float("inf")))
            os.kill(pid, number)
            next_step_at = time.monotonic() + patience_s
        # Once stopping, the owner's descriptors stay readable for ever and must not spin the loop.
        watched = [wake_fd] if stopping else [wake_fd, *owner_fds]
        ready = _wait_readable(watched, next_step_at)
        if wake_fd in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(wake_fd, 512)
        stop_requested = stop_requested or any(fd in ready for fd in owner_fds)


def _owner_pidfd(owner_pid: int) -> list[int]:
    """A descriptor that fires when the owner is gone, where the kernel has one: no copy of a pipe can hold it back."""
    try:
        return [os.pidfd_open(owner_pid)] if LINUX else []
    except OSError:
        return []


def _wait_readable(fds: list[int], until: float) -> set[int]:
    poller = select.poll()
    for fd in fds:
        poller.register(fd, select.POLLIN)
    wait_ms = None if until == float("inf") else max(0.0, (until - time.monotonic()) * 1000 + 1)
    return {fd for fd, _ in poller.poll(wait_ms)}


def _tell(news: dict[str, Any]) -> None:
    with contextlib.suppress(OSError):  # the owner may be gone: nobody to tell
        os.write(STDOUT, json.dumps(news).encode() + b"\n")


if __name__ == "__main__":
    main()
