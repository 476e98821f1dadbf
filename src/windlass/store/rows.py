"""A submitted job as the enqueue statement takes it: checked, encoded, with an id. Pure but for the ids it is given."""

import hashlib
import json
import math
from collections.abc import Iterator, Sequence
from datetime import datetime
from operator import is_
from typing import Final, NamedTuple
from uuid import UUID

from asyncpg import Record

from windlass.errors import InvalidId
from windlass.model import NewJob, Owner, check_id, check_new_job, scoped_key
from windlass.payload import decode, encode
from windlass.store.ids import Ids, unix_ms

_OLDEST_MS: Final = 24 * 3600 * 1000
_NEWEST_MS: Final = 5 * 60 * 1000
page_max: Final = 5_000
_PAGE_CHARS: Final = 16_000_000
_NOBODY: Final = UUID(int=0)
_SAME: Final = (
    "type",
    "name",
    "queue",
    "priority",
    "thread_demand",
    "max_attempts",
    "timeout_s",
    "retry",
    "if_too_wide",
)


class Row(NamedTuple):
    """A column per parameter of the enqueue statement, in their order; and last what is not stored, or not as it is."""

    id: UUID
    type: str
    name: str | None
    queue: str
    priority: int
    thread_demand: int
    payload: str
    max_attempts: int
    timeout_s: float
    retry: str | None
    tags: str | None
    key: str | None
    if_too_wide: str
    trace: str | None
    scheduled_at: datetime | None
    delay_s: float | None
    inherited: frozenset[str]
    owner: Owner | None

    @property
    def namespace(self) -> str | None:
        return None if self.owner is None else self.owner.namespace

    @property
    def subject(self) -> str | None:
        return None if self.owner is None else self.owner.subject

    @property
    def scoped_key(self) -> str | None:
        return None if self.key is None else scoped_key(self.namespace, self.key)


def columns(rows: Sequence[Row]) -> list[Sequence[object]]:
    """As the enqueue statement takes them. Where no job has an owner, as with most, there are no namespaces:
    PostgreSQL fills up what is missing."""
    *stored, _, owners = zip(*rows, strict=True)
    return [*stored, [row.namespace for row in rows] if any(owners) else ()]


def to_rows(jobs: Sequence[NewJob], ids: Ids, *, now_ms: int, bytes_max: int) -> list[Row]:
    """Refuse the batch if anything in it is wrong, naming the field; else its rows, in order."""
    missing = sum(job.id is None for job in jobs)
    made = iter(ids.make(missing) if missing else ())
    rows: list[Row] = []
    last: NewJob | None = None
    head: tuple[object, ...] = ()
    tail: tuple[object, ...] = ()
    for job in jobs:
        # Most jobs of a batch differ in their payload alone: what is the very same is checked and converted once.
        # Not merely equal: True equals 1, and is no thread demand.
        if last is None or job.type is not last.type or not all(map(is_, job[3:], last[3:])):
            check_new_job(job)
            head, tail = _around_payload(job)
            last = job
        job_id = next(made) if job.id is None else _in_window(job.id, now_ms)
        rows.append(Row._make((job_id, *head, encode(job.payload, bytes_max=bytes_max), *tail)))
    if missing < len(rows) and len({row.id for row in rows}) != len(rows):
        raise InvalidId("id", "two jobs of one batch have the same id")
    return rows


def _around_payload(job: NewJob) -> tuple[tuple[object, ...], tuple[object, ...]]:
    """The columns before and after the payload."""
    head = (job.type, job.name, job.queue, job.priority, job.thread_demand)
    return head, (
        job.max_attempts,
        float(job.timeout_s),
        None if job.retry is None else json.dumps({name: float(n) for name, n in job.retry._asdict().items()}),
        json.dumps(list(job.tags), ensure_ascii=False) if job.tags else None,
        job.idempotency_key,
        job.if_too_wide,
        job.trace,
        job.scheduled_at,
        None if job.delay_s is None else float(job.delay_s),
        job.inherited,
        job.owner,
    )


def _in_window(job_id: UUID, now_ms: int) -> UUID:
    """Refuse an id that is none of ours, or whose time has no partition yet, or one that is being removed."""
    check_id(job_id)
    if not -_OLDEST_MS <= unix_ms(job_id) - now_ms <= _NEWEST_MS:
        raise InvalidId("id", "its time must be within the last 24 hours and the next 5 minutes of the database's")
    return job_id


def fingerprint(row: Row) -> bytes:
    """What makes two submissions the same: every field the caller chose, whatever the order of payload keys."""
    payload = json.dumps(decode(row.payload), sort_keys=True)
    due_s = None if row.scheduled_at is None else row.scheduled_at.timestamp()
    chosen = [None if name in row.inherited else getattr(row, name) for name in (*_SAME, "tags")]
    body = json.dumps([*chosen, payload, due_s, row.delay_s])
    return hashlib.sha256(body.encode()).digest()


def fingerprint_of(job: NewJob, *, bytes_max: int) -> bytes:
    """The same for a submission that has no row yet. Raises what storing it would raise."""
    check_new_job(job)
    head, tail = _around_payload(job)
    return fingerprint(Row._make((_NOBODY, *head, encode(job.payload, bytes_max=bytes_max), *tail)))


def is_same(row: Row, stored: Record, stored_payload: str) -> bool:
    """Whether the job stored under a repeated id is the one meant. Never that of another namespace: its body must not
    be found out by trying. A delay is measured from when it was stored. `stored_payload`: as it was submitted."""
    if row.namespace != stored["namespace"]:
        return False
    if row.delay_s:
        due = math.isclose(row.delay_s, stored["delay_s"] or 0, abs_tol=0.01)
    else:
        due = row.scheduled_at == stored["scheduled_at"]
    tags = "tags" in row.inherited or stored["tags"] == (json.loads(row.tags) if row.tags else None)
    payload = decode(row.payload) == decode(stored_payload)
    chosen = (name for name in _SAME if name not in row.inherited)
    return due and payload and tags and all(getattr(row, name) == stored[name] for name in chosen)


def is_plain(row: Row) -> bool:
    """Whether it is to run now, and has neither key nor tags nor owner."""
    return row.key is None and row.tags is None and row.scheduled_at is None and not row.delay_s and row.owner is None


def fits_one_page(rows: Sequence[Row]) -> bool:
    return len(rows) <= page_max and sum(len(row.payload) for row in rows) <= _PAGE_CHARS


def pages(rows: list[Row]) -> Iterator[list[Row]]:
    """Rows for one statement each: PostgreSQL takes no message above a gigabyte, and long before that it takes too long."""
    page: list[Row] = []
    chars = 0
    for row in rows:
        if page and (len(page) == page_max or chars + len(row.payload) > _PAGE_CHARS):
            yield page
            page, chars = [], 0
        page.append(row)
        chars += len(row.payload)
    if page:
        yield page
