"""What becomes of the jobs of a worker that has ended: one outcome for each, through the same `settle` as all others.

The order matters. First what it held is settled, by what its slots say; then it is buried, so that no claim of its own
can come after; then what it held is asked for once more: a claim may have been on its way to the commit when it died.
Whatever comes later still is the leader's to find.
"""

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from windlass.attempt_report import report_end
from windlass.bus.protocol import Waker
from windlass.clock import steady_s
from windlass.errors import WindlassError
from windlass.lifecycle import Cancelled, Lost, Outcome, Released, Settlement, TimedOut, settle
from windlass.model import Lease, Status, Want
from windlass.pauses import Pauses
from windlass.store.protocol import Claims, Upkeep
from windlass.worker.run import Stop
from windlass.worker.slots import Begun, State

_PAUSE_S: Final = 0.1
_PAUSE_S_MAX: Final = 2.0
_TRY_S: Final = 10.0
_FAULTS_MAX: Final = 30
_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Culprit:
    """The attempt for whose sake a worker was killed, and why that had to end."""

    job_id: UUID
    attempt: int
    why: Stop


@dataclass(frozen=True, slots=True)
class End:
    """How a worker ended. `crashed`: by itself. `begun`: what its threads were doing; None: nobody knows. `name`: what it was
    called, where that is known. `spent`: what it had begun died with it; not so if it was told to leave, or lost its lease with
    the database away. `clean`: it was told to stop, and did. `started`: what it had begun lately, also what had ended.
    `held_up`: it was killed because a job did not stop, and its loop stood still: one of those begun holds it up, nobody
    knows which. `fault`: a part of it was broken, by a fault of Windlass or by a job, whose handler may have ended a moment
    before."""

    worker_id: UUID
    crashed: bool
    begun: Sequence[Begun] | None = ()
    culprit: Culprit | None = None
    name: str | None = None
    spent: bool = False
    clean: bool = False
    started: frozenset[tuple[UUID, int]] = frozenset()
    held_up: bool = False
    fault: bool = False

    @property
    def charged(self) -> bool:
        """Whether the starts that died with it count. Those that a fault of ours may have ended do not; a job that is to blame
        for it is counted in the child that it runs in from then on."""
        return (self.crashed and not self.fault) or self.spent


def verdict(lease: Lease, end: End, now_s: float) -> Outcome:
    """What one lease of a dead worker has come to."""
    if end.begun is None:
        return Lost(crashed=end.crashed, spent=end.spent)  # it may have begun
    entry = next((e for e in end.begun if (e.job_id, e.attempt) == (lease.job_id, lease.attempt)), None)
    if entry is None:
        # Its handler had ended, and is not to blame; but nobody wrote down how, so it is a start that died. Or it had not begun.
        had_ended = (lease.job_id, lease.attempt) in end.started
        blamed = (
            had_ended and end.fault and not lease.suspect
        )  # a suspect was in a child, and did nothing to the worker
        return Lost(crashed=end.crashed, begun=blamed, spent=had_ended and end.charged)
    why = _stopped_for(entry, end.culprit)
    # Its job row is out of sight for a moment while a partition is removed: then it goes back, and is timed out again.
    if why is Stop.TIMEOUT and lease.max_attempts is not None:
        return TimedOut(now_s - entry.began_s, killed=entry.state is not State.ISOLATED)
    if why is Stop.CANCEL:
        return Cancelled("cancelled on request")
    if end.clean and not end.spent:  # a shutdown did not wait for a handler that cannot be interrupted
        return Released()
    # What ran in a child did not crash the worker or hold it up, but died with it.
    shared = entry.state is not State.ISOLATED
    return Lost(crashed=end.crashed, begun=shared, spent=end.charged, isolated=shared and end.held_up)


def _stopped_for(entry: Begun, culprit: Culprit | None) -> Stop | None:
    if culprit is not None and (culprit.job_id, culprit.attempt) == (entry.job_id, entry.attempt):
        return culprit.why
    return {State.STUCK_BY_TIMEOUT: Stop.TIMEOUT, State.STUCK_BY_CANCEL: Stop.CANCEL}.get(entry.state)


