"""Jobs: submitted, looked at, acted on."""

from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

import msgspec
from msgspec import Meta, Raw

from windlass.model import (
    Decision,
    TooWide,
    delay_s_max,
    key_max,
    max_attempts_max,
    tags_max,
    timeout_s_max,
)
from windlass.wire.base import (
    Asked,
    Fingerprint,
    Key,
    Moment,
    Priority,
    QueueName,
    StatusFilter,
    StatusName,
    Tag,
    Text,
    Threads,
    Told,
    TypeName,
)


class Retry(Asked):
    """How long a failed job waits: base_s × factor^(failures − 1), at most cap_s, then ± jitter of that."""

    base_s: Annotated[float, Meta(ge=0, le=delay_s_max)] = 1.0
    factor: Annotated[float, Meta(ge=1, le=100)] = 2.0
    cap_s: Annotated[float, Meta(ge=0, le=delay_s_max)] = 600.0
    jitter: Annotated[float, Meta(ge=0, le=1)] = 0.2


class Submission(Asked):
    """A job to be stored. What is left out is as its type declares it."""

    type: TypeName
    payload: Any = None
    id: UUID | None = None
    name: Text | None = None
    queue: QueueName | None = None
    priority: Priority | None = None
    thread_demand: Threads | None = None
    scheduled_at: Moment | None = None
    delay_s: Annotated[float, Meta(ge=0, le=delay_s_max)] | None = None
    max_attempts: Annotated[int, Meta(ge=1, le=max_attempts_max)] | None = None
    timeout_s: Annotated[float, Meta(ge=0.001, le=timeout_s_max)] | None = None
    retry: Retry | None = None
    tags: Annotated[list[Tag], Meta(max_length=tags_max)] = msgspec.field(default_factory=list)
    idempotency_key: Key | None = None
    if_too_wide: TooWide | None = None


class Stored(Told):
    """The answer to a submission. `duplicate`: it was there already, under the same id or idempotency key.
    `payload_checked`: its payload fits what the workers of its type declare; false: that is not known yet."""

    id: UUID
    status: StatusName
    duplicate: bool = False
    payload_checked: bool = False


class Refused(Told):
    """Why one job of many was not stored, or not acted on."""

    code: str
    detail: str
    index: int | None = None
    id: UUID | None = None
    field: str | None = None


class StoredMany(Told):
    """The answer to a bulk submission: all are stored, or none."""

    ids: list[UUID]
    duplicates: int = 0
    payloads_unchecked: int = 0


class Fault(Told):
    """Why an attempt did not succeed."""

    type: str
    message: str
    traceback: str = ""


class Job(Told):
    """A job. `payload` and `result` are as they were given, number for number; lists leave them out. `started_at` and
    `error` are those of the last attempt; while a job waits to be tried again, `next_try_at` says from when on.
    `expires_at`: when a failed job is removed; null: never."""

    id: UUID
    type: str
    status: StatusName
    reason: str | None
    name: str | None
    queue: str
    priority: int
    thread_demand: int
    threads_granted: int | None
    attempts: int
    failures: int
    max_attempts: int
    timeout_s: float
    retry: Retry | None
    if_too_wide: TooWide
    tags: list[str]
    idempotency_key: str | None
    created_at: datetime
    updated_at: datetime
    scheduled_at: datetime | None
    ready_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    queue_s: float | None
    execution_s: float | None
    total_s: float | None
    worker_id: UUID | None
    cancel_requested: bool
    progress: float | None
    progress_note: str | None
    error: Fault | None
    next_try_at: datetime | None = None
    expires_at: datetime | None = None
    payload: Raw | None = None
    result: Raw | None = None


class Jobs(Told):
    """A page, newest first. `next_cursor` is null on the last one."""

    jobs: list[Job]
    next_cursor: str | None = None


