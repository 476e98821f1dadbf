"""The claim loop: fills the desk while there is room, and when there is nothing to claim stands in line and sleeps.

In that order: stand in line (commit), look once more, sleep. A submitter commits its job, then wakes the head of the line;
whoever comes second sees the other. Hints may be lost, so it also looks every `poll_s`.

On an idle system there is nothing to claim: the submitter's commit hands the job to the head of the line, and says so by a
notification (`take`). If that is lost the worker has a stray (strays.py), and gives it back at its next poll.
"""

import asyncio
import logging
import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID, uuid4

from windlass.bus.protocol import NO_LOCKS, ExecutionLocks
from windlass.clock import steady_s
from windlass.config import WorkerConfig
from windlass.errors import Unavailable
from windlass.lifecycle import Released
from windlass.model import Lease
from windlass.pauses import Pauses
from windlass.placement import Turns
from windlass.store.protocol import LATE_S, Ask, Claims, Hints
from windlass.worker.desk import Desk, Kind, Room, kind_of
from windlass.worker.registry import JobType
from windlass.worker.settler import Settler
from windlass.worker.slots import Slots
from windlass.worker.strays import Strays

_BATCH: Final = 250
_BACKLOG_MAX: Final = 1_000
_STRAY_S: Final = 5.0
_DEAF_S: Final = 15.0  # by then a listener that has heard nothing of what was handed to us has found out why
_HAND_POLLS: Final = 1.5  # who has not looked for that many polls is not handed a job: it may be dead, or frozen
_PAUSE_S: Final = 0.05
_PAUSE_S_MAX: Final = 1.0
_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Post:
    """Who claims, what, and from where. `hand_key`: what names its secret channel."""

    worker_id: UUID
    types: Mapping[str, JobType]
    queues: Mapping[str, int]
    hand_key: UUID = field(default_factory=uuid4)