async def see_off(ends: Sequence[End], upkeep: Upkeep, claims: Claims, waker: Waker) -> bool:
    """Settle and bury, however long the database is away; False: given up on, after faults that no waiting cures.

    Then their leases end, and the leader finds what they held.
    """
    pauses, faults, told = Pauses(_PAUSE_S, _PAUSE_S_MAX), 0, False
    while faults < _FAULTS_MAX:
        try:
            async with asyncio.timeout(_TRY_S):
                await _see_off(ends, upkeep, claims, waker)
                return True
        except (WindlassError, TimeoutError) as error:
            faults += not isinstance(error, TimeoutError) and not error.retryable
            if not told:
                reason = str(error) or "it does not answer"
                _log.warning("the jobs of %s wait for the database: %s", _names(ends), reason)
            told = True
        except Exception:  # noqa: BLE001 - a fault of ours must not keep the other workers from being seen off
            faults += 1
            _log.exception("the jobs of %s could not be settled", _names(ends))
        await pauses.wait()
    _log.error("the jobs of %s are left for the leader to find", _names(ends))
    return False


async def _see_off(ends: Sequence[End], upkeep: Upkeep, claims: Claims, waker: Waker) -> None:
    ready: list[Lease] = []
    try:
        await _settle_held(ends, upkeep, claims, ready)
        for clean in (True, False):
            if ids := [end.worker_id for end in ends if end.clean is clean]:
                await upkeep.bury(ids, "left" if clean else "crashed")
        await _settle_held(ends, upkeep, claims, ready)
    finally:
        waker.wake(_wants(ready))  # after the burial, or the dead would be woken


async def _settle_held(ends: Sequence[End], upkeep: Upkeep, claims: Claims, ready: list[Lease]) -> None:
    by_id = {end.worker_id: end for end in ends}
    while leases := await upkeep.held_by(by_id):
        now_s = steady_s()
        outcomes = [(lease, verdict(lease, by_id[lease.worker_id], now_s)) for lease in leases]
        outcomes = await _spare_unstarted(outcomes, upkeep)
        settled = [(lease, outcome, settle(lease, outcome, jitter=random.random())) for lease, outcome in outcomes]
        receipt = await claims.settle([settlement for _, _, settlement in settled])
        ready += [lease for lease in leases if receipt.moved.get(lease.job_id) is Status.READY]
        _report(settled, receipt.moved, by_id)
        if not receipt.moved:  # another has them all in hand
            return


async def _spare_unstarted(outcomes: Sequence[tuple[Lease, Outcome]], upkeep: Upkeep) -> list[tuple[Lease, Outcome]]:
    """A job that is started once at most has a thread before its start is recorded, and begins after that."""
    charged = {lease.job_id for lease, outcome in outcomes if isinstance(outcome, Lost) and outcome.spent}
    unstarted = await upkeep.unstarted(charged) if charged else set()
    return [
        (lease, Lost(crashed=outcome.crashed, begun=False, spent=False))
        if lease.job_id in unstarted and isinstance(outcome, Lost)
        else (lease, outcome)
        for lease, outcome in outcomes
    ]


def _wants(leases: Iterable[Lease]) -> list[Want]:
    """What others are to be woken for."""
    counts = Counter((lease.queue, lease.type, lease.threads) for lease in leases)
    return [Want(queue, type_, threads, count) for (queue, type_, threads), count in counts.items()]


def _report(
    settled: Iterable[tuple[Lease, Outcome, Settlement]], moved: Mapping[UUID, Status], ends: Mapping[UUID, End]
) -> None:
    """A line for each job that is known to have begun, or that has finished, and one for all the others."""
    untouched: Counter[UUID] = Counter()
    for lease, outcome, settlement in settled:
        status = moved.get(lease.job_id)
        if status is None:
            continue
        end = ends[lease.worker_id]
        if isinstance(outcome, Lost) and not outcome.begun and status is Status.READY and not _is_at_work(lease, end):
            untouched[lease.worker_id] += 1
        else:
            report_end(lease, settlement, status, worker=end.name or str(end.worker_id))
    for worker_id, count in untouched.items():
        name = ends[worker_id].name or f"worker {worker_id}"
        _log.info("%d jobs that %s had claimed go back", count, name, extra={"worker": name})


def _is_at_work(lease: Lease, end: End) -> bool:
    """Whether one of its threads had begun it. Of the jobs in children, too: those are lost, though under no suspicion."""
    return (lease.job_id, lease.attempt) in end.started or any(
        (entry.job_id, entry.attempt) == (lease.job_id, lease.attempt) for entry in end.begun or ()
    )


def _names(ends: Sequence[End]) -> str:
    return ", ".join(f"worker {end.worker_id}" for end in ends)
