"""TERM and INT, counted: the first drains, the second gives running jobs back, the third ends at once.

They are caught from the first moment on: PID 1 of a container gets no signal that it does not catch.
"""

import asyncio
import logging
import os
import signal
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Final, Self, TypeVar

T = TypeVar("T")

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
_STAGES_MAX: Final = 3
_log: Final = logging.getLogger(__name__)


class Interrupted(Exception):
    """A signal came before there was anything to drain."""


class Signals:
    """Catches signals while its block lasts; `stage` is how many have come. `at_last`: what is said at the third."""

    def __init__(self, at_last: str = "the guard gives the jobs back") -> None:
        self.stage = 0
        self._at_last = at_last
        self._waiting: list[tuple[int, asyncio.Event]] = []

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.add_signal_handler(number, self._caught, number)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.remove_signal_handler(number)

    def _caught(self, number: signal.Signals) -> None:
        self.raise_to(self.stage + 1)
        if self.stage >= _STAGES_MAX:
            _log.warning("%s for the third time: exit at once; %s", number.name, self._at_last)
            os._exit(128 + number)

    def raise_to(self, stage: int) -> None:
        """Go to a stage, as if that many signals had come."""
        self.stage = max(self.stage, stage)
        for awaited, event in self._waiting:
            if awaited <= self.stage:
                event.set()

    async def reached(self, stage: int) -> None:
        event = asyncio.Event()
        entry = (stage, event)
        self._waiting.append(entry)
        try:
            if self.stage < stage:
                await event.wait()
        finally:
            self._waiting.remove(entry)

    async def unless_signalled(self, work: Coroutine[Any, Any, T]) -> T:
        """Do something that may be given up; raises Interrupted when a signal comes first."""
        doing = asyncio.ensure_future(work)
        signalled = asyncio.ensure_future(self.reached(1))
        try:
            await asyncio.wait([doing, signalled], return_when=asyncio.FIRST_COMPLETED)
            if doing.done():
                return doing.result()
            raise Interrupted
        finally:
            for task in (doing, signalled):
                task.cancel()
            await asyncio.wait([doing, signalled])
