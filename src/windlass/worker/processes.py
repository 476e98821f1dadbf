"""Processes that cannot get away: started in a group of their own, and watched by descriptor (parentage.py: their side).

A pid may be given to another process as soon as its owner was waited for; a pidfd never is. So a child is signalled
and watched through its pidfd, and its group is signalled only while the child has not been waited for.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import IO, Final

from windlass.worker.groups import Head
from windlass.worker.parentage import started_ticks, stat_of

_POLL_S: Final = 0.05
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


class Child:
    """One process of ours, the head of its own group. `output`: where it writes, unless where we do."""

    def __init__(
        self,
        argv: Sequence[str],
        *,
        pass_fds: Collection[int] = (),
        stdin: int | IO[bytes] | None = None,
        environ: Mapping[str, str] | None = None,
        output: int | None = None,
    ) -> None:
        self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and modules
            argv,
            stdin=subprocess.DEVNULL if stdin is None else stdin,
            stdout=output,
            stderr=output,
            pass_fds=tuple(pass_fds),
            env=environ,
            process_group=0,  # Ctrl-C in the terminal is for the supervisor alone
        )
        self.pid = self._process.pid
        self.started = started_ticks(self.pid)
        self._pidfd = self._open_pidfd()

    def _open_pidfd(self) -> int:
        try:
            return os.pidfd_open(self.pid) if hasattr(os, "pidfd_open") else -1
        except OSError:  # no descriptor left: what cannot be watched must not run
            self._process.kill()
            self._process.wait()
            raise

    def terminate(self, by: signal.Signals = signal.SIGTERM) -> None:
        """Ask the process itself to end; what it started is its own affair."""
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                if self._pidfd >= 0:
                    signal.pidfd_send_signal(self._pidfd, by)
                else:
                    self._process.send_signal(by)

    def kill(self) -> None:
        """SIGKILL the process and its group: what a handler started must not outlive the attempt."""
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                if self._pidfd >= 0:  # itself, should a handler have moved it to another group
                    signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)

    async def ended(self) -> int:
        """Wait for the end, and return the exit code; negative: the signal that ended it. One waits at a time.

        The rest of its group is killed before the process is waited for, while its number is still its own.
        """
        if self._process.returncode is None:
            await (readable(self._pidfd) if self._pidfd >= 0 else self._polled())
            self.kill()
            self._process.wait()
            self._close()
        return self._process.returncode

    async def _polled(self) -> None:
        while not self._is_zombie():  # noqa: ASYNC110 - nothing tells of it where there are no pidfds
            await asyncio.sleep(_POLL_S)

    def _is_zombie(self) -> bool:
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None

    def _close(self) -> None:
        if self._pidfd >= 0:
            os.close(self._pidfd)
            self._pidfd = -1

    @property
    def head(self) -> Head:
        return Head(self.pid, self.started)

    @property
    def resident_mib(self) -> float:
        return resident_mib(self.pid)

    @property
    def is_stopped(self) -> bool:
        """Whether a signal or a debugger has stopped it; False where the kernel does not say."""
        return stat_of(self.pid)[:1] in (["T"], ["t"])


async def readable(fd: int) -> None:
    """Wait until there is something to read; a pidfd has it when its process has ended."""
    loop = asyncio.get_running_loop()
    there: asyncio.Future[None] = loop.create_future()

    def noticed() -> None:
        loop.remove_reader(fd)
        there.set_result(None)

    loop.add_reader(fd, noticed)
    try:
        await there
    finally:
        loop.remove_reader(fd)


def resident_mib(pid: int) -> float:
    """Memory in use; 0 when it is gone or cannot be told."""
    with contextlib.suppress(OSError, IndexError, ValueError):
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE_BYTES / 1_048_576
    return 0.0


def reap_orphans(ours: Collection[int]) -> list[int]:
    """Wait for ended children that we did not start: as PID 1 we inherit every orphan, and each would stay a zombie."""
    reaped: list[int] = []
    for children in Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for pid in map(int, children.read_text().split()):
                if pid not in ours:
                    with contextlib.suppress(ChildProcessError):
                        reaped += [pid] if os.waitpid(pid, os.WNOHANG)[0] else []
    return reaped
