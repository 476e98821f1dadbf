"""What fits where: free threads, reservations for wide jobs, whose turn it is, and what to do with a job too wide for all.

`room` and `fit` say in Python what the claim does in SQL (tests compare them); `passed_over`, `reserve` and
`widest_by_line` are for the leader, once a tick; `Turns` is for a worker whose queues have weights.
Pure: no clock, no random, no I/O, so the rules are simulated far beyond the size of any machine we have
(tests/unit/test_placement_simulation.py). Nothing here starts a job: it only says who may.

Why a reservation at all: narrow jobs take every thread the moment it is free, so eight threads are never free
together and a wide job would wait for ever. A reserved worker takes nothing new until its wide job fits.
"""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import product
from typing import NamedTuple, TypeAlias
from uuid import UUID

from windlass import queue_names
from windlass.queue_names import is_pattern

Shape: TypeAlias = tuple[str, str, int]  # queue, type and thread demand: who can hold one job can hold its equals


class Wide(NamedTuple):
    """A ready job of several threads that has waited for as long as `reserve_after_s`."""

    job_id: UUID
    queue: str
    type: str
    thread_demand: int
    rank: float = 0

    @property
    def shape(self) -> Shape:
        return self.queue, self.type, self.thread_demand


class Room(NamedTuple):
    """A live worker. `queues`: what it serves, names and patterns. `last_claim` is any number that grows with time; None: it
    never claimed.

    `latest_rank`: of what it has claimed lately and runs, the one furthest back in the line. `lost`: threads held by handlers that cannot be
    stopped; they are among the busy ones, and come back only with a new process.
    """

    worker_id: UUID
    threads: int
    busy: int
    queues: frozenset[str]
    types: frozenset[str]
    last_claim: float | None = None
    latest_rank: float | None = None
    lost: int = 0
    draining: bool = False


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
    return type_ in worker.types and (queue in worker.queues or queue_names.serves(worker.queues, queue))


def lines(workers: Iterable[Room], found: Iterable[str] = ()) -> dict[tuple[str, str], int]:
    """Where wide jobs may wait for workers that could hold them: by queue and type, up to how many threads. `found`: queues with
    wide jobs, which may be served by pattern."""
    return widest_by_line((worker for worker in workers if not worker.draining), found)


def passed_over(waiting: Iterable[Wide], workers: Iterable[Room]) -> Iterator[Wide]:
    """Those that do not merely wait for their turn: a worker able to hold one took a job from behind it in the line.

    Age alone says little: in a backlog every job is old, and threads kept free for those that would have their turn
    anyway stand idle. Only a few get them by age (`early`).
    """
    busy = [worker for worker in workers if worker.latest_rank is not None]
    # Of workers that can hold the same jobs only the one that has reached furthest back matters; a thousand are few kinds.
    kinds = {
        (worker.queues, worker.types, worker.threads - worker.lost, worker.draining): worker
        for worker in sorted(busy, key=lambda worker: worker.latest_rank or 0)
    }.values()
    latest: dict[Shape, float] = {}
    for job in waiting:
        if job.shape not in latest:
            ranks = (worker.latest_rank or 0 for worker in kinds if _could_hold(worker, job))
            latest[job.shape] = max(ranks, default=-math.inf)
        if latest[job.shape] > job.rank:
            yield job


