"""Whether a worker is deaf: alive, with room all the time, and getting nothing, though there was something to get or nobody
answered. The first time it makes new connections; the second it is past cure, and is replaced.
"""

import logging
from contextlib import suppress
from typing import Final

from windlass.clock import steady_s
from windlass.config import Config
from windlass.errors import Unavailable
from windlass.worker.claimer import Claimer
from windlass.worker.desk import Desk
from windlass.worker.slots import Slots

_log: Final = logging.getLogger(__name__)


class Hearing:
    def __init__(self, desk: Desk, claimer: Claimer, slots: Slots, config: Config) -> None:
        self._desk = desk
        self._claimer = claimer
        self._slots = slots
        self._ttl_s = config.lease.lease_ttl_s
        # An idle worker may not even have looked for jobs within one poll.
        self._deaf_s = max(config.worker.deaf_s, 2 * config.worker.poll_s)
        self._began_s = self._since_s = steady_s()
        self._strikes = 0

    def was_held_up(self, now_s: float) -> None:
        """A handler held the loop up: nobody could claim."""
        self._since_s = now_s

    async def is_past_cure(self, now_s: float) -> bool:
        """Look again; new connections are made when it is found deaf for the first time."""
        if self._claimer.draining or self._desk.room().width <= 0 or self._claimer.fed_s > self._since_s:
            self._since_s, self._strikes = now_s, 0
        if now_s - self._since_s < self._deaf_s:
            return False
        self._since_s = now_s
        self._strikes = self._strikes + 1 if await self._is_deaf(now_s) else 0
        if self._strikes == 1:
            _log.error("deaf: alive, with room, and getting no jobs though there are some; making new connections")
            await self._claimer.freshen()
        elif self._strikes > 1:
            _log.critical("deaf in spite of new connections: this worker ends and is replaced")
        return self._strikes > 1

    async def _is_deaf(self, now_s: float) -> bool:
        renewed = self._slots.lease_until_s - now_s > self._ttl_s / 3
        if renewed and now_s - max(self._slots.claimed_s, self._began_s) > self._deaf_s:
            return True
        with suppress(Unavailable):
            return await self._claimer.overlooks(self._deaf_s)
        return False