class Claimer:
    """`begin` is called on the loop when jobs have come to the desk."""

    def __init__(
        self,
        post: Post,
        desk: Desk,
        slots: Slots,
        settler: Settler,
        claims: Claims,
        hints: Hints,
        config: WorkerConfig,
        locks: ExecutionLocks = NO_LOCKS,
    ) -> None:
        self.draining = False
        self.ended = False
        self.troubled = False  # the database was away since somebody last looked at this
        self.fed_s = steady_s()  # when a claim last brought something
        self.begin: Callable[[], None] = lambda: None
        self._post = post
        self._desk = desk
        self._slots = slots
        self._settler = settler
        self._claims = claims
        self._locks = locks
        self._hints = hints
        self._config = config
        self._types = list(post.types)
        self._jobs = {name: (job, kind_of(job)) for name, job in post.types.items()}
        self._suspects = {name: (job, Kind.PROCESS) for name, job in post.types.items()}
        self._queues = list(post.queues)
        self._turns = Turns(post.queues)
        self._wake = asyncio.Event()
        self._hinted = False
        self._strays = Strays(post.worker_id, claims, held=self._held, asking=lambda: self._asking, take=self.take)
        self._rested = Room(0, 0, 0)  # what we stood in line with
        self._in_line = False  # or may be: who hands us a job takes us out of it
        self._took = False  # was handed something since we stood in line
        self._deaf_until_s = 0.0  # we may be, and are handed nothing
        self._asking = False
        self._worked = False  # claimed something since: others in line have waited longer
        self._unsure = False  # a claim may have been made whose answer never came

    # What wakes it. -------------------------------------------------------------------------------------------------

    def hint(self) -> None:
        """There may be work."""
        self._hinted = True
        self._wake.set()

    def missed(self) -> None:
        """There may have been hints that we did not hear, and jobs that were handed to us; from now on we hear."""
        self._deaf_until_s = 0.0
        self._unsure = True
        self.hint()

    def take(self, lease: Lease) -> None:
        """A job was handed to us."""
        self._took = True
        if self._strays.keeps_back(lease) or steady_s() > self._slots.lease_until_s > 0:
            return  # it is somebody else's by now, or may be
        if self.draining or lease.type not in self._jobs or lease.threads > self._desk.room().width:
            self._settler.release([lease], Released())
        else:
            self._begin([lease])
        self._wake.set()

    def stir(self) -> None:
        """There may be room."""
        self._wake.set()

    def drain(self) -> None:
        """Claim no more."""
        self.draining = True
        self._wake.set()

    async def _sleep(self, seconds: float) -> None:
        timer = asyncio.get_running_loop().call_later(seconds, self._wake.set)
        await self._wake.wait()
        timer.cancel()
        self._wake.clear()

    # The loop. ------------------------------------------------------------------------------------------------------

    async def work(self) -> None:
        """Claim until told to drain."""
        pauses = Pauses(_PAUSE_S, _PAUSE_S_MAX)
        while not self.draining:
            try:
                await self._round()
                pauses.reset()
            except Exception as error:  # noqa: BLE001 - tried again, or we would be deaf and nobody told
                self._unsure = self.troubled = True
                _tell(error, first=pauses.is_first)
                await self._sleep(pauses.next_s())
        self.ended = True
        await self._leave()

    async def _round(self) -> None:
        """Claim until there is no room or nothing to claim, then sleep until either may have changed."""
        if self._unsure:
            self._unsure = False
            await self.give_back_strays(older_than_s=0)
        room = self._desk.room()
        if room.budget <= 0 or room.width <= 0 or self._settler.backlog > _BACKLOG_MAX:
            if self._in_line:  # a hint sent to us now would be lost on one that cannot take the job
                await self._hints.leave(self._post.worker_id)
                self._in_line = False
            await self._sleep(self._config.poll_s)
            return
        if await self._claim(room) >= min(room.budget, _BATCH):
            return
        # Came back short. In line first, then look once more: what is committed from now on wakes us.
        while not self.draining and (room := self._desk.room()).width > 0:
            if await self._lie_down(room):
                return
            await self._until_worth_a_look()
            if self._hinted or self._unsure:
                return

    async def _lie_down(self, room: Room) -> int:
        """Stand in line, and look once more; the number of threads that came. A job that is handed to us meanwhile waits for that:
        what is found goes first, a wide one say that has waited for all threads. And should the job hold up our loop, we are
        not in line again by then: it was handed to us before, or the next thing that we send takes us out."""
        with self._strays.holding_up():
            await self._rest(room)
            return await self._claim(self._desk.room())

    async def _rest(self, room: Room) -> None:
        """Stand in line. Jobs are handed to us only while all threads are free: nothing can keep our loop from hearing."""
        self._hinted = self._took = False
        free, worked = min(room.width, self._desk.threads), self._worked
        self._worked = False
        hand_key = self._post.hand_key if room.busy == 0 and steady_s() >= self._deaf_until_s else None
        self._rested, self._in_line = room, True
        had = await self._hints.rest(
            self._post.worker_id, queues=self._queues, types=self._types, free=free, worked=worked,
            hand_key=hand_key, hand_for_s=_HAND_POLLS * self._config.poll_s,
        )  # fmt: skip
        if had > len(self._held()) and await self.give_back_strays(older_than_s=LATE_S):
            self._deaf_until_s = steady_s() + _DEAF_S

    async def _until_worth_a_look(self) -> None:
        """A hint, a job handed to us, a poll's time, more room than we stood in line with, or another way to be told of work
        than we said."""
        until_s = steady_s() + self._config.poll_s * (0.75 + 0.5 * random.random())
        while not (self.draining or self._hinted or self._unsure or self._took):
            if (left_s := until_s - steady_s()) <= 0:
                return
            await self._sleep(left_s)
            room, rested = self._desk.room(), self._rested
            if room.width > rested.width or room.busy == 0 < rested.busy or self._hints.outdated:
                return

    async def _claim(self, room: Room) -> int:
        """Ask once, or first the queue whose turn it is and then all; the number of threads that came."""
        got = 0
        if self._hinted:
            self._claims.look_afresh()
            self._hinted = False
        if (queue := self._turns.next()) is not None:
            got = await self._ask(room, [queue])
            room = self._desk.room()
        if self.draining or got >= _BATCH or room.budget <= 0 or room.width <= 0:
            return got
        return got + await self._ask(room, self._queues)

    async def _ask(self, room: Room, queues: Sequence[str]) -> int:
        ask = Ask(
            self._post.worker_id, queues, self._types, room.width, room.busy,
            budget=room.budget, most=_BATCH, in_line=self._in_line,
        )  # fmt: skip
        with self._strays.holding_up():  # what comes by both ways might be more than fits
            self._asking = True
            try:
                leases = await self._claims.claim(ask)
            finally:
                self._asking = False
            self._slots.claimed_s = steady_s()
            if self.draining:
                self._settler.release(leases, Released())
                return 0
            if leases:
                self._in_line = False
                self._begin(leases)
        return sum(lease.threads for lease in leases)

    def _begin(self, leases: Sequence[Lease]) -> None:
        self._worked = True
        self.fed_s = steady_s()
        self._locks.acquire(leases)
        self._desk.add([(lease, *(self._suspects if lease.suspect else self._jobs)[lease.type]) for lease in leases])
        self.begin()

    async def _leave(self) -> None:
        with suppress(Unavailable, TimeoutError):  # the leader removes the rows of the dead
            await asyncio.wait_for(self._hints.leave(self._post.worker_id), 1)

    # What may go wrong. ---------------------------------------------------------------------------------------------

    async def give_back_strays(self, older_than_s: float = _STRAY_S) -> int:
        """Give back what we have without having heard of it, and wake others for it; returns how many."""
        if self._asking:
            return 0  # what it brings would be taken for a stray
        back = await self._strays.give_back(older_than_s)
        if back:
            _log.warning("gave back %d jobs that were ours without our knowing", len(back))
            self._settler.wake_for(back)
            self.hint()
        return len(back)

    def _held(self) -> list[Lease]:
        """Every lease that we know of."""
        return [*self._desk.held(), *self._settler.held()]

    async def overlooks(self, waited_s: float) -> bool:
        """Whether work has waited for that long that we have room for, and do not get."""
        room = self._desk.room()
        if self.draining or room.width <= 0:
            return False
        ask = Ask(self._post.worker_id, self._queues, self._types, room.width)
        return await self._claims.overlooked(ask, waited_s=waited_s)

    async def freshen(self) -> None:
        """Begin anew with other connections and a full look."""
        self._claims.look_afresh()
        await self._claims.reconnect()
        self.hint()


def _tell(error: Exception, *, first: bool) -> None:
    if isinstance(error, Unavailable):
        _log.warning("claiming waits for the database: %s", error)
    else:  # a fault of ours, or of who set the database up: where it happened once, what happened each time
        _log.error("claiming fails, and is tried again: %s", error, exc_info=error if first else None)
