"""Pauses between tries, for whatever is tried until it works."""

import asyncio
import random


class Pauses:
    """Waits that double until something works: for everybody who tries again, each a little apart from the others."""

    def __init__(self, least_s: float, most_s: float) -> None:
        self._least_s = least_s
        self._most_s = most_s
        self.reset()

    def reset(self) -> None:
        """It has worked."""
        self._next_s = self._least_s

    @property
    def is_first(self) -> bool:
        """Whether nothing was waited for yet: what is wrong is worth saying once."""
        return self._next_s == self._least_s

    def next_s(self) -> float:
        pause_s = self._next_s
        self._next_s = min(pause_s * 2, self._most_s)
        return pause_s * (0.5 + random.random())

    async def wait(self) -> None:
        await asyncio.sleep(self.next_s())