class Attempt(Told):
    """One attempt that has ended."""

    attempt: int
    status: str
    worker_id: UUID | None
    started_at: datetime | None
    ended_at: datetime
    error: Fault | None


class Attempts(Told):
    attempts: list[Attempt]


class Log(Told):
    """What an attempt wrote. `running`: it goes on, and this is what it has written so far."""

    attempt: int
    text: str
    running: bool = False


class Logs(Told):
    logs: list[Log]


class Obstacle(Told):
    """One reason why a job does not run yet: a stable code, what it means here, and what would help."""

    code: str
    detail: str
    cure: str | None = None


class QuotaUse(Told):
    """A quota, and what counts against it; null where nothing is counted."""

    quota: str
    limit: float
    current: float | None


class SubmitterUse(Told):
    """A user, API key or other subject, and its quotas."""

    subject: str
    quotas: list[QuotaUse]


class Explanation(Told):
    """Why a job is where it is. `ahead`: how many of its queue go first, as far as was counted. `submitter`: whose
    quotas an unfinished job counts against."""

    id: UUID
    status: StatusName
    summary: str
    obstacles: list[Obstacle]
    ahead: int | None = None
    workers_able: int = 0
    workers_free: int = 0
    submitter: SubmitterUse | None = None


class Reason(Asked):
    reason: Annotated[str, Meta(min_length=1, max_length=1000)] = "cancelled on request"


class DiscardReason(Asked):
    reason: Annotated[str, Meta(min_length=1, max_length=1000)] = "discarded on request"


class Decide(Asked):
    """Whether an effect that may have happened has happened. `effect`: its key, where several wait."""

    decision: Decision
    effect: Annotated[str, Meta(min_length=1, max_length=key_max)] | None = None


class Moved(Told):
    """Where a job is after an action. `running` after a cancel: its worker was asked to stop it."""

    id: UUID
    status: StatusName


class Traits(Asked):
    """What jobs are like. Everything given must hold."""

    type: TypeName | None = None
    queue: QueueName | None = None
    tag: Tag | None = None
    created_after: Moment | None = None
    created_before: Moment | None = None
    finished_after: Moment | None = None
    finished_before: Moment | None = None
    fingerprint: Fingerprint | None = None
    worker: (
        Annotated[
            str, Meta(min_length=1, max_length=200, description="the name of the worker that runs or finished them")
        ]
        | None
    ) = None
    text: (
        Annotated[
            str,
            Meta(min_length=1, max_length=200, description="in the name or the error, or the beginning of the id"),
        ]
        | None
    ) = None


class Filter(Traits):
    """Which jobs. Everything given must hold."""

    status: list[StatusFilter] = msgspec.field(default_factory=list)
    reason: Annotated[str, Meta(min_length=1, max_length=200, description="what held jobs wait for")] | None = None


class BulkAction(Asked):
    """What is done to many jobs: those named, or those a filter finds. `preview`: nothing is done, only counted."""

    ids: Annotated[list[UUID], Meta(max_length=10_000)] | None = None
    filter: Filter | None = None
    preview: bool = False
    limit: Annotated[int, Meta(ge=1, le=10_000)] = 10_000
    cursor: str | None = None
    reason: Annotated[str, Meta(min_length=1, max_length=1000)] | None = None


class BulkResult(Told):
    """What was done. `matched`: how many the filter found in this call; `next_cursor`: there may be more."""

    matched: int
    done: int
    preview: bool
    refused: list[Refused]
    sample: list[UUID]
    next_cursor: str | None = None


class DeadLetterGroup(Told):
    """Failed jobs with the same kind of error, newest first among those looked at."""

    type: str
    error_type: str
    message: str
    fingerprint: str | None
    count: int
    first_at: datetime
    last_at: datetime
    sample: list[UUID]


class DeadLetterGroups(Told):
    """`complete`: false if there are more failed jobs than were looked at."""

    groups: list[DeadLetterGroup]
    jobs: int
    complete: bool
