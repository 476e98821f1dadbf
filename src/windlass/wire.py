"""What is said over HTTP, as types: the API encodes and decodes them, the client the other way round, OpenAPI is made of
them. A field that is not known is refused, so that a misspelt one is not silently ignored.
"""

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec
from msgspec import Meta, Raw, Struct

from windlass.model import (
    TooWide,
    delay_s_max,
    key_max,
    max_attempts_max,
    priority_max,
    queue_name_max,
    tag_max,
    tags_max,
    thread_demand_max,
    timeout_s_max,
    type_name_max,
)

# The end of a pattern: `$` alone lets a line end pass behind it, in Python though not in JavaScript.
END = r"$(?!\n)"
_NAME = rf"^[A-Za-z0-9_][A-Za-z0-9_.:/-]*{END}"

TypeName = Annotated[str, Meta(min_length=1, max_length=type_name_max, pattern=_NAME, examples=["email"])]
QueueName = Annotated[str, Meta(min_length=1, max_length=queue_name_max, pattern=_NAME, examples=["default"])]
Text = Annotated[str, Meta(min_length=1, max_length=type_name_max)]
Tag = Annotated[str, Meta(min_length=1, max_length=tag_max)]
Key = Annotated[str, Meta(min_length=1, max_length=key_max)]
Fingerprint = Annotated[
    str,
    Meta(min_length=1, max_length=64, description="of the error, as groups of dead letters tell it; failed jobs only"),
]
Priority = Annotated[int, Meta(ge=-priority_max, le=priority_max, description="larger runs first")]
Threads = Annotated[int, Meta(ge=1, le=thread_demand_max)]
Moment = Annotated[datetime, Meta(tz=True, description="RFC 3339, with its zone")]
StatusName = Literal["scheduled", "held", "ready", "running", "completed", "failed", "cancelled"]
Scope = Literal["submit", "read", "operate", "admin"]


class Asked(Struct, kw_only=True, forbid_unknown_fields=True):
    """The base of everything that is asked."""


class Told(Struct, kw_only=True):
    """The base of everything that is told. Clients ignore what they do not know: it may come from a newer server."""


# Jobs. --------------------------------------------------------------------------------------------------------------


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
    tags: Annotated[list[Tag], Meta(max_length=tags_max)] = []
    idempotency_key: Key | None = None
    if_too_wide: TooWide | None = None


class Stored(Told):
    """The answer to a submission. `duplicate`: it was there already, under the same id or idempotency key."""

    id: UUID
    status: StatusName
    duplicate: bool = False


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


class Fault(Told):
    """Why an attempt did not succeed."""

    type: str
    message: str
    traceback: str = ""


class Job(Told):
    """A job. `payload` and `result` are as they were given, number for number; lists leave them out."""

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
    """What an attempt wrote."""

    attempt: int
    text: str


class Logs(Told):
    logs: list[Log]


class Obstacle(Told):
    """One reason why a job does not run yet: a stable code, what it means here, and what would help."""

    code: str
    detail: str
    cure: str | None = None


class Explanation(Told):
    """Why a job is where it is. `ahead`: how many of its queue go first, as far as was counted."""

    id: UUID
    status: StatusName
    summary: str
    obstacles: list[Obstacle]
    ahead: int | None = None
    workers_able: int = 0
    workers_free: int = 0


class Reason(Asked):
    reason: Annotated[str, Meta(min_length=1, max_length=1000)] = "cancelled on request"


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
    fingerprint: Fingerprint | None = None


class Filter(Traits):
    """Which jobs. Everything given must hold."""

    status: list[StatusName] = []


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


# Dead letters. ------------------------------------------------------------------------------------------------------


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


# The cluster. -------------------------------------------------------------------------------------------------------


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


class Stats(Told):
    """Exact counts. `complete`: whether `lines` are all there are; else they are those with the most jobs."""

    total: int
    statuses: dict[str, int]
    lines: list[Line]
    complete: bool = True


