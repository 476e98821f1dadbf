"""Leading: stand for the term, and while it is held do each chore at its own pace.

Every chore has a task of its own, so that one that fails or is slow keeps no other from its time. They share two lanes,
one page at a time each, so that chores never take all connections and the term can be renewed whatever they do. Each
has a time limit, so that one that waits for a lock does not keep its lane: what was cut short is done again later.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple
from uuid import UUID

from windlass.bus.protocol import Waker
from windlass.config import LeaseConfig, PlacementConfig
from windlass.errors import Unavailable
from windlass.leader import chores
from windlass.leader.term import RENEW_S, Term
from windlass.store.protocol import Claims, Upkeep

_BACK_OFF_S: Final = 0.2
_BACK_OFF_MOST_S: Final = 5.0
_GOODBYE_S: Final = 2.0
_OVERDUE_S: Final = 0.5
_log: Final = logging.getLogger(__name__)


class Chore(NamedTuple):
    """One duty. `act` returns True if there is more to do at once, or how soon to come back if not as usual.
    `slow`: nobody waits for it. It is given up after `limit_s`. `led`: only the leader does it."""

    name: str
    every_s: float
    act: Callable[[], Awaitable[object]]
    slow: bool = False
    limit_s: float = 5.0
    led: bool = True


class Leader:
    def __init__(
        self,
        upkeep: Upkeep,
        claims: Claims,
        waker: Waker,
        *,
        holder: UUID,
        lease: LeaseConfig,
        placement: PlacementConfig,
        rolls: bool = True,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self.term = Term(upkeep, holder, lease_ttl_s=lease.lease_ttl_s)
        self._upkeep = upkeep
        self._claims = claims
        self._waker = waker
        self._draw = draw
        self._lanes = (asyncio.Lock(), asyncio.Lock())
        self._chores: tuple[Chore, ...] = (
            Chore("promote", 0.2, lambda: chores.promote(upkeep, waker)),
            Chore("reap", lease.reap_tick_s, self._reap),
            Chore("reap for a leader that is gone", RENEW_S, self._reap_overdue, led=False),
            Chore("reserve", 1.0, chores.Reserve(upkeep, placement)),
            Chore("narrow what is too wide", 1.0, chores.TooWide(upkeep, placement)),
            Chore("admit known types", 1.0, lambda: chores.admit_known(upkeep, waker)),
            Chore("admit jobs for newer workers", 1.0, chores.AdmitNewer(upkeep, waker)),
            Chore("fold counts", chores.FOLD_S, lambda: chores.fold_counts(upkeep)),
            Chore("fold rollups", 5.0, upkeep.fold_rollups, slow=True),
            Chore("expire rollups", 600.0, _once(upkeep.expire_rollups), slow=True, limit_s=60.0),
            Chore("hold unknown types", 10.0, chores.HoldUnknown(upkeep, placement), slow=True, limit_s=30.0),
            Chore("forget idle workers that died", 10.0, _once(upkeep.forget_idle), slow=True),
            Chore("forget workers", 60.0, _once(upkeep.forget_workers), slow=True),
            Chore("keep names", 60.0, _once(upkeep.keep_names), slow=True),
            Chore("forget tags", 600.0, _once(upkeep.forget_tags), slow=True, limit_s=60.0),
            Chore("expire keys", 60.0, _once(upkeep.expire_keys), slow=True, limit_s=60.0),
            Chore("forget followed logs", 60.0, _once(upkeep.forget_followed_logs), slow=True),
            Chore("sweep steps", 60.0, _once(upkeep.sweep_steps), slow=True, limit_s=60.0),
            Chore("expire dead letters", 60.0, lambda: chores.expire_dead_letters(upkeep), slow=True, limit_s=60.0),
            Chore("expire audit", 600.0, lambda: chores.expire_audit(upkeep), slow=True, limit_s=60.0),
            Chore("sweep effects", 600.0, _once(upkeep.sweep_effects), slow=True, limit_s=60.0),
            Chore("sweep charges", 600.0, _once(upkeep.sweep_charges), slow=True, limit_s=60.0),
            Chore("sweep tokens", 600.0, _once(upkeep.sweep_tokens), slow=True, limit_s=60.0),
            Chore("forget types", 600.0, _once(upkeep.forget_types), slow=True, limit_s=60.0),
            Chore("roll partitions", 600.0, _once(upkeep.roll_partitions), slow=True, limit_s=600.0)
            if rolls
            else Chore("watch partitions", 3600.0, lambda: chores.watch_partitions(upkeep), slow=True),
        )

    async def run(self) -> None:
        """Stand, and lead while elected, until cancelled; then give the term up."""
        tasks = [asyncio.create_task(self.term.stand(), name="leader: stand")]
        tasks += [asyncio.create_task(self._keep(chore), name=f"leader: {chore.name}") for chore in self._chores]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            done.pop().result()  # none ends by itself but by a fault of ours
        finally:
            await self._stop(tasks)

    async def _stop(self, tasks: list["asyncio.Task[None]"]) -> None:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks, timeout=_GOODBYE_S)
        leaving = asyncio.create_task(self.term.leave())
        await asyncio.wait({leaving}, timeout=_GOODBYE_S)
        if not leaving.done():
            leaving.cancel()
        elif error := leaving.exception():
            _log.info("the leader's term was not given up and will run out: %s", error)

    async def _keep(self, chore: Chore) -> None:
        """Do one chore for ever; what only the leader does, whenever the term is held."""
        failures = 0
        while True:
            if chore.led:
                await self.term.gained()
            try:
                async with self._lanes[chore.slow], asyncio.timeout(chore.limit_s):
                    # The wait for the lane, or a machine put to sleep, may have outlasted the term.
                    more = (self.term.held or not chore.led) and await chore.act()
            except Exception as error:  # noqa: BLE001 (the next try and the other chores must go on)
                failures += 1
                _tell(chore, error, failures)
                await asyncio.sleep(max(chore.every_s, self._back_off_s(failures)))
                continue
            if failures:
                _log.info("the leader's chore %r works again", chore.name)
                failures = 0
            if more is not True:
                await asyncio.sleep(more if isinstance(more, float) else chore.every_s)

    def _back_off_s(self, failures: int) -> float:
        return float(min(_BACK_OFF_MOST_S, _BACK_OFF_S * 2 ** min(failures, 10)) * (0.5 + self._draw() / 2))

    async def _reap(self) -> bool:
        return await chores.reap(self._upkeep, self._claims, self._draw, waker=self._waker) > 0

    async def _reap_overdue(self) -> bool:
        """The term of a leader that was killed takes seconds to end, and the next leader may be killed in turn."""
        late = not self.term.held and await self._upkeep.overdue(after_s=_OVERDUE_S)
        return late and await self._reap()


def _once(act: Callable[[], Awaitable[object]]) -> Callable[[], Awaitable[None]]:
    """A chore that does all there is to do: its answer is not "there is more"."""

    async def once() -> None:
        await act()

    return once


def _tell(chore: Chore, error: Exception, failures: int) -> None:
    """The first failure of a row, and then only those after twice as many: a broken chore must not fill the log."""
    if failures & (failures - 1) == 0:
        known = isinstance(error, Unavailable | TimeoutError)
        why = str(error) or f"given up after {chore.limit_s:g} s"
        _log.warning("the leader's chore %r failed %d times: %s", chore.name, failures, why, exc_info=not known)
