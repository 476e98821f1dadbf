"""The shapes of the routes that are not under /v1: those that older schedulers documented, with our values in them."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from typing import Annotated, Any, Final, Literal
from uuid import UUID

from msgspec import Meta, Raw

from windlass import wire
from windlass.api.job_shapes import job_told
from windlass.model import PENDING, Job, Status
from windlass.wire import END, Asked, Priority, Submission, Text, Told, TypeName

PlainStatus = Literal["pending", "running", "completed", "failed", "cancelled"]
STATUSES: Final[dict[PlainStatus, frozenset[Status]]] = {
    "pending": PENDING,
    "running": frozenset({Status.RUNNING}),
    "completed": frozenset({Status.COMPLETED}),
    "failed": frozenset({Status.FAILED}),
    "cancelled": frozenset({Status.CANCELLED}),
}
_bodies_chars_max: Final = 1_048_576
_PLAIN: Final = {status: plain for plain, statuses in STATUSES.items() for status in statuses}


class NamedTask(Asked):
    """A job by the name of its type, and a text for it. A payload that is no text goes to the job as it is."""

    name: TypeName
    payload: Any = ""
    priority: Priority | None = None


class AddedJob(Submission, kw_only=True):
    """A welcome mail, by `email` and `name`; or a whole job."""

    type: TypeName | None = None  # type: ignore[assignment]
    email: (
        Annotated[str, Meta(max_length=254, pattern=rf"^[^@\s]+@[^@\s]+{END}", examples=["ann@example.com"])] | None
    ) = None
    name: Text | None = None


class PlainStored(Told):
    id: UUID
    status: PlainStatus


class NamedStored(Told):
    job_id: UUID
    id: UUID
    status: PlainStatus


class PlainJob(Told):
    id: UUID
    type: str
    name: str | None
    payload: Raw | None
    status: PlainStatus
    priority: int
    thread_demand: int
    attempts: int
    max_attempts: int
    scheduled_at: datetime
    started_at: datetime | None
    completed_at: datetime | None
    created_at: datetime
    updated_at: datetime
    result: Raw | None
    error: str | None
    next_try_at: datetime | None


class PastJob(PlainJob):
    """A job with its times, in seconds: waiting for a worker, running, and from submission to end."""

    queue_time: float | None
    execution_time: float | None
    total_time: float | None


class FailedJobs(Told):
    jobs: list[PlainJob]
    page: int
    limit: int
    total: int


class PlainStats(Told):
    completed: int
    failed: int
    pending: int
    running: int


def plain_status(status: Status) -> PlainStatus:
    return _PLAIN[status]


def plain_job(job: Job) -> PlainJob:
    return plain_of(job_told(job, whole=True))


def past_job(job: Job) -> PastJob:
    told = job_told(job, whole=True)
    return PastJob(**_fields(told), queue_time=told.queue_s, execution_time=told.execution_s, total_time=told.total_s)


def plain_of(told: wire.Job) -> PlainJob:
    """The same job in the plain shape: one that is shown from a cache is there in the shape of /v1."""
    return PlainJob(**_fields(told))


def lightened(jobs: Iterable[Job]) -> list[Job]:
    """The jobs of a list, with payloads and results as long as they are a megabyte in all: each has to be looked
    through, and a list of large ones would take seconds."""
    left, shown = _bodies_chars_max, []
    for job in jobs:
        left -= len(job.payload or "") + len(job.result or "")
        shown.append(job if left >= 0 else replace(job, payload=None, result=None))
    return shown


def _fields(told: wire.Job) -> dict[str, Any]:
    error = told.error
    return {
        "id": told.id,
        "type": told.type,
        "name": told.name,
        "payload": told.payload,
        "status": plain_status(Status(told.status)),
        "priority": told.priority,
        "thread_demand": told.thread_demand,
        "attempts": told.attempts,
        "max_attempts": told.max_attempts,
        "scheduled_at": told.scheduled_at or told.created_at,
        "started_at": told.started_at,
        "completed_at": told.finished_at,
        "created_at": told.created_at,
        "updated_at": told.updated_at,
        "result": told.result,
        "error": None if error is None else f"{error.type}: {error.message}",
        "next_try_at": told.next_try_at,
    }