class Queue(Told):
    name: str
    paused: bool
    depth: int
    oldest_age_s: float | None
    statuses: dict[str, int]


class Queues(Told):
    queues: list[Queue]
    next_cursor: str | None = None


class Worker(Told):
    id: UUID
    name: str
    status: Literal["idle", "busy", "draining", "dead"]
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


class Workers(Told):
    workers: list[Worker]
    next_cursor: str | None = None


class JobType(Told):
    """A type some worker has declared: its defaults, and the schema of its payload."""

    name: str
    queue: str
    priority: int
    thread_demand: int
    max_attempts: int
    timeout_s: float
    alive: bool
    description: str | None = None
    payload_schema: Raw | None = None


class JobTypes(Told):
    types: list[JobType]
    next_cursor: str | None = None


# Streams. -----------------------------------------------------------------------------------------------------------


class Place(Told):
    """Where a watched job is. `status` is null if there is no such job."""

    id: UUID
    status: StatusName | None


class End(Told):
    """Why a stream ends: the server shuts down, or the token it was opened with is no longer good."""

    reason: Literal["closing", "expired"]


# Who. ---------------------------------------------------------------------------------------------------------------


class Login(Asked):
    """A user's name and password, or an API key."""

    username: Text | None = None
    password: Annotated[str, Meta(min_length=1, max_length=1000)] | None = None
    api_key: Annotated[str, Meta(min_length=1, max_length=200)] | None = None
    scopes: list[Scope] | None = None


class Refresh(Asked):
    refresh_token: Annotated[str, Meta(min_length=1, max_length=4096)]


class Token(Told):
    access_token: str
    token_type: Literal["Bearer"]
    expires_in: int
    scopes: list[str]
    refresh_token: str | None = None


class Me(Told):
    subject: str
    scopes: list[str]
    expires_at: datetime | None


class NewUser(Asked):
    name: Annotated[str, Meta(min_length=1, max_length=100, pattern=rf"^[A-Za-z0-9_][A-Za-z0-9_.@-]*{END}")]
    password: Annotated[str, Meta(min_length=8, max_length=1000)]
    scopes: Annotated[list[Scope], Meta(min_length=1)]


class NewPassword(Asked):
    password: Annotated[str, Meta(min_length=8, max_length=1000)]


class NewScopes(Asked):
    scopes: Annotated[list[Scope], Meta(min_length=1)]


class User(Told):
    name: str
    scopes: list[str]
    created_at: datetime


class Users(Told):
    users: list[User]


class NewKey(Asked):
    name: Text
    scopes: Annotated[list[Scope], Meta(min_length=1)]
    ttl_s: Annotated[float, Meta(gt=0, le=delay_s_max)] | None = None


class ApiKey(Told):
    """`key` is shown once, when it is made."""

    id: UUID
    name: str
    prefix: str
    scopes: list[str]
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None
    key: str | None = None


class ApiKeys(Told):
    keys: list[ApiKey]


class AuditEntry(Told):
    id: int
    at: datetime
    actor: str
    action: str
    target: str | None
    detail: Raw | None
    request_id: str | None


class Audit(Told):
    entries: list[AuditEntry]
    next_cursor: str | None = None


# What went wrong. ---------------------------------------------------------------------------------------------------


class Problem(Told, omit_defaults=True):
    """RFC 9457. `code` is stable; `field` is the path of what is wrong."""

    type: str
    title: str
    status: int
    code: str
    detail: str
    instance: str | None = None
    request_id: str | None = None
    field: str | None = None
    errors: list[Refused] = []


def encode(told: Told) -> bytes:
    return _encoder.encode(told)


def encode_any(value: Any) -> bytes:
    """Any JSON value with something told in it: a bare list, say."""
    return _encoder.encode(value)


_encoder = msgspec.json.Encoder()
