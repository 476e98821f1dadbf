"""What people look at, and how they ask for it."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol
from uuid import UUID

from windlass.explanation import Explanation
from windlass.model import (
    Attempt,
    Job,
    KnownType,
    Line,
    Queue,
    Status,
    ThreadState,
    Worker,
)


@dataclass(frozen=True, slots=True)
class JobQuery:
    """What to list. No statuses means all. Times are those in the jobs' ids; `created_after` is included, the other not.
    `fingerprint`: of the error, for failed jobs alone. `reason`: what held jobs wait for; no others are listed.
    `bodies_max`: larger payloads and results, in bytes, are left out; None: all are read, and a page of them can be hundreds
    of megabytes. `worker`: the name of the worker that runs them or finished them. `text`: a part of the name, of the error's
    type or message, or the beginning of the id. `finished_after` is included, `finished_before` not."""

    statuses: Collection[Status] = ()
    type: str | None = None
    queue: str | None = None
    tag: str | None = None
    created_after: datetime | None = None
    created_before: datetime | None = None
    cursor: str | None = None
    limit: int = 50
    fingerprint: str | None = None
    bodies_max: int | None = None
    reason: str | None = None
    worker: str | None = None
    text: str | None = None
    finished_after: datetime | None = None
    finished_before: datetime | None = None


@dataclass(frozen=True, slots=True)
class Page:
    """Jobs, newest first. `next_cursor` is None at the end; a page may be short and still have one."""

    jobs: Sequence[Job]
    next_cursor: str | None


@dataclass(frozen=True, slots=True)
class Found:
    """Ids, newest first. `next_cursor` as that of a Page."""

    ids: Sequence[UUID]
    next_cursor: str | None


@dataclass(frozen=True, slots=True)
class ClusterState:
    """What the database says of the cluster. `leader`: the supervisor that holds the term; None: nobody does."""

    postgres: str
    connections: int
    connections_max: int
    leader: UUID | None
    term: int
    workers: int
    threads: int


@dataclass(slots=True)
class Points:
    """One line of a chart: a number for each step. `waited` and `ran` are histograms; empty where they were not asked for."""

    completed: list[int]
    failed: list[int]
    cancelled: list[int]
    retried: list[int]
    waited: list[list[int]]
    ran: list[list[int]]


@dataclass(frozen=True, slots=True)
class SeriesData:
    """Points from `start` on, one every `step_s` seconds, the last one not over yet; by name, or all under None."""

    start: datetime
    step_s: int
    count: int
    points: Mapping[str | None, Points]


@dataclass(frozen=True, slots=True)
class DeadLetterGroup:
    """Failed jobs with the same kind of error. `message` is that of the newest; `sample`: the newest few."""

    type: str
    error_type: str
    message: str
    fingerprint: str | None
    count: int
    first_at: datetime
    last_at: datetime
    sample: Sequence[UUID]


@dataclass(frozen=True, slots=True)
class DeadLetterGroups:
    """The largest group first. `jobs`: how many were looked at; `complete`: whether those are all there are."""

    groups: Sequence[DeadLetterGroup]
    jobs: int
    complete: bool


@dataclass(frozen=True, slots=True)
class RunningLog:
    """What an attempt under way has written so far."""

    attempt: int
    text: str


@dataclass(frozen=True, slots=True)
class DeadLetterSize:
    """How much failed jobs take. `bytes_per_job` is an average of the newest ones; `retention_days` 0: kept for ever."""

    oldest_at: datetime | None
    bytes_per_job: float
    retention_days: int


@dataclass(frozen=True, slots=True)
class Summary:
    """Exact numbers of jobs: by status, all of them; and the largest by queue, type and status, up to a number of
    lines."""

    statuses: Mapping[Status, int]
    lines: Mapping[Line, int]


@dataclass(frozen=True, slots=True)
class ThreadUse:
    """A job and the threads of its worker that it holds. `isolated`: in a process of its own. `stuck`: its handler does not stop."""

    job_id: UUID
    type: str
    name: str | None
    threads: int
    state: ThreadState
    started_at: datetime


@dataclass(frozen=True, slots=True)
class WorkerThreads:
    """What a living worker runs, in the order in which it claimed it. `claimed`: how many more jobs it has claimed and not begun."""

    id: UUID
    claimed: int
    memory_bytes: int | None
    running: list[ThreadUse]


@dataclass(frozen=True, slots=True)
class Check:
    """What must never be seen: jobs in no table, in two, keys without a job, counts that differ from the rows."""

    nowhere: int
    twice: int
    homeless: int
    miscounted: int

    @property
    def clean(self) -> bool:
        return self.nowhere == self.twice == self.homeless == self.miscounted == 0


class Views(Protocol):
    """What people look at. Reads only, but for the note that somebody follows a log."""

    async def job(self, job_id: UUID) -> Job:
        """One job wherever it is. Raises JobNotFound."""

    async def attempts(self, job_id: UUID, *, limit: int | None = None) -> list[Attempt]:
        """The attempts of a job that have ended, oldest first; of more than `limit`, the newest."""

    async def follow_log(self, job_id: UUID) -> RunningLog | None:
        """What the running attempt has written so far; its worker is asked to show it for the next seconds. None: nothing
        yet. Call it about once a second for as long as somebody looks."""

    async def jobs(self, query: JobQuery | None = None) -> Page:
        """One page of a list."""

    async def ids(self, query: JobQuery, *, limit: int = ...) -> Found:
        """What a list would show, as ids alone: up to 10,000, for actions on many. `query.limit` is not looked at."""

    async def places(self, job_ids: Collection[UUID]) -> dict[UUID, Status]:
        """Where jobs are, as they are shown; those that are nowhere are left out. Cheap: for those who watch."""

    async def explain(self, job_id: UUID) -> Explanation:
        """Why a job is where it is, and what would help. Raises JobNotFound."""

    async def dead_letter_groups(
        self,
        *,
        type: str | None = ...,  # noqa: A002, as the job's field
        queue: str | None = ...,
        looked_at: int = ...,
    ) -> DeadLetterGroups:
        """The newest failed jobs, by type and kind of error."""

    async def count_undecided(self) -> int:
        """How many jobs wait for a person to decide."""

    async def dead_letter_size(self) -> DeadLetterSize:
        """The age of the oldest failed job, and what the newest ones take on disk."""

    async def types(self) -> list[KnownType]:
        """Every declared type that is not forgotten, by name."""

    async def is_key_taken(self, namespace: str | None, key: str) -> bool:
        """Whether the idempotency key belongs to a job, in this namespace."""

    async def counts(self) -> dict[tuple[str, str, Status], int]:
        """Exact numbers of jobs by queue, type and status, whatever their number."""

    async def summary(self, *, lines: int) -> Summary:
        """The exact numbers of jobs by status, and the largest by queue, type and status. Cheap: for those who
        watch."""

    async def queues(self, *, after: str = ..., limit: int | None = ...) -> list[Queue]:
        """Queues that have jobs or settings, by name: those behind `after`, up to `limit`. None: all."""

    async def queue(self, name: str) -> Queue:
        """One queue, whether it has jobs and settings or not."""

    async def workers(self) -> list[Worker]:
        """Every worker, the living first, then the dead that are not forgotten yet."""

    async def worker(self, worker_id: UUID) -> Worker:
        """One worker. Raises WorkerNotFound."""

    async def thread_map(self) -> list[WorkerThreads]:
        """Which jobs hold the threads of living workers: of the 200 oldest workers, and 4,096 jobs at most. A worker whose jobs
        are beyond that is left out, or shown with some of them."""

    async def ready(self) -> None:
        """Reach the database, and find its schema as this code needs it. Raises Unavailable, SchemaMismatch."""

    async def series(
        self, *, span_s: float, by: str | None = ..., queue: str | None = ..., type_: str | None = ...
    ) -> SeriesData:
        """What has happened in the newest `span_s` seconds; with `by`, a line for each queue or type."""

    async def cluster_state(self) -> ClusterState:
        """What the database says of the cluster: its own version and connections, the leader, the living workers."""

    async def check(self) -> Check:
        """Look for what must never be seen. Reads everything."""
