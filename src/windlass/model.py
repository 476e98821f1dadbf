"""The values that travel: what is asked (NewJob), what is held (Lease), what people see (Job, Worker, Queue).

Frozen, no behaviour beyond predicates and checks. NewJob, Lease and Settlement (lifecycle.py) are named tuples
because the hot path makes one per job: a frozen dataclass costs five times as much to build.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from typing import Any, Final, Literal, NamedTuple
from uuid import UUID

from windlass.errors import InvalidId, InvalidJob
from windlass.queue_names import check_served


class Status(StrEnum):
    """Where a job is. The first four are tables a job's key can sit in; the last three are kinds of outcome."""

    SCHEDULED = "scheduled"
    HELD = "held"
    READY = "ready"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


NameKind = Literal["queue", "type", "tag"]  # what submitters can make by naming it
Line = tuple[str, str, Status]  # queue, type and status: what jobs are counted by


PENDING: Final = frozenset({Status.SCHEDULED, Status.HELD, Status.READY})
FINISHED: Final = frozenset({Status.COMPLETED, Status.FAILED, Status.CANCELLED})
UNFINISHED: Final = frozenset(Status) - FINISHED


def statuses_named(names: Iterable[str]) -> list[Status]:
    """The statuses that a filter names, each once, in the order of a job's life; `pending`: those that wait."""
    named = set(names)
    return [status for status in Status if status in named or ("pending" in named and status in PENDING)]


# Why jobs are held. The first is resolved by a person (`windlass jobs decide`), the second by the leader.
needs_decision: Final = "needs decision"
unknown_type: Final = "unknown type"
needs_newer_worker: Final = "needs newer worker"
reason_chars_max: Final = 200


def newer_worker_reason(fields: Sequence[str]) -> str:
    """Why a job waits whose payload has fields that its worker does not know. Whole names only: the leader looks for a
    version that knows each of them."""
    reason = f"{needs_newer_worker}: {fields[0]}"
    for field in fields[1:]:
        if len(reason) + len(field) + 2 > reason_chars_max:
            break
        reason += f", {field}"
    return reason


# Keys of effects that begin so are ours. A job that is started once at most has its start recorded under the second.
reserved_prefix: Final = "windlass:"
start_key: Final = "windlass:start"

type_name_max: Final = 200
queue_name_max: Final = 100
tags_max: Final = 20
tag_max: Final = 100
key_max: Final = 255
priority_max: Final = 100
thread_demand_max: Final = 1024
max_attempts_max: Final = 1000
timeout_s_max: Final = 30 * 86_400.0
delay_s_max: Final = 3650 * 86_400.0
description_max: Final = 4_000
memory_limit_mb_max: Final = 1_048_576


class RetryPolicy(NamedTuple):
    """How long a failed job waits: base_s × factor^(failures − 1), at most cap_s, then ± jitter of that."""

    base_s: float = 1.0
    factor: float = 2.0
    cap_s: float = 600.0
    jitter: float = 0.2


TooWide = Literal["narrow", "wait", "fail"]
IfUnknown = Literal["repeat", "skip", "ask"]  # what to do about an effect that may have happened
Decision = Literal["done", "redo"]  # what a person says of one
Leave = Literal["drain", "stop"]  # how a worker is asked to go: when its jobs are done, or at once
IsolationMode = Literal["none", "process"]
ThreadState = Literal["running", "isolated", "stuck"]  # of a job that holds threads


class Owner(NamedTuple):
    """Who submits a job through the API. Idempotency keys and ids belong to `namespace`; None: that of the
    application, as without an owner. `subject`: whose quota counts the job; None: nobody's."""

    namespace: str | None = None
    subject: str | None = None


_NAMESPACE_END: Final = "\x1f"  # in no key: check_text refuses control characters


def scoped_key(namespace: str | None, key: str) -> str:
    """An idempotency key as it is stored and cached: another one in each namespace."""
    return key if namespace is None else f"{namespace}{_NAMESPACE_END}{key}"


