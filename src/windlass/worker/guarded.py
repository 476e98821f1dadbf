"""The supervisor's end of its guard (guard.py): keeps one alive, and tells it which workers there are."""

import asyncio
import contextlib
import logging
import os
import sys
from typing import Final
from uuid import UUID

from windlass.config import Config
from windlass.worker.control import config_said, encoded
from windlass.worker.loops import BackOff
from windlass.worker.processes import Child
from windlass.worker.slots import Slots

PROGRAM: Final = "windlass.worker.guard"
_BYE_S: Final = 2.0
_log: Final = logging.getLogger(__name__)


class Guarded:
    """What the guard knows, and the process that knows it."""

    def __init__(self, config: Config) -> None:
        self._start = encoded({"say": "start", "config": config_said(config)})
        self._workers: dict[UUID, bytes] = {}
        self._child: Child | None = None
        self._pipe = -1

    @property
    def pid(self) -> int | None:
        return None if self._child is None else self._child.pid

    def here(self, worker_id: UUID, child: Child, slots: Slots) -> None:
        """There is a worker. The guard opens its slots for itself, through us, while we live."""
        path, inode = f"/proc/{os.getpid()}/fd/{slots.fd}", os.fstat(slots.fd).st_ino
        line = encoded(
            {"say": "worker", "id": worker_id, "pid": child.pid, "started": child.started, "slots": [path, inode]}
        )
        self._workers[worker_id] = line
        self._tell(line)

    def gone(self, worker_id: UUID) -> None:
        """It has ended, and was seen off."""
        del self._workers[worker_id]
        self._tell(encoded({"say": "gone", "id": worker_id}))

    async def keep(self) -> None:
        """Have a guard until cancelled; one that dies is replaced, and told everything anew."""
        back_off = BackOff()
        while True:
            back_off.began()
            code = await self._have_one()
            pause_s = back_off.ended()
            _log.error("the guard has ended (%d); another follows in %.1f s", code, pause_s)
            await asyncio.sleep(pause_s)

    async def dismiss(self) -> None:
        """Nothing is left to guard: send it away. Call after `keep` was cancelled."""
        self._tell(encoded({"say": "bye"}))
        self._close()
        if self._child is not None:
            child, self._child = self._child, None
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(child.ended(), _BYE_S)

    async def _have_one(self) -> int:
        self._close()
        theirs, self._pipe = os.pipe()
        try:
            os.set_blocking(self._pipe, False)
            child = self._child = Child([sys.executable, "-m", PROGRAM], stdin=theirs)
        finally:
            os.close(theirs)
        self._tell(self._start + b"".join(self._workers.values()))
        code = await child.ended()
        self._child = None
        self._close()
        return code

    def _tell(self, line: bytes) -> None:
        if self._pipe < 0:
            return
        try:
            whole = os.write(self._pipe, line) == len(line)
        except OSError:  # it is dead, or does not read
            whole = False
        if not whole and self._child is not None:
            self._child.kill()  # half a line would make the rest unreadable; the next one is told everything

    def _close(self) -> None:
        if self._pipe >= 0:
            os.close(self._pipe)
            self._pipe = -1
