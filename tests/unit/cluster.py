"""A cluster in discrete time, driven only by windlass.placement: what the claim statement and the leader would do.

One step is STEP_S of simulated time. In each: jobs that are over free their threads, new jobs become ready, once a
tick the leader reserves, and every worker with room claims, in random (seeded) order, lowest rank first.
"""

import heapq
import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple
from uuid import UUID

from windlass.placement import Reservation, Room, Shape, Wide, early, fit, passed_over, reserve, room

STEP_S = 0.25
RESERVE_AFTER = 8  # steps: 2 s
TICK = 2  # steps: 0.5 s


class SimJob(NamedTuple):
    rank: float
    id: UUID
    ready: int
    steps: int
    demand: int
    queue: str = "q"
    type: str = "t"

    @property
    def shape(self) -> Shape:
        return self.queue, self.type, self.demand


@dataclass(slots=True)
class SimWorker:
    id: UUID
    threads: int
    queues: frozenset[str] = frozenset({"q"})
    types: frozenset[str] = frozenset({"t"})
    busy: int = 0
    last_claim: float | None = None
    runs: dict[UUID, tuple[int, float]] = field(default_factory=dict)  # when each job began, and its rank

    def seen(self, now: int) -> Room:
        latest = max((rank for began, rank in self.runs.values() if now - began <= RESERVE_AFTER), default=None)
        return Room(self.id, self.threads, self.busy, self.queues, self.types, self.last_claim, latest)

    def serves(self, shape: Shape) -> bool:
        return shape[0] in self.queues and shape[1] in self.types


class Wait(NamedTuple):
    """For how long a job that had waited RESERVE_AFTER was passed over, and for how long it may at most be (steps)."""

    job: SimJob
    waited: int
    most: int


@dataclass
class Cluster:
    workers: list[SimWorker]
    random: Random
    longest: int
    reservations_on: bool = True
    now: int = 0
    busy: int = 0
    wanted: int = 0  # threads that the waiting jobs ask for
    busy_steps: int = 0  # thread steps used while there was a backlog, and how many there were
    backlog_steps: int = 0
    ready: dict[Shape, list[SimJob]] = field(default_factory=lambda: defaultdict(list))
    wide: dict[UUID, SimJob] = field(default_factory=dict)
    held: dict[UUID, Reservation] = field(default_factory=dict)
    waits: list[Wait] = field(default_factory=list)
    starts: list[tuple[int, SimJob]] = field(default_factory=list)  # in order, with the step
    _holds: dict[UUID, UUID] = field(default_factory=dict)  # worker by job
    _ends: dict[int, list[tuple[SimWorker, SimJob]]] = field(default_factory=lambda: defaultdict(list))
    _passed: dict[UUID, tuple[int, set[UUID]]] = field(default_factory=dict)
    _early: set[UUID] = field(default_factory=set)
    _able: dict[Shape, int] = field(default_factory=dict)

    @property
    def threads(self) -> int:
        return sum(worker.threads for worker in self.workers)

    @property
    def started(self) -> int:
        return len(self.starts)

    def step(self, arriving: Iterable[SimJob] = ()) -> None:
        for worker, job in self._ends.pop(self.now, ()):
            worker.busy -= job.demand
            del worker.runs[job.id]
            self.busy -= job.demand
        for job in arriving:
            heapq.heappush(self.ready[job.shape], job)
            self.wanted += job.demand
            if job.demand > 1:
                self.wide[job.id] = job
        backlog = self.wanted >= self.threads
        if self.reservations_on and self.now % TICK == 0:
            self._lead()
        with_room = [worker for worker in self.workers if worker.busy < worker.threads]
        self.random.shuffle(with_room)
        for worker in with_room:
            self._claim(worker)
        if backlog:
            self.busy_steps += self.busy
            self.backlog_steps += self.threads
        self.now += 1

    def able(self, shape: Shape) -> int:
        if shape not in self._able:
            self._able[shape] = sum(worker.threads >= shape[2] and worker.serves(shape) for worker in self.workers)
        return self._able[shape]

    def _lead(self) -> None:
        """Reserve, until they start, for those that have waited and were passed over, and for the first of the others."""
        rooms = [worker.seen(self.now) for worker in self.workers]
        line = sorted(job for job in self.wide.values() if self.now - job.ready >= RESERVE_AFTER)
        waiting = [_wide(job) for job in line]
        known = {job.job_id for job in passed_over(waiting, rooms)} | (set(self._passed) - self._early)
        self._early = early(waiting, rooms, known, self._early)
        due = [job for job in line if job.id in known | self._early]
        wanted = reserve([_wide(job) for job in due], rooms, list(self.held.values()))
        self.held = {reservation.worker_id: reservation for reservation in wanted}
        self._holds = {reservation.job_id: reservation.worker_id for reservation in wanted}
        self._count_rivals(due)

    def _count_rivals(self, due: list[SimJob]) -> None:
        """Who is served before a job that has no reservation yet: those ahead by rank, and those that have one."""
        ahead = set(self._holds)
        for job in due:
            # It may have been passed over any time since the last tick.
            _, rivals = self._passed.setdefault(job.id, (self.now - TICK, set()))
            if job.id not in self._holds:
                rivals |= ahead
            ahead.add(job.id)

    def _claim(self, worker: SimWorker) -> None:
        reservation = self.held.get(worker.id)
        free = room(worker.threads, worker.busy, reservation.threads if reservation else None)
        if free and reservation:
            job = self.wide[reservation.job_id]
            line = self.ready[job.shape]
            line.remove(job)
            heapq.heapify(line)
            self._start(worker, job)
            free -= job.demand
        if not free:
            return
        lines = [line for shape, line in self.ready.items() if line and shape[2] <= free and worker.serves(shape)]
        head: list[SimJob] = []
        while sum(job.demand for job in head) < free and lines:
            line = min(lines)
            head.append(heapq.heappop(line))
            if not line:
                lines.remove(line)
        fitting = fit(free, [job.demand for job in head], most=free)
        for job in head[:fitting]:
            self._start(worker, job)
        for job in head[fitting:]:
            heapq.heappush(self.ready[job.shape], job)

    def _start(self, worker: SimWorker, job: SimJob) -> None:
        worker.busy += job.demand
        assert worker.busy <= worker.threads
        worker.last_claim = float(self.now)
        worker.runs[job.id] = (self.now, job.rank)
        self.busy += job.demand
        self.wanted -= job.demand
        self.starts.append((self.now, job))
        self._ends[self.now + job.steps].append((worker, job))
        if job.demand > 1:
            del self.wide[job.id]
            self.held.pop(self._holds.pop(job.id, job.id), None)
            if job.id in self._passed:
                since, rivals = self._passed.pop(job.id)
                rounds = math.ceil((len(rivals) + 1) / max(1, self.able(job.shape) // 2))
                most = TICK + rounds * (self.longest + TICK)
                self.waits.append(Wait(job, self.now - since, most))


def _wide(job: SimJob) -> Wide:
    return Wide(job.id, job.queue, job.type, job.demand, job.rank)