class NewJob(NamedTuple):
    """What a caller submits. `payload` is any JSON value; larger `priority` runs first.

    `id`: a UUIDv7 the caller made, so that a submission whose answer was lost can be repeated without doubling.
    `scheduled_at` (aware) or `delay_s`: not before that. `idempotency_key`: same key and body give the first job.
    `inherited`: the fields of `declarable` that nobody said, and that are as the type declares them just now: with
    another default, as after a deployment, a repeated submission is still the same one. `owner`: None for the
    application itself.
    """

    type: str
    payload: Any = None
    id: UUID | None = None
    name: str | None = None
    queue: str = "default"
    priority: int = 0
    thread_demand: int = 1
    scheduled_at: datetime | None = None
    delay_s: float | None = None
    max_attempts: int = 3
    timeout_s: float = 3600.0
    retry: RetryPolicy | None = None
    tags: Sequence[str] = ()
    idempotency_key: str | None = None
    if_too_wide: TooWide = "narrow"
    trace: str | None = None
    inherited: frozenset[str] = frozenset()
    owner: Owner | None = None

    @property
    def scoped_key(self) -> str | None:
        """Its idempotency key as it is stored; None: it has none."""
        key = self.idempotency_key
        return key if key is None or self.owner is None else scoped_key(self.owner.namespace, key)

    def is_later(self, now: datetime) -> bool:
        """Whether it is for later, by the caller's clock: enough for a hint or a first answer; the database decides."""
        return bool(self.delay_s) if self.scheduled_at is None else self.scheduled_at > now


declarable: Final = frozenset(
    ("queue", "priority", "thread_demand", "max_attempts", "timeout_s", "retry", "tags", "if_too_wide")
)


class Enqueued(NamedTuple):
    """The answer to one NewJob. `duplicate`: the job was there already, under this id or idempotency key.
    `woken`: the same commit has woken a worker for it. `created_at`: of a new job, by the database; None where it is not known."""

    id: UUID
    duplicate: bool
    woken: bool = False
    created_at: datetime | None = None


class Want(NamedTuple):
    """Jobs that have become ready: `count` of one queue, type and width. Workers are woken for them."""

    queue: str
    type: str
    threads: int = 1
    count: int = 1  # type: ignore[assignment]  # nobody counts the fields


class Error(NamedTuple):
    """Why an attempt did not succeed: the kind of error, its message, and where."""

    type: str
    message: str
    traceback: str = ""


class Lease(NamedTuple):
    """The right to run one attempt, proved by `token`. Every later write about this attempt names it."""

    job_id: UUID
    attempt: int
    token: UUID
    worker_id: UUID
    type: str
    queue: str
    threads: int
    rank: int
    failures: int
    suspect: bool
    crashes: int
    max_attempts: int
    timeout_s: float
    retry: str | None
    payload: str
    name: str | None
    priority: int
    thread_demand: int
    tags: Sequence[str] | None
    idempotency_key: str | None
    trace: str | None
    waited_s: float

    @property
    def claim(self) -> tuple[UUID, UUID]:
        """This claim of this job, and no other: the job and the token."""
        return self.job_id, self.token


@dataclass(frozen=True, slots=True)
class Declared:
    """A type as a worker declares it: what its jobs have where they say nothing else. `schema` is the JSON Schema of its
    payload, as JSON text; None where the handler's parameters cannot be told in one. `fields` are the names of its
    parameters; None: it takes any."""

    name: str
    queue: str = "default"
    priority: int = 0
    thread_demand: int = 1
    max_attempts: int = 3
    timeout_s: float = 3600.0
    retry: RetryPolicy | None = None
    tags: Sequence[str] = ()
    if_too_wide: TooWide = "narrow"
    isolation: IsolationMode = "none"
    at_most_once: bool = False
    description: str | None = None
    schema: str | None = None
    fields: tuple[str, ...] | None = None

    @property
    def digest(self) -> str:
        """The same for declarations that take the same payloads."""
        said = json.dumps([self.schema, self.fields])
        return hashlib.sha256(said.encode(errors="replace")).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class KnownType:
    """A declared type. `alive`: some living worker knows it. `versions`: how many different declarations of it living workers
    have. `current`: there is one, and the schema is its own. `served_by`: how many of those workers serve its queue and claim its jobs."""

    declared: Declared
    alive: bool
    versions: int = 0
    current: bool = False
    served_by: int = 0


@dataclass(frozen=True, slots=True)
class NewWorker:
    """One worker process as it registers. `id` is random per process start and never used again. `queues`: what it serves,
    names and patterns (queue_names.py). `digests`: the version of each of its types (Declared.digest), in their order.
    `version`: of Windlass."""

    id: UUID
    name: str
    threads: int
    queues: Sequence[str]
    types: Sequence[str]
    supervisor_id: UUID | None = None
    digests: Sequence[str] | None = None
    version: str | None = None


