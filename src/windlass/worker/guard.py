"""The guard: a child of the supervisor that gives its workers' jobs back if the supervisor itself dies.

    supervisor ──pipe──▶ guard        python -m windlass.worker.guard

It is told of every worker over its standard input and otherwise sleeps. When the pipe ends without a farewell it kills
the workers (through descriptors that cannot mean another process) and what their jobs have started, buries them and
gives back what they held; so a killed supervisor costs seconds, not a lease. It runs no user code, loads the database driver only when it is needed, and
ignores every signal that is meant for the supervisor: whatever ends the whole group ends it last.
"""

import contextlib
import json
import logging
import os
import select
import signal
import sys
import time
from typing import TYPE_CHECKING, Any, BinaryIO, Final
from uuid import UUID

from windlass.worker.groups import Head, kill_groups
from windlass.worker.parentage import leave_signals_to_parent, started_ticks

if TYPE_CHECKING:
    from windlass.config import Config
    from windlass.worker.aftermath import End

_PATIENCE_S: Final = 60.0
_PAUSE_S: Final = 0.2
_DEATH_S: Final = 10.0
_LOOK_S: Final = 0.005
_log: Final = logging.getLogger("windlass.worker.guard")


class Watched:
    """One worker: its id, a descriptor of its process, and one of its slots (-1: they were gone when we looked)."""

    def __init__(self, worker_id: UUID, pid: int, started: int, slots: tuple[str, int] | None = None) -> None:
        self.id = worker_id
        self._head = Head(pid, started)
        self._slots_fd = _opened(*slots) if slots is not None else -1
        self._fd = -1
        with contextlib.suppress(OSError, AttributeError):  # gone; or no Linux, where workers end with their channel
            self._fd = os.pidfd_open(pid)
            if started and started_ticks(pid) != started:  # the number is another's by now
                os.close(self._fd)
                self._fd = -1

    def kill(self) -> None:
        if self._fd >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._fd, signal.SIGKILL)

    def await_death(self, until_s: float) -> None:
        if self._fd >= 0:
            poller = select.poll()
            poller.register(self._fd, select.POLLIN)
            poller.poll(max(0.0, until_s - time.monotonic()) * 1000)

    def heads(self) -> list[Head]:
        """The processes its jobs ran in: their groups must not outlive it."""
        if self._slots_fd < 0:
            return [self._head]
        from windlass.worker.slots import Slots  # noqa: PLC0415 - as with the driver

        return [self._head, *Slots(self._slots_fd).children()]

    def end(self) -> "End":
        """How it ended. Nobody is suspected of having ended the supervisor; but what was begun has died."""
        from windlass.worker.aftermath import End  # noqa: PLC0415 - as with the driver
        from windlass.worker.slots import Slots  # noqa: PLC0415

        if self._slots_fd < 0:  # nobody knows what it had begun
            return End(self.id, crashed=False, begun=None, spent=True)
        slots = Slots(self._slots_fd)
        return End(self.id, crashed=False, begun=slots.begun(), spent=True, started=slots.started())

    def forget(self) -> None:
        for fd in (self._fd, self._slots_fd):
            if fd >= 0:
                os.close(fd)
        self._fd = self._slots_fd = -1


def _opened(path: str, inode: int) -> int:
    """The supervisor's slots, unless it has closed them: then its number may be another file's."""
    with contextlib.suppress(OSError):
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        if os.fstat(fd).st_ino == inode:
            return fd
        os.close(fd)
    return -1


def main() -> None:
    leave_signals_to_parent()
    config, watched, farewell = _listen(sys.stdin.buffer)
    if farewell or config is None or not watched:
        return
    until_s = time.monotonic() + _DEATH_S
    for worker in watched.values():
        worker.kill()
    for worker in watched.values():
        worker.await_death(until_s)
    heads = [head for worker in watched.values() for head in worker.heads()]
    while kill_groups(heads) and time.monotonic() < until_s:
        time.sleep(_LOOK_S)
    _give_back(config, [worker.end() for worker in watched.values()])


def _listen(lines: BinaryIO) -> tuple[dict[str, Any] | None, dict[UUID, Watched], bool]:
    """Follow the supervisor until it says farewell or is gone."""
    config: dict[str, Any] | None = None
    watched: dict[UUID, Watched] = {}
    for line in lines:
        with contextlib.suppress(ValueError):  # the last line may be torn: whoever wrote it has died
            match json.loads(line):
                case {"say": "start", "config": said}:
                    config = said
                case {"say": "worker", "id": worker_id, "pid": pid, "started": started} as said:
                    watched[UUID(worker_id)] = Watched(UUID(worker_id), pid, started, said.get("slots"))
                case {"say": "gone", "id": worker_id}:
                    watched.pop(UUID(worker_id)).forget()
                case {"say": "bye"}:
                    return config, watched, True
    return config, watched, False


def _give_back(said: dict[str, Any], ends: "list[End]") -> None:
    """Now the driver is worth its 30 MB."""
    import asyncio  # noqa: PLC0415

    from windlass import telemetry  # noqa: PLC0415
    from windlass.unhandled import log_unhandled  # noqa: PLC0415
    from windlass.worker.control import config_heard  # noqa: PLC0415

    config = config_heard(said)
    telemetry.configure(config.worker.log_level, config.worker.log_format)
    log_unhandled()
    _log.error("the supervisor is gone: its %d workers end with it", len(ends))
    asyncio.run(_rescue(config, ends))


async def _rescue(config: "Config", ends: "list[End]") -> None:
    import asyncio  # noqa: PLC0415
    from dataclasses import replace  # noqa: PLC0415

    from windlass.bus.postgres import PostgresWaker  # noqa: PLC0415
    from windlass.errors import WindlassError  # noqa: PLC0415
    from windlass.store.store import open_store  # noqa: PLC0415
    from windlass.worker.aftermath import see_off  # noqa: PLC0415

    async with asyncio.timeout(_PATIENCE_S):
        while True:
            try:
                async with open_store(replace(config.store, pool_min=1, pool_max=2)) as store:
                    waker = PostgresWaker(store.hints)
                    await see_off(ends, store.upkeep, store.claims(), waker)
                    await waker.aclose()
                    return
            except WindlassError as error:
                if _went_with_its_owner(config.store.database_url):
                    _log.warning("the database is gone, too: the jobs are given back when it is started again")
                    return
                _log.warning("%d workers wait to be buried: %s", len(ends), error)
                await asyncio.sleep(_PAUSE_S)


def _went_with_its_owner(url: str | None) -> bool:
    """Whether even the folder of its socket is gone: an embedded database, which nobody starts again while we wait."""
    from pathlib import Path  # noqa: PLC0415 - as with the driver
    from urllib.parse import parse_qs, urlsplit  # noqa: PLC0415

    (folder,) = parse_qs(urlsplit(url or "").query).get("host", [""])[:1]
    return folder.startswith("/") and not Path(folder).exists()


if __name__ == "__main__":
    main()
