"""What was enqueued, and assertions about it: read from the database, so a transaction that was rolled back left nothing.

Keywords that the handler has as parameters are compared with what it would be called with, defaults included; others with
what the job says of itself: queue, priority, threads, tags, name, idempotency_key, max_attempts, timeout_s, delay_s.
"""

import difflib
import inspect
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from windlass.blocking import driven
from windlass.errors import RequestError, WindlassError
from windlass.payload import decode
from windlass.store.foreign import is_async
from windlass.store.testing import stored_jobs, stored_jobs_seen_by
from windlass.testing.database import current_database
from windlass.worker.registry import JobType

_FIELDS: Final = (
    "queue", "priority", "threads", "tags", "name", "idempotency_key", "max_attempts", "timeout_s", "delay_s",
    "scheduled_at",
)  # fmt: skip
_SHOWN: Final = 20
_NOTHING: Final = object()


@dataclass(frozen=True, slots=True)
class StoredJob:
    """A job as it was enqueued. `arguments`: what its handler is called with, of the handler's own types; of a type that no
    App here knows, the payload's fields. `delay_s` is None for a job that was to run at once."""

    id: UUID
    type: str
    arguments: Mapping[str, Any]
    payload: Any
    queue: str
    priority: int
    threads: int
    tags: Sequence[str]
    name: str | None
    idempotency_key: str | None
    max_attempts: int
    timeout_s: float
    scheduled_at: datetime | None
    created_at: datetime

    @property
    def delay_s(self) -> float | None:
        return None if self.scheduled_at is None else (self.scheduled_at - self.created_at).total_seconds()

    def __str__(self) -> str:
        said = ", ".join(f"{name}={value!r}" for name, value in self.arguments.items())
        return f"{self.type}({said}) in queue {self.queue}"


def enqueued(job: JobType | str | None = None, /, *, connection: Any = None, **expected: Any) -> list[StoredJob]:
    """The jobs of this type, or of all, that were enqueued in this test, in order; only those that fit `expected`.

    With `connection`, also those that its open transaction has enqueued.
    """
    if connection is None:
        rows = current_database().ask(stored_jobs)
    elif is_async(connection):
        raise RequestError("connection: is an async one; await aenqueued(…) with it")
    else:
        rows = driven(stored_jobs_seen_by(connection))
    return _chosen([_stored(row) for row in rows], job, expected)


async def aenqueued(job: JobType | str | None = None, /, *, connection: Any, **expected: Any) -> list[StoredJob]:
    """As `enqueued`, by an async connection of yours that is in a transaction."""
    return _chosen([_stored(row) for row in await stored_jobs_seen_by(connection)], job, expected)


def assert_enqueued(job: JobType | str, /, *, connection: Any = None, **expected: Any) -> StoredJob:
    """Fail unless such a job was enqueued; returns the first."""
    if found := enqueued(job, connection=connection, **expected):
        return found[0]
    raise AssertionError(_missing(_name(job), expected, enqueued(connection=connection)))


def assert_not_enqueued(job: JobType | str, /, *, connection: Any = None, **expected: Any) -> None:
    """Fail if such a job was enqueued."""
    if found := enqueued(job, connection=connection, **expected):
        lines = "\n".join(f"  {each}" for each in found[:_SHOWN])
        raise AssertionError(f"{_called(_name(job), expected)} was enqueued, {len(found)} times:\n{lines}")


def _stored(row: Any) -> StoredJob:
    declared = _declared(row["type"])
    payload = decode(row["payload"])
    return StoredJob(
        row["id"],
        row["type"],
        _arguments(declared, row["payload"], payload),
        payload,
        row["queue"],
        row["priority"],
        row["thread_demand"],
        tuple(row["tags"] or ()),
        row["name"],
        row["idempotency_key"],
        row["max_attempts"],
        row["timeout_s"],
        row["scheduled_at"],
        row["created_at"],
    )


def _declared(type_: str) -> JobType | None:
    return next((app.types[type_] for app in current_database().apps if type_ in app.types), None)


def _arguments(job: JobType | None, text: str, payload: Any) -> Mapping[str, Any]:
    if job is None:
        return payload if isinstance(payload, dict) else {"payload": payload}
    try:
        given = job.arguments(text)
    except WindlassError:  # enqueued by name, past the signature: it fails where it runs
        return payload if isinstance(payload, dict) else {"payload": payload}
    return {name: default for name, default in _defaults(job).items() if name not in given} | given


def _defaults(job: JobType) -> dict[str, Any]:
    parameters = inspect.signature(job.fn).parameters
    return {
        name: each.default
        for name, each in parameters.items()
        if name in job.signature.names and each.default is not inspect.Parameter.empty
    }


def _chosen(jobs: list[StoredJob], job: JobType | str | None, expected: Mapping[str, Any]) -> list[StoredJob]:
    if job is not None:
        _check_names(job, expected)
        jobs = [each for each in jobs if each.type == _name(job)]
    return [each for each in jobs if not _differences(each, expected)]


def _check_names(job: JobType | str, expected: Mapping[str, Any]) -> None:
    """A misspelt name would make `assert_not_enqueued` pass for ever."""
    declared = job if isinstance(job, JobType) else _declared(job)
    if declared is None or _takes_any(declared):
        return
    known = (*declared.signature.names, *_FIELDS)
    for name in expected:
        if name not in known:
            close = difflib.get_close_matches(name, known, 1)
            meant = (
                f"; did you mean {close[0]}?" if close else f"; it has: {', '.join(declared.signature.names) or 'none'}"
            )
            raise TypeError(f"{declared.name} has no parameter {name!r}, and no job has such a field{meant}")


def _takes_any(job: JobType) -> bool:
    parameters = inspect.signature(job.fn).parameters.values()
    return any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters)


def _differences(job: StoredJob, expected: Mapping[str, Any]) -> list[str]:
    found = ((name, _value(job, name), value) for name, value in expected.items())
    return [
        f"{name} is {'missing' if there is _NOTHING else repr(there)}"
        for name, there, value in found
        if there is _NOTHING or not _is_equal(there, value)
    ]


def _value(job: StoredJob, name: str) -> Any:
    if name in job.arguments:
        return job.arguments[name]
    return getattr(job, name) if name in _FIELDS else _NOTHING


def _is_equal(there: Any, value: Any) -> bool:
    if isinstance(there, tuple) and isinstance(value, list):
        return list(there) == value
    return bool(there == value)


def _name(job: JobType | str) -> str:
    return job if isinstance(job, str) else job.name


def _called(name: str, expected: Mapping[str, Any]) -> str:
    return f"{name}({', '.join(f'{key}={value!r}' for key, value in expected.items())})"


def _missing(name: str, expected: Mapping[str, Any], jobs: Sequence[StoredJob]) -> str:
    said = [f"{_called(name, expected)} was not enqueued"]
    same = [job for job in jobs if job.type == name]
    said += [f"  {job}: {', '.join(_differences(job, expected))}" for job in same[:_SHOWN]]
    others = Counter(job.type for job in jobs if job.type != name)
    if others:
        said.append("  of other types: " + ", ".join(f"{n} of {type_}" for type_, n in others.items()))
    if not jobs:
        said.append("  nothing was enqueued, or its transaction has not committed: then pass connection=")
    return "\n".join(said)