@dataclass(frozen=True, slots=True)
class Worker:
    """One worker process as people see it. `jobs`: the leases it has; `claimed` of them have not begun. `stopped`: it left as it
    was told to; others that are not alive crashed, were killed, or lost their lease."""

    id: UUID
    name: str
    threads: int
    busy_threads: int
    jobs: int
    queues: Sequence[str]
    types: Sequence[str]
    supervisor_id: UUID | None
    started_at: datetime
    renewed_at: datetime
    lease_left_s: float
    draining: bool
    died_at: datetime | None
    reserved_for: UUID | None
    lost_threads: int = 0
    stopped: bool = False
    claimed: int = 0
    version: str | None = None
    memory_bytes: int | None = None

    @property
    def alive(self) -> bool:
        return self.died_at is None and self.lease_left_s > 0


@dataclass(frozen=True, slots=True)
class Queue:
    """A named line. `depth` counts what is due, paused or not; `oldest_age_s`: how long the oldest of those next in line has waited.
    `served_by`: how many living workers claim from it."""

    name: str
    paused: bool
    depth: int
    oldest_age_s: float | None
    counts: dict[Status, int]
    served_by: int = 0


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt at a job that has ended."""

    attempt: int
    status: str
    worker_id: UUID | None
    token: UUID | None
    started_at: datetime | None
    ended_at: datetime
    error: Error | None
    log: str | None


@dataclass(frozen=True, slots=True)
class Job:
    """A job as people see it. `payload` and `result` are JSON text: a browser would round numbers above 2^53.

    `error` and `started_at` of an unfinished job are those of its last attempt, which ended at `last_ended_at`.
    `expires_at`: when a dead letter is removed."""

    id: UUID
    type: str
    status: Status
    reason: str | None
    name: str | None
    queue: str
    priority: int
    thread_demand: int
    threads_granted: int | None
    max_attempts: int
    timeout_s: float
    retry: RetryPolicy | None
    if_too_wide: TooWide
    trace: str | None
    tags: Sequence[str]
    idempotency_key: str | None
    created_at: datetime
    scheduled_at: datetime | None
    ready_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    attempt: int
    failures: int
    worker_id: UUID | None
    cancel_requested: bool
    result: str | None
    error: Error | None
    queue_s: float | None
    execution_s: float | None
    total_s: float | None
    payload: str | None = None
    progress: float | None = None
    progress_note: str | None = None
    last_ended_at: datetime | None = None
    expires_at: datetime | None = None

    @property
    def next_try_at(self) -> datetime | None:
        """When a job between two tries may start again; None for one that was never tried, is held, runs or is finished."""
        return self.ready_at if self.attempt > 0 and self.status in {Status.SCHEDULED, Status.READY} else None

    @property
    def updated_at(self) -> datetime:
        """When something happened to it last, as far as its rows tell."""
        waits_since = self.ready_at if self.status in {Status.READY, Status.HELD} else None
        moments = (self.created_at, self.started_at, self.last_ended_at, self.finished_at, waits_since)
        return max(moment for moment in moments if moment is not None)


def seconds(duration: float | timedelta) -> float:
    return duration.total_seconds() if isinstance(duration, timedelta) else duration


_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:/-]*")
# C0, DEL, C1, line and paragraph separators, lone surrogates: they corrupt logs, headers and terminals.
_UNSAFE: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


@lru_cache(maxsize=4096)
def _is_name(value: str, longest: int) -> bool:
    return len(value) <= longest and _NAME.fullmatch(value) is not None


def check_name(field: str, value: str, longest: int) -> None:
    """Refuse a type, queue or other name that cannot be written in a URL, a log line and a shell as it is."""
    if not isinstance(value, str) or not _is_name(value, longest):
        raise InvalidJob(
            field, f"must be 1 to {longest} of the characters A-Z a-z 0-9 _ . : / - and begin with a letter, digit or _"
        )


def check_text(field: str, value: str, longest: int) -> None:
    if not isinstance(value, str) or not 1 <= len(value) <= longest:
        raise InvalidJob(field, f"must be a text of 1 to {longest} characters")
    if _UNSAFE.search(value):
        raise InvalidJob(field, "must not contain control characters, line separators or lone surrogates")


def check_number(field: str, value: float, least: float, most: float, *, whole: bool = True) -> None:
    kinds: tuple[type, ...] = (int,) if whole else (int, float)
    if type(value) not in kinds or not least <= value <= most:
        raise InvalidJob(field, f"must be {'a whole' if whole else 'a'} number from {least:,} to {most:,}")


def check_id(value: UUID) -> None:
    if not isinstance(value, UUID) or value.version != 7 or value.variant != "specified in RFC 4122":
        raise InvalidId("id", "must be a UUIDv7")


def check_new_worker(worker: NewWorker) -> None:
    """Refuse a worker that could not be shown, or could not run anything."""
    check_text("name", worker.name, type_name_max)
    check_number("threads", worker.threads, 1, thread_demand_max)
    for queue in worker.queues:
        check_served("queues", queue)
    for type_ in worker.types:
        check_name("types", type_, type_name_max)


def check_started_once(type_: str, max_attempts: int) -> None:
    """Refuse more attempts for a job of a type that is started once at most: there would never be a second one."""
    if max_attempts != 1:
        raise InvalidJob(
            "max_attempts",
            f"must be 1 or be left out, not {max_attempts}: a job of type {type_} is started once at most",
        )


def check_new_job(job: NewJob) -> None:
    """Refuse a job with a wrong field, naming it. The payload is checked where it is encoded (payload.py)."""
    check_name("type", job.type, type_name_max)
    check_name("queue", job.queue, queue_name_max)
    check_number("priority", job.priority, -priority_max, priority_max)
    check_number("thread_demand", job.thread_demand, 1, thread_demand_max)
    check_number("max_attempts", job.max_attempts, 1, max_attempts_max)
    check_number("timeout_s", job.timeout_s, 0.001, timeout_s_max, whole=False)
    if job.if_too_wide not in ("narrow", "wait", "fail"):  # not a set: any value may come
        raise InvalidJob("if_too_wide", "must be narrow, wait or fail")
    if job.id is not None:
        check_id(job.id)
    if job.name is not None:
        check_text("name", job.name, type_name_max)
    if job.idempotency_key is not None:
        check_text("idempotency_key", job.idempotency_key, key_max)
    if job.trace is not None:
        check_text("trace", job.trace, 512)
    if job.tags != ():
        _check_tags(job.tags)
    if job.retry is not None:
        _check_retry(job.retry)
    if job.delay_s is not None or job.scheduled_at is not None:
        _check_due(job)
    if not isinstance(job.inherited, frozenset) or not job.inherited <= declarable:
        raise InvalidJob("inherited", "must be a frozenset of fields that a type declares")


def _check_tags(tags: Sequence[str]) -> None:
    if not isinstance(tags, (list, tuple)) or len(tags) > tags_max:
        raise InvalidJob("tags", f"must be a list of at most {tags_max} texts")
    for n, tag in enumerate(tags):
        check_text(f"tags[{n}]", tag, tag_max)
    if len(set(tags)) != len(tags):
        raise InvalidJob("tags", "must not repeat a tag")


def _check_retry(retry: RetryPolicy) -> None:
    if not isinstance(retry, RetryPolicy):
        raise InvalidJob("retry", "must be a RetryPolicy")
    check_number("retry.base_s", retry.base_s, 0, delay_s_max, whole=False)
    check_number("retry.factor", retry.factor, 1, 100, whole=False)
    check_number("retry.cap_s", retry.cap_s, 0, delay_s_max, whole=False)
    check_number("retry.jitter", retry.jitter, 0, 1, whole=False)


def _check_due(job: NewJob) -> None:
    if job.delay_s is not None:
        if job.scheduled_at is not None:
            raise InvalidJob("delay_s", "give delay_s or scheduled_at, not both")
        check_number("delay_s", job.delay_s, 0, delay_s_max, whole=False)
    elif not isinstance(job.scheduled_at, datetime) or job.scheduled_at.utcoffset() is None:
        # A naive moment would be read in some machine's zone: hours early or late.
        raise InvalidJob("scheduled_at", "must be a moment with a time zone")
    elif not 1970 <= job.scheduled_at.year <= 9998:
        # At the ends of the calendar the shift to UTC overflows, in the driver.
        raise InvalidJob("scheduled_at", "must be between the years 1970 and 9998")
