"""What fits where: free threads, reservations for wide jobs, and what to do with a job wider than any worker.

`room` and `fit` say in Python what the claim does in SQL (tests compare them); `reserve` and `fallback` are for the
leader, once a tick.
Pure: no clock, no random, no I/O, so the rules are simulated far beyond the size of any machine we have
(tests/unit/test_placement_simulation.py). Nothing here starts a job: it only says who may.

Why a reservation at all: narrow jobs take every thread the moment it is free, so eight threads are never free
together and a wide job would wait for ever. A reserved worker takes nothing new until its wide job fits.
"""

from collections.abc import Collection, Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple
from uuid import UUID

from windlass.model import TooWide


class Wide(NamedTuple):
    """A ready job that no worker had room for, for as long as `reserve_after_s`."""

    job_id: UUID
    queue: str
    type: str
    thread_demand: int


class Room(NamedTuple):
    """A live worker that still claims. `last_claim` is any number that grows with time; None: it never claimed."""

    worker_id: UUID
    threads: int
    busy: int
    queues: Collection[str]
    types: Collection[str]
    last_claim: float | None = None


class Reservation(NamedTuple):
    """`threads` of this worker are kept for this job. A worker holds at most one, a job at most one."""

    worker_id: UUID
    job_id: UUID
    threads: int


def fit(budget: int, demands: Sequence[int], most: int) -> int:
    """How many jobs from the head of a rank-ordered list fit: never one further back at the cost of one before."""
    used = 0
    for n, demand in enumerate(demands[: max(0, most)]):
        used += demand
        if used > budget:
            return n
    return min(len(demands), max(0, most))


def room(threads: int, busy: int, reserved: int | None) -> int:
    """How many threads a worker may fill now: the free ones, or none while its reserved job does not fit yet.

    None, because other jobs hold more than `threads - reserved` already. Once the reserved job fits, the claim takes
    it before anything else, and what is left over is free for all.
    """
    free = max(0, threads - busy)
    return free if reserved is None or reserved <= free else 0


def serves(worker: Room, queue: str, type_: str) -> bool:
    return queue in worker.queues and type_ in worker.types


def reserve(waiting: Sequence[Wide], workers: Sequence[Room], held: Collection[Reservation]) -> list[Reservation]:
    """The complete set of reservations there should be now; held ones that are not in it are to be dropped.

    `waiting` is in rank order and names every job that holds a reservation and still waits. A held reservation stays
    while its worker could hold its job: moving it would throw away the threads that have drained so far. New ones go
    by rank, to the worker that is soonest free, then least recently used; at most half of the workers able to hold a
    job are reserved at once (at least one), so wide jobs never stop everything else.

    So the first in line starts within one round (one tick and the longest running job), and the k-th to be served
    within ⌈k / max(1, ⌊W / 2⌋)⌉ rounds, where W workers are able to hold it and live.
    """
    kept = _still_valid(waiting, workers, held)
    taken = {reservation.worker_id for reservation in kept.values()}
    closed: set[UUID] = set()
    groups: dict[tuple[str, str, int], _Able] = {}
    spent: set[tuple[str, str, int]] = set()
    for job in waiting:
        shape = job[1:]
        if job.job_id in kept or shape in spent:
            continue
        if shape not in groups:
            groups[shape] = _Able(job, workers)
        worker_id = groups[shape].next(taken, closed)
        if worker_id is None:
            # Those behind must not fill the half that this one waits for, or it would wait for ever.
            closed |= groups[shape].ids
            spent.add(shape)
        else:
            kept[job.job_id] = Reservation(worker_id, job.job_id, job.thread_demand)
            taken.add(worker_id)
    return list(kept.values())


def too_wide(demand: int, queue: str, type_: str, workers: Sequence[Room]) -> bool:
    """Whether workers serve such a job, but none of them has that many threads in all."""
    serving = [worker.threads for worker in workers if serves(worker, queue, type_)]
    return demand > 1 and bool(serving) and max(serving) < demand


def fallback(job: Wide, if_too_wide: TooWide, workers: Sequence[Room]) -> TooWide | None:
    """What to do with a job that has waited out the grace; None while some worker could hold it, or none serves it."""
    return if_too_wide if too_wide(job.thread_demand, job.queue, job.type, workers) else None


def _could_hold(worker: Room, job: Wide) -> bool:
    return worker.threads >= job.thread_demand and serves(worker, job.queue, job.type)


def _still_valid(
    waiting: Sequence[Wide], workers: Sequence[Room], held: Collection[Reservation]
) -> dict[UUID, Reservation]:
    by_job = {reservation.job_id: reservation.worker_id for reservation in held}
    by_id = {worker.worker_id: worker for worker in workers}
    kept: dict[UUID, Reservation] = {}
    taken: set[UUID] = set()
    for job in waiting:
        worker = by_id.get(by_job[job.job_id]) if job.job_id in by_job else None
        if worker is not None and worker.worker_id not in taken and _could_hold(worker, job):
            kept[job.job_id] = Reservation(worker.worker_id, job.job_id, job.thread_demand)
            taken.add(worker.worker_id)
    return kept


class _Able:
    """The workers able to hold one shape of job, best first. A leader with a long line asks the same shape often."""

    def __init__(self, job: Wide, workers: Sequence[Room]) -> None:
        able = sorted(
            (worker for worker in workers if _could_hold(worker, job)),
            key=lambda worker: (
                max(0, job.thread_demand - (worker.threads - worker.busy)),
                worker.last_claim is not None,
                worker.last_claim or 0.0,
                worker.worker_id,
            ),
        )
        self.ids = {worker.worker_id for worker in able}
        self._half = max(1, len(able) // 2)
        self._best: Iterator[UUID] = iter([worker.worker_id for worker in able])

    def next(self, taken: AbstractSet[UUID], closed: AbstractSet[UUID]) -> UUID | None:
        """The best worker that is neither; both only grow, so what was passed by need not be looked at again."""
        if len(self.ids & taken) >= self._half:
            return None
        return next((worker_id for worker_id in self._best if worker_id not in taken and worker_id not in closed), None)
