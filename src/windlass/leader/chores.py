"""The leader's chores: plain functions over the store's upkeep, each safe to repeat and to run twice at once.

Where there may be more than a page, a chore does one page and says whether it was full; the loop decides when to come
back (loop.py). What becomes ready is told to the waker after it was committed.
"""

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final
from uuid import UUID

from windlass.attempt_report import report_end
from windlass.bus.protocol import NoWaker, Waker
from windlass.clock import steady_s
from windlass.config import PlacementConfig
from windlass.lifecycle import Lost, settle
from windlass.model import Status, Want
from windlass.placement import Reservation, Room, Widths, early, lines, passed_over, reserve, widest_by_line
from windlass.queue_names import prefixes
from windlass.store.protocol import Claims, LostLease, Receipt, Upkeep, WideJob, WideQueues

PAGE: Final = 1_000
# Longer than it takes to find a new leader: threads that drained for a wide job are not given away meanwhile.
RESERVED_S: Final = 6.0
FOLD_S: Final = 1.0
_FOLD_SHARE: Final = 20
_LATELY_S: Final = 1.0
_LINE: Final = 50
_CONTESTED_S: Final = 5.0
_SOON_S: Final = 0.05
_BUSY_S: Final = 0.5
# Who has not looked for that long did not lead: what was seen before says nothing of the time between.
_BLIND_S: Final = 30.0
_DAYS_AHEAD_LEAST: Final = 2
_NOBODY: Final = NoWaker()
_log: Final = logging.getLogger(__name__)


async def reap(upkeep: Upkeep, claims: Claims, draw: Callable[[], float], *, waker: Waker = _NOBODY) -> int:
    """Give back or finish the jobs of dead workers, through the same `settle` as everything else.

    Which leases have certainly ended is for the database to say, so a leader may reap from its first moment on. `draw` gives
    a number in [0, 1). One page. Returns how many jobs moved, and none once there are no more; those refused were settled by
    someone else meanwhile.
    """
    for worker_id in sorted(await upkeep.bury_expired()):
        _log.warning("worker %s did not renew its lease: its jobs are given back", worker_id)
    lost = await upkeep.lost(limit=PAGE)
    if not lost:
        return 0
    settlements = [settle(one.lease, Lost(crashed=one.crashed, begun=one.begun), jitter=draw()) for one in lost]
    receipt = await claims.settle(settlements)
    waker.wake(_given_back(lost, receipt))
    for one, settlement in zip(lost, settlements, strict=True):
        if (status := receipt.moved.get(one.lease.job_id)) is not None:
            report_end(one.lease, settlement, status, worker=str(one.lease.worker_id))
    return len(receipt.moved)


def _given_back(lost: Sequence[LostLease], receipt: Receipt) -> list[Want]:
    leases = [one.lease for one in lost if receipt.moved.get(one.lease.job_id) is Status.READY]
    counts = Counter((lease.queue, lease.type, lease.threads) for lease in leases)
    return [Want(*shape, count) for shape, count in counts.items()]


async def promote(upkeep: Upkeep, waker: Waker) -> bool | float:
    """Make due jobs ready. While there are some it comes back soon: at a slower pace they would start in lumps."""
    wants = await upkeep.promote(limit=PAGE)
    return _wake(waker, wants) or (_SOON_S if wants else False)


async def admit_known(upkeep: Upkeep, waker: Waker) -> bool:
    """Give back held jobs whose type some worker now knows."""
    return _wake(waker, await upkeep.admit_known(limit=PAGE))


async def fold_counts(upkeep: Upkeep) -> float:
    """Add the counts up. Each fold writes a row for every queue, type and status: where there are tens of thousands
    it comes back later, so that folding never takes more than a twentieth of the time. Returns how soon."""
    began_s = steady_s()
    await upkeep.fold_counts()
    return max(FOLD_S, _FOLD_SHARE * (steady_s() - began_s))


async def expire_dead_letters(upkeep: Upkeep) -> bool:
    """Remove failed jobs that were kept long enough. One page; says whether it was full."""
    expired = await upkeep.expire_dead_letters(limit=PAGE)
    if expired:
        _log.info("removed %d dead letters that were kept long enough", expired)
    return expired >= PAGE


async def expire_audit(upkeep: Upkeep) -> bool:
    """Remove entries of the audit that were kept long enough. One page; says whether it was full."""
    expired = await upkeep.expire_audit(limit=PAGE)
    if expired:
        _log.info("removed %d entries of the audit that were kept long enough", expired)
    return expired >= PAGE


