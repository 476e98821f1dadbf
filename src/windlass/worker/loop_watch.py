"""Gives back what a worker has claimed and not begun while a handler blocks its loop.

An `async def` that blocks the loop may do so until its timeout, an hour say. The jobs that were claimed ahead would wait for
that, though others could run them: what gives them back in time runs on that very loop. So a thread does it, over a connection
and a loop of its own. What it takes from the desk nobody begins any more. A claim whose answer the blocked loop has not read
is not touched: nobody could tell whether it begins.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final

from windlass.clock import steady_s
from windlass.model import Lease
from windlass.worker.desk import Desk
from windlass.worker.slots import Slots

_LOOK_S: Final = 0.5
_BLOCKED_S: Final = 1.0
_TRY_S: Final = 10.0
Release = Callable[[Sequence[Lease]], Coroutine[Any, Any, None]]
_log: Final = logging.getLogger(__name__)


class LoopWatch(threading.Thread):
    """Start it once the worker works. It ends with the process. `release` is called on a loop of the thread's own."""

    def __init__(self, desk: Desk, slots: Slots, release: Release) -> None:
        super().__init__(name="windlass-loop-watch", daemon=True)
        self._desk = desk
        self._slots = slots
        self._release = release

    def run(self) -> None:
        while True:
            time.sleep(_LOOK_S)
            if self._is_blocked and self._desk.stale():
                self._give_back(self._desk.clear())

    @property
    def _is_blocked(self) -> bool:
        pulse_s = self._slots.pulse_s
        return pulse_s > 0 and steady_s() - pulse_s > _BLOCKED_S

    def _give_back(self, leases: Sequence[Lease]) -> None:
        """What cannot be given back now is a stray: the loop looks for those when it goes on."""
        try:
            asyncio.run(asyncio.wait_for(self._release(leases), _TRY_S))
        except Exception as error:  # noqa: BLE001 - there must be a next time
            _log.warning("%d jobs that wait for a blocked loop could not be given back: %s", len(leases), error)
        else:
            _log.warning("a handler blocks the loop: %d jobs that wait for it go back", len(leases))