def early(
    waiting: Iterable[Wide], workers: Sequence[Room], known: AbstractSet[UUID], former: AbstractSet[UUID]
) -> set[UUID]:
    """Those that get threads by age alone, so that a wide job's wait is bounded behind any backlog: the first in line,
    one at a time for every 64 workers (each may stand half empty for as long as its longest job). `known` need no such favour; `former` keep it until they start.
    """
    most = max(1, len(workers) // 64)
    chosen: list[UUID] = []
    shapes: dict[Shape, bool] = {}
    for job in sorted(waiting, key=lambda job: (job.job_id not in former, job.rank, job.job_id)):
        if len(chosen) >= most:
            break
        if job.job_id in known and job.job_id not in former:
            continue
        if job.shape not in shapes:
            shapes[job.shape] = any(_could_hold(worker, job) for worker in workers)
        if shapes[job.shape]:
            chosen.append(job.job_id)
    return set(chosen)


def reserve(waiting: Sequence[Wide], workers: Sequence[Room], held: Collection[Reservation]) -> list[Reservation]:
    """The complete set of reservations there should be now; held ones that are not in it are to be dropped.

    `waiting` is in rank order and names every job that holds a reservation and still waits. A held reservation stays
    while its worker could hold its job: moving it would throw away the threads that have drained so far. New ones go
    by rank, to the worker that is soonest free, then least recently used; at most half of the workers able to hold a
    job are reserved at once (at least one), so wide jobs never stop everything else.

    So the first in line starts within one round (one tick and the longest running job), and the k-th to be served
    within ⌈k / max(1, ⌊W / 2⌋)⌉ rounds, where W workers are able to hold it and live.
    From being passed over to its start a job waits at most reserve_after + tick + that many rounds.
    """
    kept = _still_valid(waiting, workers, held)
    taken = {reservation.worker_id for reservation in kept.values()}
    closed: set[UUID] = set()
    least_recent = sorted(workers, key=lambda w: (w.last_claim is not None, w.last_claim or 0.0, w.worker_id.int))
    groups: dict[Shape, _Able] = {}
    spent: set[Shape] = set()
    for job in waiting:
        shape = job.shape
        if job.job_id in kept or shape in spent:
            continue
        if shape not in groups:
            groups[shape] = _Able(job, least_recent)
        worker_id = groups[shape].next(taken, closed)
        if worker_id is None:
            # Those behind must not fill the half that this one waits for, or it would wait for ever.
            closed |= groups[shape].ids
            spent.add(shape)
        else:
            kept[job.job_id] = Reservation(worker_id, job.job_id, job.thread_demand)
            taken.add(worker_id)
    return list(kept.values())


def widest_by_line(workers: Iterable[Room], found: Iterable[str] = ()) -> dict[tuple[str, str], int]:
    """The most threads any worker has, for every queue and type that is served: a job that asks for more is too wide.

    Of queues that are served by pattern, those that were `found`. What nobody serves is not too wide: it waits for someone who does.
    """
    widths = Widths(workers)
    return widths.named() | widths.of_queues(found)


class Widths:
    """The most threads any worker has, by what workers serve (a queue or a pattern) and type.

    Workers that drain or have lost threads count in full: they are about to be replaced, and narrowing cannot be undone.
    """

    def __init__(self, workers: Iterable[Room]) -> None:
        self._widest: dict[tuple[str, str], int] = {}
        for queues, types, threads in {(worker.queues, worker.types, worker.threads) for worker in workers}:
            for line in product(queues, types):
                self._widest[line] = max(threads, self._widest.get(line, 0))
        # By type: with hundreds of types and queues a look through all patterns for each line took the leader a second a tick.
        self._by_pattern: dict[str, list[tuple[str, int]]] = {}
        for (served, type_), width in self._widest.items():
            if is_pattern(served):
                self._by_pattern.setdefault(type_, []).append((served, width))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Widths) and self._widest == other._widest

    __hash__ = None  # type: ignore[assignment]

    def of(self, queue: str, type_: str) -> int:
        """0: nobody serves it."""
        widest = self._widest.get((queue, type_), 0)
        for pattern, width in self._by_pattern.get(type_, ()):
            if width > widest and queue_names.matches(pattern, queue):
                widest = width
        return widest

    def named(self) -> dict[tuple[str, str], int]:
        """The lines whose queue some worker serves by name."""
        if not self._by_pattern:
            return self._widest
        return {line: self.of(*line) for line in self._widest if not is_pattern(line[0])}

    def of_queues(self, queues: Iterable[str]) -> dict[tuple[str, str], int]:
        """The lines of these queues that some worker serves by pattern."""
        if not self._by_pattern:
            return {}
        return {line: width for line in product(queues, self._by_pattern) if (width := self.of(*line))}


class Turns:
    """Which queue a worker asks first, by weight: of any n turns each queue gets its share, give or take one.

    Of the queues that are not ahead of their share, the one whose next turn falls due first. Asking only by how far
    each is behind lets a light queue among many drop further back than one turn.
    """

    def __init__(self, weights: Mapping[str, int]) -> None:
        self._weights = dict(weights)
        self._total = sum(weights.values())
        self._turn = 0
        self._had = dict.fromkeys(weights, 0)

    def next(self) -> str | None:
        """The queue whose turn it is; None if nobody gave weights: then all are asked together, by rank."""
        if all(weight == 1 for weight in self._weights.values()):
            return None
        self._turn += 1
        not_ahead = [q for q, weight in self._weights.items() if self._had[q] * self._total < self._turn * weight]
        chosen = min(not_ahead, key=lambda q: -(-(self._had[q] + 1) * self._total // self._weights[q]))
        self._had[chosen] += 1
        if self._turn == self._total:  # all have had exactly their share
            self._turn = 0
            self._had = dict.fromkeys(self._weights, 0)
        return chosen


def _could_hold(worker: Room, job: Wide) -> bool:
    able = not worker.draining and worker.threads - worker.lost >= job.thread_demand
    return able and serves(worker, job.queue, job.type)


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

    def __init__(self, job: Wide, workers: Iterable[Room]) -> None:
        able = [worker for worker in workers if _could_hold(worker, job)]
        # Those equally soon free stay in the order given: the least recently used first.
        able.sort(key=lambda worker: max(0, job.thread_demand - (worker.threads - worker.busy)))
        self.ids = {worker.worker_id for worker in able}
        self._half = max(1, len(able) // 2)
        self._best: Iterator[UUID] = iter([worker.worker_id for worker in able])

    def next(self, taken: AbstractSet[UUID], closed: AbstractSet[UUID]) -> UUID | None:
        """The best worker that is neither; both only grow, so what was passed by need not be looked at again."""
        if len(self.ids & taken) >= self._half:
            return None
        return next((worker_id for worker_id in self._best if worker_id not in taken and worker_id not in closed), None)