class AdmitNewer:
    """Jobs with fields that their worker did not know go back in line once a worker is there that knows them.

    While workers of both versions live, the wrong one may claim them again, and give them back again: only those that know
    the fields are woken then, and the jobs are tried every few seconds, so that they cost little. When the last old worker
    has gone they go at once.
    """

    def __init__(self, upkeep: Upkeep, waker: Waker) -> None:
        self._upkeep = upkeep
        self._waker = waker
        self._tried_s: dict[tuple[str, str], float] = {}

    async def __call__(self) -> bool:
        """One page of each type; says whether one was full."""
        now_s = steady_s()
        # Kept though the jobs are not waiting at the moment: they may be about to come back.
        self._tried_s = {key: at_s for key, at_s in self._tried_s.items() if now_s - at_s < _CONTESTED_S}
        full = False
        for waiting in await self._upkeep.waiting_for_newer():
            key = waiting.type, waiting.reason
            if not (waiting.contested and key in self._tried_s):
                self._tried_s[key] = now_s
                admitted = await self._upkeep.admit_waiting(waiting, limit=PAGE)
                if waiting.contested:
                    self._waker.wake_workers(waiting.takers)
                    full |= _is_page(admitted)
                else:
                    full |= _wake(self._waker, admitted)
        return full


def _wake(waker: Waker, wants: Sequence[Want]) -> bool:
    if wants:
        waker.wake(wants)
    return _is_page(wants)


def _is_page(wants: Sequence[Want]) -> bool:
    return sum(want.count for want in wants) >= PAGE


class HoldUnknown:
    """Jobs whose type no live worker knows are set aside, after a grace.

    Not only the job must have waited for that long; its type must have been unknown for as long, as far as this leader
    saw: else a restart of the only worker of a type would move its whole backlog aside, and back.
    """

    def __init__(self, upkeep: Upkeep, placement: PlacementConfig) -> None:
        self._upkeep = upkeep
        self._after_s = placement.hold_unknown_after_s
        self._since_s: dict[str, float] = {}
        self._looked_s = 0.0

    async def __call__(self) -> bool:
        """One page; says whether it was full."""
        unknown = await self._upkeep.unknown_types()
        now_s = steady_s()
        before = self._since_s if now_s - self._looked_s < _BLIND_S else {}
        self._looked_s = now_s
        self._since_s = {type_: before.get(type_, now_s) for type_ in unknown}
        types = [type_ for type_, since_s in self._since_s.items() if now_s - since_s >= self._after_s]
        return await self._upkeep.hold_unknown(after_s=self._after_s, types=types, limit=PAGE) >= PAGE


class FoundQueues:
    """The queues with wide jobs, where workers serve queues by pattern: a page a look, round and round."""

    def __init__(self, upkeep: Upkeep) -> None:
        self._upkeep = upkeep
        self._last: WideQueues | None = None

    async def next(self, workers: Sequence[Room]) -> Sequence[str]:
        patterns = prefixes({queue for worker in workers for queue in worker.queues})
        if not patterns:
            return ()
        self._last = await self._upkeep.wide_queues(sorted(patterns), self._last)
        return self._last.queues


