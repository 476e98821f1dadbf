"""What the reference (reference.py) remembers: jobs, workers, and the records of attempts."""

from dataclasses import dataclass, field
from typing import Final, NamedTuple
from uuid import UUID

from windlass.lifecycle import TRANSITIONS, Settlement
from windlass.model import FINISHED, Lease, NewJob, NewWorker, Status

SECOND: Final = 1_000_000
HEAD_START: Final = 60 * SECOND
DAY: Final = 86_400 * SECOND


class Record(NamedTuple):
    """One attempt that ended, or an outcome without one (cancelled while it waited: no worker)."""

    attempt: int
    ended: str
    ended_at: int
    worker_id: UUID | None = None
    token: UUID | None = None
    settlement: Settlement | None = None

    def could_be(self, s: Settlement) -> bool:
        """Whether this is what the settlement would have left, as far as anyone can tell."""
        ends = {s.status if s.status in FINISHED else s.ended, None if s.status is Status.COMPLETED else "cancelled"}
        mine = (self.attempt, self.token) == (s.attempt, s.token) and self.ended in ends
        return mine and self.settlement is not None and self.settlement.fingerprint == s.fingerprint


class Seen(NamedTuple):
    """A job as the tables show it. Only running jobs have a lease and a request to cancel; finished ones no rank."""

    status: Status
    rank: int | None
    ready_at: int
    attempt: int
    failures: int
    suspect: bool | None
    demand: int | None
    crashes: int | None
    worker_id: UUID | None
    token: UUID | None
    cancel_requested: bool


@dataclass
class RefJob:
    id: UUID
    body: NewJob
    status: Status
    rank: int
    ready_at: int
    demand: int
    reason: str | None = None
    attempt: int = 0
    failures: int = 0
    suspect: bool = False
    crashed_at: list[int] = field(default_factory=list)
    lease: Lease | None = None
    claimed_at: int = 0
    cancel_requested: bool = False
    outcome: Record | None = None
    records: list[Record] = field(default_factory=list)

    def move(self, target: Status) -> None:
        assert target in TRANSITIONS[self.status], f"{self.status} -> {target}"
        self.status, self.reason = target, None

    def seen(self) -> Seen:
        if self.outcome is not None:
            record = self.outcome
            return Seen(self.status, None, self.ready_at, self.attempt, self.failures, None, None, None,
                        record.worker_id, record.token, cancel_requested=False)  # fmt: skip
        worker_id, token = (self.lease.worker_id, self.lease.token) if self.lease else (None, None)
        return Seen(self.status, self.rank, self.ready_at, self.attempt, self.failures, self.suspect, self.demand,
                    len(self.crashed_at), worker_id, token, self.cancel_requested)  # fmt: skip

    def finish(self, status: Status, record: Record) -> None:
        self.move(status)
        self.lease, self.cancel_requested, self.outcome = None, False, record

    def wait_until(self, moment: int) -> None:
        """A later moment ready is a later rank by as much: the priority's head start stays."""
        self.rank += moment - self.ready_at
        self.ready_at = moment


@dataclass
class RefWorker:
    new: NewWorker
    lease_until: int
    renewed_at: int
    died_at: int | None = None
    cause: str | None = None
    draining: bool = False
