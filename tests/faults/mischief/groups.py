"""Handlers that misbehave, one function each, in four groups by what becomes of them; and two that do not.

SURVIVED: the attempt ends by itself and no worker may end for it. DEADLY: kills every process it runs in, until it is
dead-lettered as a poison pill. STUBBORN: does not end, and is stopped at its time-out. HARMFUL: ends anyhow, and may cost a worker.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Any, TypeVar

from windlass import App

F = TypeVar("F", bound=Callable[..., Any])

SURVIVED: list[str] = []
DEADLY: list[str] = []
STUBBORN: list[str] = []
HARMFUL: list[str] = []
LONG_S = 1_000_000
KEPT: list[object] = []  # what handlers leave behind

app = App()


def _misdeed(group: list[str]) -> Callable[[F], F]:
    def add(handler: F) -> F:
        group.append(handler.__name__)
        return app.job(handler)  # type: ignore[return-value]

    return add


survived, deadly, stubborn, harmful = map(_misdeed, (SURVIVED, DEADLY, STUBBORN, HARMFUL))


@app.job
async def innocent() -> None:
    await asyncio.sleep(0.05)


@app.job
def innocent_in_thread() -> None:
    time.sleep(0.05)