class Reserve:
    """Threads are kept free, until they start, for wide jobs that were passed over and for the first of the others.

    Once passed over, a job is due until then: else those behind it could be given the workers it waits for. Remembers
    one page of jobs; a new leader sees them passed over again.
    """

    def __init__(self, upkeep: Upkeep, placement: PlacementConfig) -> None:
        self._upkeep = upkeep
        self._wanted = placement.reservations == "on"
        self._after_s = placement.reserve_after_s
        self._due: set[UUID] = set()
        self._early: set[UUID] = set()
        self._found = FoundQueues(upkeep)

    async def __call__(self) -> float | None:
        """Comes back sooner than usual while workers are busy: else nobody is passed over."""
        held = await self._upkeep.reservations()
        workers = await self._rooms() if self._wanted else []
        wanted = await self._choose(workers, held) if self._wanted else []
        if wanted or held:
            await self._upkeep.reserve(wanted, ttl_s=RESERVED_S)
        return _BUSY_S if wanted or any(worker.busy for worker in workers) else None

    async def _rooms(self) -> list[Room]:
        # Who has waited for that long has been passed over by all that was claimed since then.
        return await self._upkeep.rooms(lately_s=max(_LATELY_S, self._after_s))

    async def _choose(self, workers: Sequence[Room], held: Sequence[Reservation]) -> list[Reservation]:
        known = self._due | self._early | {reservation.job_id for reservation in held}
        if not known and not any(worker.busy for worker in workers):
            return []
        # Not more than half of the workers can be reserved: a page that long leaves nobody out.
        found = await self._found.next(workers)
        waiting = await self._upkeep.waiting_wide(
            lines(workers, found), waited_s=self._after_s, known=known, limit=max(_LINE, len(workers) // 2)
        )
        due = (known - self._early) | {job.job_id for job in passed_over(waiting, workers)}
        self._early = early(waiting, workers, due, self._early)
        chosen = [job for job in waiting if job.job_id in due | self._early]
        self._due = {job.job_id for job in chosen[:PAGE] if job.job_id in due}
        return reserve(chosen, workers, held)


class TooWide:
    """Jobs wider than every worker that serves them are narrowed or failed, as they asked, after a grace.

    Not only the job must have waited for that long; its line must have had no wider worker for as long, as far as this
    leader saw: one may have died a moment ago, and narrowing cannot be undone.
    """

    def __init__(self, upkeep: Upkeep, placement: PlacementConfig) -> None:
        self._upkeep = upkeep
        self._grace_s = placement.too_wide_grace_s
        self._found = FoundQueues(upkeep)
        self._seen: list[tuple[float, Widths]] = []  # since when workers were that wide; the last is what they are now
        self._looked_s = 0.0

    async def __call__(self) -> bool:
        """One page; says whether it was full."""
        workers = await self._upkeep.rooms()
        self._note(Widths(workers), steady_s())
        widest = widest_by_line(workers, await self._found.next(workers))
        settled = {line: width for line, width in widest.items() if self._has_settled(line, width)}
        jobs = await self._upkeep.too_wide(settled, waited_s=self._grace_s, limit=PAGE)
        await self._narrow([job for job in jobs if job.if_too_wide == "narrow"])
        await self._give_up([job for job in jobs if job.if_too_wide == "fail"], widest)
        return len(jobs) >= PAGE

    def _note(self, widths: Widths, now_s: float) -> None:
        """Remember how wide workers were during the grace before now."""
        if now_s - self._looked_s >= _BLIND_S:
            self._seen = []
        self._looked_s = now_s
        if not self._seen or self._seen[-1][1] != widths:
            self._seen.append((now_s, widths))
        ended = [n for n, (since_s, _) in enumerate(self._seen) if n > 0 and since_s <= now_s - self._grace_s]
        self._seen = self._seen[max(ended, default=0) :]

    def _has_settled(self, line: tuple[str, str], width: int) -> bool:
        """Whether some worker served this line all through the grace, and none that was wider."""
        whole_grace = self._seen[0][0] <= self._looked_s - self._grace_s
        return whole_grace and all(0 < then.of(*line) <= width for _, then in self._seen[:-1])

    async def _narrow(self, jobs: list[WideJob]) -> None:
        narrowed = await self._upkeep.narrow(jobs) if jobs else set()
        for job in jobs:
            if job.job_id in narrowed:
                _log.info("job narrowed", extra=_wide_fields(job) | {"threads": 1})

    async def _give_up(self, jobs: list[WideJob], widest: Mapping[tuple[str, str], int]) -> None:
        for width in sorted({widest[job.queue, job.type] for job in jobs}):
            of_width = [job for job in jobs if widest[job.queue, job.type] == width]
            given_up = await self._upkeep.give_up(of_width, widest=width)
            for job in of_width:
                if job.job_id in given_up:
                    error = f"TooWide: asks for {job.thread_demand} threads, and no worker has more than {width}"
                    _log.error("job dead-lettered", extra={"error": error, "status": "failed"} | _wide_fields(job))


def _wide_fields(job: WideJob) -> dict[str, object]:
    return {"thread_demand": job.thread_demand, "job_id": str(job.job_id), "type": job.type, "queue": job.queue}


async def watch_partitions(upkeep: Upkeep) -> None:
    """Where another role makes the partitions: say so while there is still time, should it not."""
    days = await upkeep.partition_days_ahead()
    if days < _DAYS_AHEAD_LEAST:
        _log.error(
            "jobs can be stored for %d more days, then partitions are missing: run `windlass migrate partitions` as the "
            "owner of the schema, every day",
            days,
        )
