"""What a supervisor does while its workers run: renews their leases, passes on what people ask, and enforces deadlines.

All of it works whatever a handler does: nothing here needs the worker's co-operation. A worker enforces its own
deadlines and cancels; what it has not managed a second after the grace, because a handler holds the interpreter or
blocks the loop, is done here by ending the process.
"""

import asyncio
import logging
from collections.abc import Mapping
from typing import Final
from uuid import UUID

from windlass.clock import steady_s
from windlass.store.protocol import Upkeep
from windlass.worker.aftermath import Culprit
from windlass.worker.berth import Berth, Crew
from windlass.worker.run import Stop
from windlass.worker.slots import STUCK, Begun

_ANSWER_S: Final = 5.0
_MIB: Final = 1_048_576
_LATE_S: Final = 1.0  # what a worker may be late with its own enforcement
_SILENT_S: Final = 10.0  # a loop that has not ticked for this long is worth a line
_log: Final = logging.getLogger(__name__)


class Oversight:
    """Over the berths that there are now."""

    def __init__(self, crew: Crew, upkeep: Upkeep, berths: Mapping[UUID, Berth]) -> None:
        self._crew = crew
        self._lease = crew.config.lease
        self._worker = crew.config.worker
        self._upkeep = upkeep
        self._berths = berths

    def _living(self) -> dict[UUID, Berth]:
        """Those that may hold jobs."""
        return {b.id: b for b in self._berths.values() if b.lease_until_s is not None and not b.killed}

    # Leases. --------------------------------------------------------------------------------------------------------

    async def renew(self) -> None:
        """Push out all leases at once. A worker that is not in the answer is dead to the world, and ends."""
        living = self._living()
        if not living:
            return
        lost = {berth.id: berth.slots.lost_threads for berth in living.values()}
        memory = {berth.id: round(berth.child.resident_mib * _MIB) for berth in living.values()}
        before_s = steady_s()
        async with asyncio.timeout(self._lease.lease_ttl_s / 3):  # not longer: there must be time to try again
            renewed = await self._upkeep.renew(
                living, lease_ttl_s=self._lease.lease_ttl_s, lost_threads=lost, memory_bytes=memory
            )
        for berth in living.values():
            if berth.id not in self._berths or berth.killed:
                continue
            if berth.id not in renewed:
                berth.kill("it was declared dead")
                continue
            berth.lend(before_s + self._lease.lease_ttl_s)
        if any(renewed.values()):
            await self.let_leave()
        await self._show_draining([one for one, marked in renewed.items() if living[one].draining and not marked])

    async def let_leave(self) -> None:
        """Let those workers go that somebody has asked to leave. One that drains is not replaced, also if it is stopped then."""
        living = self._living()
        if not living:
            return
        async with asyncio.timeout(_ANSWER_S):
            leaving = await self._upkeep.leaving(living)
        for asked in leaving:
            berth = living[asked.worker_id]
            if berth.id not in self._berths or berth.killed:  # it has ended meanwhile
                continue
            if asked.drains and not berth.draining:
                _log.info("%s was told to drain: it finishes its jobs and is not replaced", berth.name)
                berth.drain(replace=False)
            if asked.stops and berth.ends_by_s is None:
                _log.info("%s was told to stop: it gives its jobs back", berth.name)
                berth.restart()

    async def _show_draining(self, worker_ids: list[UUID]) -> None:
        """Let nothing be planned for workers that drain for reasons of their own."""
        if worker_ids:
            await self._upkeep.drain(worker_ids)

    async def recycle(self) -> None:
        """A worker that has grown too big finishes its jobs and is replaced."""
        most = self._worker.worker_mib_max
        for berth in self._living().values() if most else ():
            if not berth.draining and (size := berth.child.resident_mib) > most:
                berth.worn = f"it has grown to {size:.0f} MiB"

    # Cancels. -------------------------------------------------------------------------------------------------------

    async def pass_cancels_on(self) -> None:
        busy = {b.id: (b, begun) for b in self._living().values() if (begun := b.slots.begun())}
        if not busy:
            return
        async with asyncio.timeout(_ANSWER_S):
            asked = await self._upkeep.cancels(busy)
        for berth, before in busy.values():
            if berth.id not in self._berths:  # it has ended meanwhile
                continue
            wanted = asked.get(berth.id, {})
            # An attempt at work before and after the answer was at work when the token was read, so that is its own.
            after = berth.slots.begun() if wanted else []
            attempts = {one.job_id: one.attempt for one in before if one in after}
            for job_id, token in wanted.items():
                berth.cancel(job_id, token, attempts.get(job_id))
            for job_id in berth.cancels.keys() - wanted.keys():
                del berth.cancels[job_id]

    # Deadlines. -----------------------------------------------------------------------------------------------------

    def enforce(self) -> None:
        """End what cannot end itself. Reads memory only, so it may be done often."""
        now_s = steady_s()
        for berth in self._living().values():
            if berth.lease_until_s is not None and now_s > berth.lease_until_s - self._crew.margin_s:
                berth.kill("its lease could not be renewed, and its jobs may not outlive it")
                continue
            if berth.ends_by_s is not None and now_s > berth.ends_by_s:
                berth.kill("it has not ended in time")
                continue
            begun = berth.slots.begun()
            overdue = next(filter(None, (self._overdue(berth, entry, now_s) for entry in begun)), None)
            if overdue is not None:
                why = f"job {overdue.job_id} was to stop ({overdue.why.value}), and it could not do that"
                # Where the loop stands still, another job may have kept this one from being stopped.
                berth.kill(why, overdue, held_up=_still_s(berth, now_s) > _LATE_S)
            else:
                self._watch_pulse(berth, begun, now_s)

    def _overdue(self, berth: Berth, entry: Begun, now_s: float) -> Culprit | None:
        if entry.state in STUCK:  # the worker has given it up in order
            return None
        patience_s = self._worker.stop_grace_s + _LATE_S
        asked = berth.cancels.get(entry.job_id)
        of_this = asked is not None and asked.attempt == entry.attempt  # not of the one before it
        if asked is not None and of_this and now_s > max(asked.since_s, entry.began_s) + patience_s:
            return Culprit(entry.job_id, entry.attempt, Stop.CANCEL)
        if now_s > entry.deadline_s + patience_s:
            return Culprit(entry.job_id, entry.attempt, Stop.TIMEOUT)
        return None

    def _watch_pulse(self, berth: Berth, begun: list[Begun], now_s: float) -> None:
        """A loop that does not tick: while jobs run, one of them holds the interpreter, and its deadline will tell.
        With none there is nothing to wait for. Nor is there in a process that is stopped: no job in it goes on."""
        still_s = _still_s(berth, now_s)
        if self._is_frozen(berth, still_s, now_s):
            berth.kill(f"it has been stopped for {self._worker.frozen_s:g} s, by a signal or a debugger")
        elif still_s < _SILENT_S:
            berth.silent = False
        elif not begun and still_s > max(_SILENT_S, self._lease.lease_ttl_s):
            berth.kill(f"it has not moved for {still_s:.0f} s, and no job is under way")
        elif not berth.silent:
            berth.silent = True
            _log.warning("%s has not moved for %.0f s: a handler holds it up", berth.name, still_s)

    def _is_frozen(self, berth: Berth, still_s: float, now_s: float) -> bool:
        if not self._worker.frozen_s or still_s < _LATE_S or not berth.child.is_stopped:
            berth.stopped_since_s = None
            return False
        if berth.stopped_since_s is None:
            berth.stopped_since_s = now_s
        return now_s - berth.stopped_since_s > self._worker.frozen_s


def _still_s(berth: Berth, now_s: float) -> float:
    """For how long the worker's loop has not ticked."""
    return now_s - (berth.slots.pulse_s or now_s)
