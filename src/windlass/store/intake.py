"""What callers do to jobs: enqueue, cancel, retry, run now, pause. Step 3 of a job's path.

An enqueue that returns is durable. One whose answer was lost may be repeated with the same ids or idempotency keys
without doubling. Given the caller's own connection, everything happens inside the caller's transaction.
"""

import asyncio
import hashlib
import json
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple
from uuid import UUID

from asyncpg import LockNotAvailableError

from windlass.errors import Contended, IdTaken, InvalidId, JobNotFound, KeyBusy, KeyReused, NotPossible, WindlassError
from windlass.lifecycle import error_document
from windlass.model import FINISHED, Enqueued, Error, NewJob, Status, check_name, check_new_job, queue_name_max
from windlass.payload import decode, encode
from windlass.store import partitions
from windlass.store.ids import Ids, unix_ms
from windlass.store.postgres import Connection, NoPartition, Postgres, patiently

_PAGE: Final = 5_000
_LOOKS: Final = 20
_OLDEST_MS: Final = 24 * 3600 * 1000
_NEWEST_MS: Final = 5 * 60 * 1000


class Row(NamedTuple):
    """One job as the enqueue statement takes it: a column per parameter, in their order."""

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


class Intake:
    def __init__(self, postgres: Postgres) -> None:
        self._postgres = postgres
        self._ids = Ids(postgres.now_ms)

    # Enqueue. -----------------------------------------------------------------------------------------------------

    async def enqueue(self, jobs: Sequence[NewJob], *, connection: Connection | None = None) -> list[Enqueued]:
        """Store all or none, in order. A job whose id or idempotency key is there already is answered as duplicate."""
        try:
            return await self._enqueue_rows(jobs, connection)
        except NoPartition:
            if connection is not None:  # the caller's transaction has failed; only the caller can begin anew
                raise
            # No leader has made partitions for days, or the database's clock is another since a failover.
            await self._postgres.synchronise()
            await partitions.make_ahead(self._postgres.config)
            return await self._enqueue_rows(jobs, connection)

    async def _enqueue_rows(self, jobs: Sequence[NewJob], connection: Connection | None) -> list[Enqueued]:
        rows = self._rows(jobs)
        if any(job.idempotency_key is not None for job in jobs):
            return await self._enqueue_keyed(jobs, rows, connection)
        if connection is None and (len(rows) > _PAGE or (len(rows) > 1 and any(job.id is not None for job in jobs))):
            # Several statements, or an id that may turn out to be another job's: one transaction, all or none.
            return await patiently(lambda: self._enqueue_pages(rows))
        return await self._enqueue(rows, connection)

    async def enqueue_each(self, jobs: Sequence[NewJob]) -> list[Enqueued | WindlassError]:
        """Store independent jobs together; one that cannot be stored gets its error, and the others are stored."""
        try:
            return list(await self.enqueue(jobs))
        except WindlassError as error:
            if len(jobs) == 1:
                return [error]
        return [answer for job in jobs for answer in await self.enqueue_each([job])]

    async def _enqueue_pages(self, rows: list[Row]) -> list[Enqueued]:
        async with self._postgres.transaction() as connection:
            return await self._enqueue(rows, connection)

    async def _enqueue(self, rows: list[Row], connection: Connection | None) -> list[Enqueued]:
        answers: list[Enqueued] = []
        for start in range(0, len(rows), _PAGE):
            page = rows[start : start + _PAGE]
            stored = await self._postgres.fetch(
                "enqueue", *zip(*page, strict=True), self._postgres.config.head_start_s, connection=connection
            )
            if len(stored) == len(page):
                answers += [Enqueued(row.id, duplicate=False) for row in page]
            else:
                answers += await self._with_repeated(page, {row["id"] for row in stored}, connection)
        return answers

    async def _with_repeated(self, page: list[Row], stored: set[UUID], connection: Connection | None) -> list[Enqueued]:
        """Some ids were there already: fine if the same job was meant, an error if not."""
        repeated = [row for row in page if row.id not in stored]
        bodies = await self._postgres.fetch("stored_bodies", [row.id for row in repeated], connection=connection)
        known = {body["id"]: (body["type"], body["queue"], body["payload"]) for body in bodies}
        for row in repeated:
            if known.get(row.id) != (row.type, row.queue, row.payload):
                raise IdTaken(row.id)
        return [Enqueued(row.id, duplicate=row.id not in stored) for row in page]

    def _rows(self, jobs: Sequence[NewJob]) -> list[Row]:
        """One tuple per job, in the order of the enqueue statement's parameters; checks everything first."""
        for job in jobs:
            check_new_job(job)
        bytes_max = self._postgres.config.payload_bytes_max
        missing = sum(job.id is None for job in jobs)
        made = iter(self._ids.make(missing) if missing else ())
        rows = [
            Row(
                next(made) if job.id is None else self._in_window(job.id),
                job.type,
                job.name,
                job.queue,
                job.priority,
                job.thread_demand,
                encode(job.payload, bytes_max=bytes_max),
                job.max_attempts,
                job.timeout_s,
                None if job.retry is None else json.dumps(job.retry._asdict()),
                json.dumps(list(job.tags), ensure_ascii=False) if job.tags else None,
                job.idempotency_key,
                job.if_too_wide,
                job.trace,
                job.scheduled_at,
                job.delay_s,
            )
            for job in jobs
        ]
        if missing < len(rows) and len({row.id for row in rows}) != len(rows):
            raise InvalidId("id", "two jobs of one batch have the same id")
        return rows

    def _in_window(self, job_id: UUID) -> UUID:
        """Refuse an id whose time has no partition yet, or one that is being removed."""
        ahead_ms = unix_ms(job_id) - self._postgres.now_ms()
        if not -_OLDEST_MS <= ahead_ms <= _NEWEST_MS:
            raise InvalidId("id", "its time must be within the last 24 hours and the next 5 minutes of the database's")
        return job_id

    # Idempotency keys. ----------------------------------------------------------------------------------------------

    async def _enqueue_keyed(
        self, jobs: Sequence[NewJob], rows: list[Row], connection: Connection | None
    ) -> list[Enqueued]:
        prints = [
            b"" if job.idempotency_key is None else _fingerprint(job, row) for job, row in zip(jobs, rows, strict=True)
        ]
        if connection is not None:
            return await self._enqueue_with_keys(rows, prints, connection)

        async def run() -> list[Enqueued]:
            try:
                async with self._postgres.transaction(lock_timeout_s=self._postgres.config.lock_timeout_s) as own:
                    return await self._enqueue_with_keys(rows, prints, own)
            except Contended as error:
                if isinstance(error.__cause__, LockNotAvailableError):  # its holder may take hours: do not wait more
                    raise KeyBusy(" or ".join(sorted({row.key for row in rows if row.key})[:3])) from error
                raise

        return await patiently(run)

    async def _enqueue_with_keys(self, rows: list[Row], prints: list[bytes], connection: Connection) -> list[Enqueued]:
        first: dict[str, tuple[UUID, bytes]] = {}
        for row, fingerprint in zip(rows, prints, strict=True):
            if row.key is not None:
                first.setdefault(row.key, (row.id, fingerprint))
        holders = await self._take_keys(first, connection)
        for row, fingerprint in zip(rows, prints, strict=True):
            if row.key is not None and holders[row.key][1] != fingerprint:
                raise KeyReused(row.key)
        winners = [row for row in rows if row.key is None or holders[row.key][0] == row.id]
        stored = {answer.id: answer for answer in await self._enqueue(winners, connection)} if winners else {}
        return [
            stored.get(row.id) or Enqueued(holders[row.key or ""][0], duplicate=True)  # only keyed rows can lose
            for row in rows
        ]

    async def _take_keys(
        self, first: dict[str, tuple[UUID, bytes]], connection: Connection
    ) -> dict[str, tuple[UUID, bytes]]:
        """Who holds each key after we tried: us, or the job that was first."""
        keys = sorted(first)
        for _ in range(_LOOKS):
            ids, prints = zip(*(first[key] for key in keys), strict=True)
            await self._postgres.fetch("enqueue_keys", keys, ids, prints, connection=connection)
            rows = await self._postgres.fetch("key_holders", keys, connection=connection)
            if len(rows) == len(keys):
                return {row["key"]: (row["job_id"], row["fingerprint"]) for row in rows}
            # A key expired between the two statements: take it again.
        raise Contended("idempotency keys kept expiring under us")

    # Actions on jobs by id. -----------------------------------------------------------------------------------------

    async def cancel(self, job_id: UUID, reason: str = "cancelled on request") -> Status:
        """Cancelled if it was waiting; running if its worker was asked. Raises JobNotFound, NotPossible."""
        return _one(await self.cancel_many([job_id], reason), job_id)

    async def retry(self, job_id: UUID) -> Status:
        """Make a finished job ready again, with its attempts kept and its failures at zero."""
        return _one(await self.retry_many([job_id]), job_id)

    async def run_now(self, job_id: UUID) -> Status:
        """Make a scheduled or held job ready."""
        return _one(await self.run_now_many([job_id]), job_id)

    async def cancel_many(
        self, job_ids: Iterable[UUID], reason: str = "cancelled on request"
    ) -> dict[UUID, Status | WindlassError]:
        document = error_document(Error("Cancelled", reason))
        return await self._act("cancel", job_ids, document, impossible=FINISHED)

    async def retry_many(self, job_ids: Iterable[UUID]) -> dict[UUID, Status | WindlassError]:
        unfinished = frozenset(Status) - FINISHED
        return await self._act("retry", job_ids, self._postgres.config.head_start_s, impossible=unfinished)

    async def run_now_many(self, job_ids: Iterable[UUID]) -> dict[UUID, Status | WindlassError]:
        elsewhere = frozenset(Status) - {Status.SCHEDULED, Status.HELD}
        return await self._act("run_now", job_ids, impossible=elsewhere)

    async def _act(
        self, verb: str, job_ids: Iterable[UUID], *args: Any, impossible: frozenset[Status]
    ) -> dict[UUID, Status | WindlassError]:
        """One statement for all; jobs it did not find may just be moving: look again while their job row exists."""
        answers: dict[UUID, Status | WindlassError] = {}
        left = sorted(set(job_ids))
        for look in range(_LOOKS):
            for row in await self._postgres.pinned(verb, left, *args):
                answers[row["job_id"]] = Status(row["status"])
            left = [job_id for job_id in left if job_id not in answers]
            if not left:
                break
            places = {row["job_id"]: row["status"] for row in await self._postgres.pinned("whereabouts", left)}
            for job_id in left:
                if job_id not in places:
                    answers[job_id] = JobNotFound(job_id)
                elif places[job_id] in impossible:
                    answers[job_id] = _impossible(verb, job_id, places[job_id])
            left = [job_id for job_id in left if job_id not in answers]
            await asyncio.sleep(0.001 * look)
        return answers | {job_id: _impossible(verb, job_id, "moving") for job_id in left}

    async def set_paused(self, queue: str, *, paused: bool) -> None:
        """Stop or resume claims from a queue; what runs goes on, and nothing moves."""
        check_name("queue", queue, queue_name_max)
        await self._postgres.fetch("set_paused", queue, paused)


def _one(answers: dict[UUID, Status | WindlassError], job_id: UUID) -> Status:
    answer = answers[job_id]
    if isinstance(answer, WindlassError):
        raise answer
    return answer


def _impossible(verb: str, job_id: UUID, place: str) -> NotPossible:
    return NotPossible(f"job {job_id} is {place}; it cannot {verb.replace('_', ' ')} from there")


def _fingerprint(job: NewJob, row: Row) -> bytes:
    """What makes two submissions the same: every field the caller chose, whatever the order of payload keys."""
    payload = json.dumps(decode(row.payload), sort_keys=True)
    due = None if job.scheduled_at is None else job.scheduled_at.timestamp()
    body = json.dumps([*row[1:6], payload, *row[7:11], row.if_too_wide, due, row.delay_s])
    return hashlib.sha256(body.encode()).digest()
