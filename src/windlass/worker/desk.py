"""The claimed jobs that wait to begin, and the threads in use: what lanes of every kind take their work from.

Jobs begin in the order they were claimed, which is rank order: one that does not fit yet holds up those behind it.
One lock, taken once per job; nothing blocks under it.
"""

import threading
from collections import deque
from collections.abc import Iterable
from enum import Enum
from typing import Final, NamedTuple

from windlass.clock import steady_s
from windlass.model import Lease
from windlass.worker.registry import JobType
from windlass.worker.run import Run
from windlass.worker.slots import Slots, State

_SAMPLE_S: Final = 0.005
_STALE_S: Final = 0.5


class Kind(Enum):
    """Where a handler runs."""

    LOOP = "loop"
    THREAD = "thread"
    PROCESS = "process"


Waiting = tuple[Lease, JobType, Kind]


class Room(NamedTuple):
    """What may be claimed now: jobs of at most `width` threads, `budget` threads of them together."""

    width: int
    budget: int
    busy: int


def kind_of(job: JobType) -> Kind:
    if job.isolation == "process":
        return Kind.PROCESS
    return Kind.LOOP if job.is_async else Kind.THREAD


class Desk:
    def __init__(self, threads: int, slots: Slots, *, buffer_s: float, ahead_max: int) -> None:
        self.threads = threads
        self.runs: dict[int, Run] = {}
        self.busy = 0
        self.lost = 0
        self._slots = slots
        self._lock = threading.Lock()
        self._waiting: deque[Waiting] = deque()
        self._waiting_threads = 0
        self._waiting_since_s = 0.0
        self._free_slots = list(range(threads - 1, -1, -1))
        self._buffer_s = buffer_s
        self._ahead_max = ahead_max
        self._pace = 0.0  # threads freed per second, of late: what begins says nothing of how soon there is room
        self._freed = 0
        self._sampled_s = steady_s()

    # Work comes in. -------------------------------------------------------------------------------------------------

    def room(self) -> Room:
        """What may be claimed: what is free, and ahead of that what will begin within `buffer_s` at the recent pace."""
        with self._lock:
            now_s = steady_s()
            if now_s - self._sampled_s >= _SAMPLE_S:
                self._pace = (self._pace + self._freed / (now_s - self._sampled_s)) / 2
                self._freed, self._sampled_s = 0, now_s
            ahead = min(int(self._pace * self._buffer_s), self._ahead_max)
            taken = self.busy + self._waiting_threads
            free = self.threads - taken
            width = max(free, 1) if ahead else free
            return Room(width, free + ahead, taken)

    def add(self, work: Iterable[Waiting]) -> None:
        with self._lock:
            if not self._waiting:
                self._waiting_since_s = steady_s()
            for one in work:
                self._waiting.append(one)
                self._waiting_threads += one[0].threads

    # Work goes out. -------------------------------------------------------------------------------------------------

    def next_kind(self) -> Kind | None:
        """The kind of lane that the next job needs, or None while it does not fit."""
        with self._lock:
            return self._waiting[0][2] if self._fits() else None

    def take(self, kind: Kind, after: Run | None = None, now_s: float | None = None) -> Run | None:
        """Begin the next job if it is of this kind and fits. `after`: that run has ended, and its threads are free."""
        with self._lock:
            if after is not None:
                self._end(after)
            if not self._waiting:
                return None
            lease, job, needed = self._waiting[0]
            threads = lease.threads
            if needed is not kind or self.busy + threads > self.threads:
                return None
            self._waiting.popleft()
            began_s = self._waiting_since_s = steady_s() if now_s is None else now_s
            self._waiting_threads -= threads
            self.busy += threads
            slot = self._free_slots.pop()
            run = self.runs[slot] = Run(lease, job, began_s, slot)
            state = State.ISOLATED if kind is Kind.PROCESS else State.BEGUN
            self._slots.begin(slot, lease.job_id, lease.attempt, began_s, run.deadline_s, state)
            return run

    def end(self, run: Run) -> None:
        with self._lock:
            self._end(run)

    def _fits(self) -> bool:
        return bool(self._waiting) and self.busy + self._waiting[0][0].threads <= self.threads

    def _end(self, run: Run) -> None:
        self._slots.end(run.slot)
        del self.runs[run.slot]
        self._free_slots.append(run.slot)
        self.busy -= run.lease.threads
        self._freed += run.lease.threads
        if run.stuck:
            self.lost -= run.lease.threads

    def give_up(self, run: Run, state: State | None) -> bool:
        """Its threads cannot be freed: they are lost until the process ends. False: it has ended after all."""
        with self._lock:
            if self.runs.get(run.slot) is not run or run.stuck:
                return False
            run.stuck = True
            self.lost += run.lease.threads
            if state is not None:
                self._slots.mark(run.slot, state)
            return True

    # Work goes back. ------------------------------------------------------------------------------------------------

    def clear(self) -> list[Lease]:
        """Everything that has not begun, to be given back."""
        with self._lock:
            leases = [one[0] for one in self._waiting]
            self._waiting.clear()
            self._waiting_threads = 0
            self._pace = 0.0
            return leases

    def stale(self) -> bool:
        """Whether jobs wait here that others could begin: the jobs before them turned out longer than those of late."""
        with self._lock:
            return bool(self._waiting) and steady_s() - self._waiting_since_s > _STALE_S

    def held(self) -> list[Lease]:
        """Every lease in hand."""
        with self._lock:
            return [run.lease for run in self.runs.values()] + [one[0] for one in self._waiting]

    def waiting(self) -> list[Lease]:
        """What has not begun."""
        with self._lock:
            return [one[0] for one in self._waiting]

    @property
    def idle(self) -> bool:
        """Whether nothing is left but what cannot be stopped."""
        with self._lock:
            return not self._waiting and all(run.stuck for run in self.runs.values())
