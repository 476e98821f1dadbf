"""The cluster, and the stream of its states."""

from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

from msgspec import Meta, Raw

from windlass.model import IsolationMode, ThreadState, TooWide, type_name_max
from windlass.wire.base import (
    Asked,
    StatusName,
    Told,
)
from windlass.wire.jobs import Retry

WorkerStatus = Literal["idle", "busy", "draining", "stopped", "dead"]


class Page(Asked):
    """Which part of a list that is sorted by name. `cursor`: the next_cursor of the part before."""

    limit: Annotated[int, Meta(ge=1, le=1000)] = 1000
    cursor: Annotated[str, Meta(min_length=1, max_length=type_name_max)] | None = None


class Line(Told):
    """How many jobs of a queue and type are in a status."""

    queue: str
    type: str
    status: StatusName
    count: int


class DeadLetterTotals(Told):
    """How many jobs have failed for good, since when the oldest of them has, and about how many bytes they take on disk.
    `retention_days`: after so many days they are removed; null: they are kept for ever."""

    count: int
    oldest_at: datetime | None
    approximate_bytes: int
    retention_days: int | None


class Stats(Told):
    """Exact counts. `complete`: whether `lines` are all there are; else they are those with the most jobs.
    `needs_decision`: how many of the held jobs wait for a person to decide. It and `dead_letters` are null in the stream of
    events."""

    total: int
    statuses: dict[str, int]
    lines: list[Line]
    complete: bool = True
    dead_letters: DeadLetterTotals | None = None
    needs_decision: int | None = None


class Queue(Told):
    """A queue that has jobs or settings. `served_by`: how many living workers claim from it."""

    name: str
    paused: bool
    depth: int
    oldest_age_s: float | None
    statuses: dict[str, int]
    served_by: int = 0


class Queues(Told):
    queues: list[Queue]
    next_cursor: str | None = None


class Worker(Told):
    """One worker process. `stopped`: it left as it was told to; `dead`: it crashed, was killed, or lost its lease. `jobs`: those it
    has claimed; `claimed` of them have not begun, and hold no thread yet. `version`: of Windlass. `memory_bytes`: of its process
    at the last heartbeat, without the processes of isolated jobs."""

    id: UUID
    name: str
    status: WorkerStatus
    threads: int
    busy_threads: int
    lost_threads: int
    jobs: int
    queues: list[str]
    types: list[str]
    supervisor_id: UUID | None
    started_at: datetime
    renewed_at: datetime
    died_at: datetime | None
    reserved_for: UUID | None
    claimed: int = 0
    version: str | None = None
    memory_bytes: int | None = None


class Workers(Told):
    workers: list[Worker]
    next_cursor: str | None = None


class ThreadUse(Told):
    """A job and how many threads it holds. `isolated`: it runs in a process of its own. `stuck`: it was to stop, and its handler
    does not."""

    job_id: UUID
    type: str
    name: str | None
    threads: int
    state: ThreadState
    started_at: datetime


class WorkerThreads(Told):
    """What a living worker runs, in the order in which it was claimed. `claimed`: how many more jobs it has claimed and not
    begun."""

    id: UUID
    claimed: int
    memory_bytes: int | None
    running: list[ThreadUse]


class ThreadMap(Told):
    workers: list[WorkerThreads]


class JobType(Told):
    """A type some worker has declared: what its jobs have where they say nothing else, in full, and the schema of its payload.
    `alive`: some living worker knows it. `served_by`: how many living workers know it and claim from its queue. `versions`: how
    many different declarations of it living workers have; two during a deploy."""

    name: str
    queue: str
    priority: int
    thread_demand: int
    max_attempts: int
    timeout_s: float
    retry: Retry
    tags: list[str]
    if_too_wide: TooWide
    isolation: IsolationMode
    at_most_once: bool
    alive: bool
    versions: int = 0
    served_by: int = 0
    description: str | None = None
    payload_schema: Raw | None = None


class JobTypes(Told):
    types: list[JobType]
    next_cursor: str | None = None


class Place(Told):
    """Where a watched job is. `status` is null if there is no such job."""

    id: UUID
    status: StatusName | None


class End(Told):
    """Why a stream ends: the server shuts down, or the token it was opened with is no longer good."""

    reason: Literal["closing", "expired"]
