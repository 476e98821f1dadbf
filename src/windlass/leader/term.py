"""The right to lead, for a short time: taken, renewed and given up. Others try for it as often as the leader renews.

A leader killed without warning is succeeded within the term and one try (4 s); one that stopped cleanly within one try.
A leader that cannot reach the database knows by its own clock when its term has ended. Nothing depends on there being
one leader only: every chore may be done by two at once. The term keeps others from doing the same work again.

With each renewal the database notes which server it is, and for how long it has been reached: the next leader, however
young, can tell a dead worker from a database that was away.
"""

import asyncio
import logging
from typing import Final
from uuid import UUID

from windlass.clock import steady_s
from windlass.errors import Contended, Unavailable
from windlass.store.protocol import Upkeep

TERM_S: Final = 3.0
RENEW_S: Final = 1.0
_log: Final = logging.getLogger(__name__)


class Term:
    """The term as one contender sees it."""

    def __init__(
        self,
        upkeep: Upkeep,
        holder: UUID,
        *,
        lease_ttl_s: float = 15.0,
        ttl_s: float = TERM_S,
        renew_s: float = RENEW_S,
    ) -> None:
        self.number: int | None = None
        self._upkeep = upkeep
        self._holder = holder
        self._ttl_s = ttl_s
        self._renew_s = renew_s
        # Longer than it takes to succeed a killed leader; short enough for a worker to renew in what is left of its lease.
        self._gap_s = min(2 * TERM_S, lease_ttl_s / 2)
        self._ends_s = 0.0
        self._led_s: float | None = None
        self._gained = asyncio.Event()
        self._complained = False

    @property
    def held(self) -> bool:
        return steady_s() < self._ends_s

    async def gained(self) -> None:
        """Return once the term is held."""
        while not self.held:
            self._gained.clear()
            await self._gained.wait()

    async def stand(self) -> None:
        """Try for the term, and once it is ours renew it, until cancelled."""
        while True:
            began_s = steady_s()
            await self._try(began_s)
            await asyncio.sleep(max(0.0, self._renew_s - (steady_s() - began_s)))

    async def leave(self) -> None:
        """Give the term up, so that another need not wait for it to end."""
        led, self.number, self._ends_s = self.number, None, 0.0
        if led is not None:
            await self._upkeep.leave_term(self._holder)

    async def _try(self, began_s: float) -> None:
        try:
            number = await self._upkeep.take_term(
                self._holder,
                ttl_s=self._ttl_s,
                since_last_s=None if self._led_s is None else began_s - self._led_s,
                gap_s=self._gap_s,
            )
        except Contended:
            return  # others are at the row: the next try will do
        except Exception as error:  # noqa: BLE001 (a fault of ours must not end the one who stands)
            self._complain(error)
            return
        self._complained = False
        self._heed(number, began_s)

    def _complain(self, error: Exception) -> None:
        """Once, until the database has answered again."""
        if not self._complained:
            known = isinstance(error, Unavailable)
            _log.warning("the leader's term can be neither taken nor renewed: %s", error, exc_info=not known)
        self._complained = True

    def _heed(self, number: int | None, began_s: float) -> None:
        if number is None:
            if self.number is not None:
                _log.warning("the leader's term %d has passed to another", self.number)
            self.number, self._ends_s, self._led_s = None, 0.0, None
            return
        self._led_s = began_s
        if number != self.number:
            _log.info("leading in term %d", number)
        self.number = number
        # Counted from before the question was sent: the database counts from later, so we stop before others begin.
        self._ends_s = began_s + self._ttl_s
        self._gained.set()
