"""Loops that go on whatever happens, and waiting for the first of several things."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from typing import Any, Final

from windlass.clock import steady_s
from windlass.errors import WindlassError

_LONG_S: Final = 10.0
_BACK_OFF_S: Final = (0.1, 30.0)
_log: Final = logging.getLogger(__name__)


class BackOff:
    """How long to wait before the next of something that keeps ending: not at all after a long life, else doubling."""

    def __init__(self) -> None:
        self._began_s = steady_s()
        self._pause_s = 0.0

    def began(self) -> None:
        self._began_s = steady_s()

    def ended(self) -> float:
        """The pause, after a life that `began`."""
        if steady_s() - self._began_s >= _LONG_S:
            self._pause_s = 0.0
        else:
            self._pause_s = min(max(self._pause_s * 2, _BACK_OFF_S[0]), _BACK_OFF_S[1])
        return self._pause_s


async def every(
    period_s: float, chore: Callable[[], Awaitable[None]], name: str, *, again_s: float | None = None
) -> None:
    """Do something again and again; what goes wrong is said when it begins and when it ends."""
    well = True
    while True:
        try:
            await chore()
        except (WindlassError, TimeoutError) as error:
            if well:
                _log.warning("%s fails: %s", name, str(error) or "the database does not answer")
            well = False
        except Exception:  # noqa: BLE001 - a fault of ours must not stop the heart
            _log.exception("%s has failed", name)
            well = False
        else:
            if not well:
                _log.info("%s works again", name)
            well = True
        await asyncio.sleep(period_s if well or again_s is None else again_s)


async def again(act: Callable[[], Awaitable[None]], name: str) -> None:
    """Do something that should never end; when it does, say so and begin again."""
    back_off = BackOff()
    while True:
        back_off.began()
        try:
            await act()
            _log.error("%s has ended", name)
        except Exception:  # noqa: BLE001 - it is begun again
            _log.exception("%s has failed", name)
        await asyncio.sleep(back_off.ended())


async def first(*waits: Awaitable[Any], timeout_s: float | None = None) -> None:
    """Wait until one of these is done, or the time is up; the others are cancelled."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await cancelled(*tasks)


async def done(tasks: "Collection[asyncio.Task[Any]]") -> None:
    """Wait until all are done, or one has failed. They themselves are not cancelled with the wait."""
    if tasks:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)


async def cancelled(*tasks: "asyncio.Future[Any] | None") -> None:
    """Cancel, and wait until that has taken effect."""
    ours = [task for task in tasks if task is not None]
    for task in ours:
        task.cancel()
    if ours:
        await asyncio.wait(ours)
