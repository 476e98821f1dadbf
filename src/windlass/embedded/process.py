"""One program under guard: the owner's end of a guardian process (see guardian.py for the other end).

Guarantees: the program ends when `stop()` is called, when this process ends in any way, and when the guardian is killed.
It may be started from any thread. No descriptor of ours reaches other children of this process.
"""

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from windlass.embedded import guardian
from windlass.embedded.held import close_held, open_held, pipe_held
from windlass.errors import Misconfigured

_GUARDIAN_START_S = 30.0
_MARGIN_S = 10.0


class Refused(Exception):
    """The program could not be started. `step` is identity, reach or exec; `folder` the one that stood in the way."""

    def __init__(self, news: dict[str, Any]) -> None:
        super().__init__(news.get("reason", "no reason given"))
        self.step: str = news.get("failed", "start")
        self.folder: str | None = news.get("folder")


@dataclass(frozen=True)
class Program:
    """What to run, and how it is stopped: by each signal in turn, with the seconds that each is given."""

    argv: Sequence[str | Path]
    log: Path
    stop: Sequence[tuple[signal.Signals, float]] = ((signal.SIGKILL, 1.0),)
    death_signal: signal.Signals = signal.SIGKILL
    stdin: bytes = b""
    identity: str = "same"
    reach: Sequence[str] = ()
    run_dir: Path | None = None


class Guarded:
    """A running program and its guardian. The program inherits `lock_fd`, so that lock is held until it is gone."""

    def __init__(self, program: Program, lock_fd: int) -> None:
        self.program = program
        self.exit_code: int | None = None  # known once the program has ended before its guardian
        self._news = b""  # read from the guardian and not yet looked at
        stop_read, self._stop_fd = pipe_held()
        self._news_fd, news_write = pipe_held()
        try:
            self._guardian = _start_guardian(program, lock_fd, stop_read, news_write)
        except BaseException:
            self._close()
            raise
        finally:
            close_held(stop_read)
            close_held(news_write)
        try:
            self.pid: int = self._first_news()
            self._pidfd = self._open_pidfd()
        except BaseException:
            self._guardian.kill()
            self._guardian.wait()
            self._close()
            raise

    @property
    def guardian_pid(self) -> int:
        return self._guardian.pid

    @property
    def alive(self) -> bool:
        """False as soon as the program or its guardian is gone."""
        return self._guardian.poll() is None

    def wait(self, timeout_s: float) -> int | None:
        """Wait for the end; the program's exit code, or None if it is unknown because the guardian was killed."""
        ended = self._await_end(timeout_s)
        self.stop()
        self.release()
        if not ended:
            raise Misconfigured(f"{self.program.argv[0]} did not end within {timeout_s:g} s")
        return self.exit_code

    def stop(self) -> None:
        """Stop the program by its own steps and wait for its end. Safe to repeat."""
        if self._stop_fd < 0:
            return
        with contextlib.suppress(BrokenPipeError):  # a guardian that is already gone
            os.write(self._stop_fd, b"stop")
        if not self._await_end(sum(patience_s for _, patience_s in self.program.stop) + _MARGIN_S):
            self._guardian.kill()  # a guardian that hangs: its death signals the program
        self._guardian.wait()
        self._close()

    def _await_end(self, timeout_s: float) -> bool:
        """Whether the program or its guardian ended in time: either makes the news pipe readable."""
        return b"exit" in self._news or _readable(self._news_fd, timeout_s)

    def send_signal(self, number: signal.Signals) -> None:
        """Signal the program itself, if it is still there; never another process that got its pid."""
        with contextlib.suppress(ProcessLookupError):
            if self._pidfd >= 0:
                signal.pidfd_send_signal(self._pidfd, number)
            elif self.alive:
                os.kill(self.pid, number)

    def release(self) -> None:
        """Give up the means to signal the program; after this it is only a record."""
        close_held(self._pidfd)
        self._pidfd = -1

    def _open_pidfd(self) -> int:
        if guardian.LINUX:
            with contextlib.suppress(ProcessLookupError):  # it has ended already
                return open_held(lambda: os.pidfd_open(self.pid))
        return -1

    def _first_news(self) -> int:
        """The program's pid, once exec has succeeded."""
        if _readable(self._news_fd, _GUARDIAN_START_S):
            self._news = os.read(self._news_fd, 65536)
        line, _, self._news = self._news.partition(b"\n")
        if not line:
            raise Misconfigured(f"the guardian of {self.program.argv[0]} did not start:\n{tail(self.program.log)}")
        news = json.loads(line)
        if "failed" in news:
            raise Refused(news)
        return int(news["pid"])

    def _close(self) -> None:
        """Read the last news and close both pipes, once the guardian is gone or never was."""
        if self._news_fd >= 0:
            os.set_blocking(self._news_fd, False)
            with contextlib.suppress(BlockingIOError):
                self._news += os.read(self._news_fd, 65536)
            if self._news:
                self.exit_code = json.loads(self._news)["exit"]
        close_held(self._stop_fd)
        close_held(self._news_fd)
        self._stop_fd = self._news_fd = -1


