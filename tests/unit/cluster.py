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

from windlass.placement import Reservation, Room, Wide, fit, reserve, room

STEP_S = 0.25
RESERVE_AFTER = 8  # steps: 2 s
TICK = 4  # steps: 1 s


class SimJob(NamedTuple):
    rank: float
    id: UUID
    ready: int
    steps: int
    demand: int
    queue: str = "q"


@dataclass(slots=True)
class SimWorker:
    id: UUID
    threads: int
    queues: frozenset[str] = frozenset({"q"})
    busy: int = 0
    last_claim: float | None = None

    def seen(self) -> Room:
        return Room(self.id, self.threads, self.busy, self.queues, ("t",), self.last_claim)


class Wait(NamedTuple):
    """How long a job was passed over before it started, and how long it may at most be (steps)."""

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
    started: int = 0
    busy: int = 0
    busy_steps: int = 0
    ready: dict[tuple[str, int], list[SimJob]] = field(default_factory=lambda: defaultdict(list))
    wide: dict[UUID, SimJob] = field(default_factory=dict)
    held: dict[UUID, Reservation] = field(default_factory=dict)
    waits: list[Wait] = field(default_factory=list)
    _ends: dict[int, list[tuple[SimWorker, int]]] = field(default_factory=lambda: defaultdict(list))
    _passed: dict[UUID, tuple[int, set[UUID]]] = field(default_factory=dict)
    _top: dict[str, float] = field(default_factory=lambda: defaultdict(lambda: -math.inf))

    def step(self, arriving: Iterable[SimJob] = ()) -> None:
        for worker, threads in self._ends.pop(self.now, ()):
            worker.busy -= threads
            self.busy -= threads
        for job in arriving:
            heapq.heappush(self.ready[job.queue, job.demand], job)
            if job.demand > 1:
                self.wide[job.id] = job
        if self.reservations_on and self.now % TICK == 0:
            self._lead()
        with_room = [worker for worker in self.workers if worker.busy < worker.threads]
        self.random.shuffle(with_room)
        for worker in with_room:
            self._claim(worker)
        self.busy_steps += self.busy
        self.now += 1

    def able(self, job: SimJob) -> int:
        return sum(worker.threads >= job.demand and job.queue in worker.queues for worker in self.workers)

    def _lead(self) -> None:
        """Reserve for jobs that are old enough and have seen a job of a later rank start before them."""
        waiting = sorted(
            job
            for job in self.wide.values()
            if self.now - job.ready >= RESERVE_AFTER and job.rank < self._top[job.queue]
        )
        wanted = reserve(
            [Wide(job.id, job.queue, "t", job.demand) for job in waiting],
            [worker.seen() for worker in self.workers],
            list(self.held.values()),
        )
        self.held = {reservation.worker_id: reservation for reservation in wanted}
        self._count_rivals(waiting)

    def _count_rivals(self, waiting: list[SimJob]) -> None:
        """Who is served before a job that has no reservation yet: those ahead by rank, and those that have one."""
        served = {reservation.job_id for reservation in self.held.values()}
        ahead = set(served)
        for job in waiting:
            _, rivals = self._passed.setdefault(job.id, (self.now, set()))
            if job.id not in served:
                rivals |= ahead
            ahead.add(job.id)

    def _claim(self, worker: SimWorker) -> None:
        reservation = self.held.get(worker.id)
        free = room(worker.threads, worker.busy, reservation.threads if reservation else None)
        if free and reservation:
            job = self.wide[reservation.job_id]
            line = self.ready[job.queue, job.demand]
            line.remove(job)
            heapq.heapify(line)
            self._start(worker, job)
            free -= job.demand
        if not free:
            return
        lines = [line for (queue, demand), line in self.ready.items() if demand <= free and queue in worker.queues]
        head: list[SimJob] = []
        while sum(job.demand for job in head) < free and (lines := [line for line in lines if line]):
            head.append(heapq.heappop(min(lines)))
        fitting = fit(free, [job.demand for job in head], most=free)
        for job in head[:fitting]:
            self._start(worker, job)
        for job in head[fitting:]:
            heapq.heappush(self.ready[job.queue, job.demand], job)

    def _start(self, worker: SimWorker, job: SimJob) -> None:
        worker.busy += job.demand
        assert worker.busy <= worker.threads
        worker.last_claim = float(self.now)
        self.busy += job.demand
        self.started += 1
        self._ends[self.now + job.steps].append((worker, job.demand))
        self._top[job.queue] = max(self._top[job.queue], job.rank)
        if job.demand > 1:
            del self.wide[job.id]
            self.held = {key: held for key, held in self.held.items() if held.job_id != job.id}
            if job.id in self._passed:
                since, rivals = self._passed.pop(job.id)
                rounds = math.ceil((len(rivals) + 1) / max(1, self.able(job) // 2))
                self.waits.append(Wait(job, self.now - since, rounds * (self.longest + TICK)))