def _start_guardian(program: Program, lock_fd: int, stop_read: int, news_write: int) -> subprocess.Popen[bytes]:
    with _stdin_pipe(program.stdin) as stdin_fds, _open_log(program.log) as log:
        orders: guardian.Orders = {
            "owner_pid": os.getpid(),
            "argv": [os.fspath(part) for part in program.argv],
            "stdin_fd": stdin_fds[0] if stdin_fds else -1,
            "death_signal": int(program.death_signal),
            "stop": [(int(number), patience_s) for number, patience_s in program.stop],
            "identity": program.identity,
            "reach": list(program.reach),
            "run_dir": str(program.run_dir) if program.run_dir else None,
        }
        return subprocess.Popen(  # noqa: S603 - our own interpreter and file
            [sys.executable, "-I", "-S", guardian.__file__, json.dumps(orders)],
            stdin=stop_read,
            stdout=news_write,
            stderr=log,
            pass_fds=(lock_fd, *stdin_fds),
            cwd="/",  # the owner's folder may be closed to the program's identity
            env=_environment(),
            start_new_session=True,  # Ctrl-C in the owner's terminal is for the owner alone
        )


def _open_log(path: Path) -> BinaryIO:
    # Never through a link: as root in a folder of another user's, a planted one would have us write anywhere.
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    return os.fdopen(os.open(path, flags, 0o600), "ab")


def _readable(fd: int, timeout_s: float) -> bool:
    poller = select.poll()  # select() fails on descriptors over 1023, which a busy owner has
    poller.register(fd, select.POLLIN)
    return bool(poller.poll(timeout_s * 1000))


@contextlib.contextmanager
def _stdin_pipe(content: bytes) -> Iterator[tuple[int, ...]]:
    """A pipe that already holds the program's input. Secrets go this way: not in a file, not in the process list."""
    if not content:
        yield ()
        return
    read_end, write_end = pipe_held()
    try:
        os.write(write_end, content)
        close_held(write_end)
        yield (read_end,)
    finally:
        close_held(write_end)
        close_held(read_end)


def _environment() -> dict[str, str]:
    """Ours, without the PG* variables that would steer the server, in plain English and UTC."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PG", "LC_", "LANG"))}
    return kept | {"LC_ALL": "C", "TZ": "UTC"}


def tail(log: Path, lines: int = 20) -> str:
    """The end of a log, for an error message."""
    with contextlib.suppress(OSError), log.open(errors="replace") as file:
        return "".join(deque(file, lines)).rstrip()
    return "(no log)"


def poll_until(deadline: float, interval_s: float = 0.005) -> Iterator[None]:
    """Yield until the deadline on the monotonic clock, with a pause after each."""
    while time.monotonic() < deadline:
        yield
        time.sleep(interval_s)


def free_port() -> int:
    """A loopback port that was free a moment ago."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])
