"""What callers do to jobs: enqueue, cancel, retry, run now, discard, pause.

An enqueue that returns is durable. One whose answer was lost may be repeated with the same ids or idempotency keys
without doubling. Given the caller's own connection, it happens inside the caller's transaction.
"""

import asyncio
from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final
from uuid import UUID, uuid4

import asyncpg

from windlass.errors import (
    Contended,
    IdTaken,
    JobNotFound,
    KeyBusy,
    KeyReused,
    NoPartition,
    NotPossible,
    RequestError,
    Unavailable,
    WindlassError,
    WorkerNotFound,
)
from windlass.lifecycle import error_document
from windlass.model import (
    FINISHED,
    Decision,
    Enqueued,
    Error,
    Leave,
    NameKind,
    NewJob,
    Status,
    check_name,
    needs_decision,
    queue_name_max,
)
from windlass.store import partitions
from windlass.store.foreign import adapted
from windlass.store.ids import Ids
from windlass.store.names import Names
from windlass.store.postgres import Connection, Postgres, patiently
from windlass.store.rows import Row, columns, fingerprint, fits_one_page, is_plain, is_same, page_max, pages, to_rows
from windlass.store.sealed import opened, sealed

_LOOKS: Final = 20
_DONE: Final = {  # what each action would have done, for those it refuses
    "cancel": "cancelled",
    "retry": "run again",
    "run_now": "made ready",
    "discard": "discarded",
    "decide": "decided",
}
_LOCK_NOT_AVAILABLE: Final = "55P03"
WAKING: Final = 0x77696E64  # the advisory lock of who wakes by his own commit
# What a group waits for a key that another transaction holds: time enough for one that is just being committed; and its
# parts, when they are looked through for whose key it is.
_KEY_WAIT_S: Final = 0.1
_KEY_PROBE_S: Final = 0.005
_STREAMED: Final = 500  # what a socket takes at once, so that it is on its way while the next are made


class Intake:
    def __init__(self, postgres: Postgres) -> None:
        self._postgres = postgres
        self._ids = Ids(postgres.now_ms)
        self._names = Names(postgres)

    # Enqueue. -----------------------------------------------------------------------------------------------------

    async def enqueue(
        self, jobs: Sequence[NewJob], *, connection: Any = None, ours: bool = False, key_wait_s: float | None = None
    ) -> list[Enqueued]:
        """Store all or none, in order. A job whose id or idempotency key is there already is answered as duplicate.
        `ours`: the ids were made here, and there are no keys. `key_wait_s`: how long a held key is waited for, if that
        is less than is configured."""
        if connection is not None:
            connection = await adapted(connection)
        patience_s = self._postgres.config.lock_timeout_s
        wait_s = patience_s if key_wait_s is None else min(key_wait_s, patience_s)
        try:
            return await self._enqueue(jobs, connection, ours=ours, key_wait_s=wait_s)
        except NoPartition:
            if connection is not None:  # the caller's transaction has failed; only the caller can begin anew
                raise
            # No leader has made partitions for days, or the database's clock is another since a failover.
            await self._postgres.synchronise()
            await partitions.make_ahead(self._postgres.config)
            return await self._enqueue(jobs, connection, ours=ours, key_wait_s=wait_s)

    async def enqueue_each(self, jobs: Sequence[NewJob]) -> list[Enqueued | WindlassError]:
        """Store independent jobs together; one that cannot be stored gets its error, and the others are stored. None waits
        long for another's key: who wants to wait for his own calls `enqueue` with that job alone."""
        # Ids first: should an answer be lost, repeating must not double.
        ours = all(job.id is None and job.idempotency_key is None and job.owner is None for job in jobs)
        made = iter(self._ids.make(len(jobs)))
        named = [job if job.id else job._replace(id=next(made)) for job in jobs]
        return await self._enqueue_each(named, ours=ours, key_wait_s=_KEY_WAIT_S)

    async def _enqueue_each(
        self, jobs: list[NewJob], *, ours: bool, key_wait_s: float
    ) -> list[Enqueued | WindlassError]:
        """By halves, if need be: one that cannot be stored costs the others a few statements, not one each. Nothing was
        written then, whatever PostgreSQL had against it; should something be, the ids keep it from being doubled."""
        try:
            return list(await self.enqueue(jobs, ours=ours, key_wait_s=key_wait_s))
        except (RequestError, Contended, asyncpg.PostgresError) as error:
            if len(jobs) == 1:
                return [error if isinstance(error, WindlassError) else _fault(error)]
            wait_s = _KEY_PROBE_S if isinstance(error, KeyBusy) else key_wait_s
        except Unavailable as error:
            return [error] * len(jobs)
        half = (len(jobs) + 1) // 2
        first = await self._enqueue_each(jobs[:half], ours=ours, key_wait_s=wait_s)
        return first + await self._enqueue_each(jobs[half:], ours=ours, key_wait_s=wait_s)

    async def _enqueue(
        self, jobs: Sequence[NewJob], connection: Connection | None, *, ours: bool, key_wait_s: float
    ) -> list[Enqueued]:
        # Ids that were made here belong to no other job: nothing can turn out that all of them would be undone for.
        named = not ours and any(job.id or job.idempotency_key is not None or job.owner for job in jobs)
        if connection is None and not named and len(jobs) > page_max:
            return await patiently(lambda: self._stream(jobs))
        rows = self._rows(jobs)
        if fits_one_page(rows) and (not named or (len(rows) == 1 and rows[0].key is None and rows[0].subject is None)):
            if connection is None and len(rows) == 1 and is_plain(rows[0]):
                return await self._insert_one(rows[0])
            return await self._insert(rows, connection)
        # Several statements, or an id that may turn out to be another job's: one transaction, all or none.
        if connection is not None:
            async with connection.transaction():  # a savepoint: the caller may catch our error and go on
                return await self._insert_keyed(rows, connection)

        async def run() -> list[Enqueued]:
            async with self._postgres.transaction(lock_timeout_s=key_wait_s) as own:
                return await self._insert_keyed(rows, own)

        return await patiently(run)

    async def _stream(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """Many jobs in one transaction: while PostgreSQL stores some, the next are checked and encoded."""
        answers: list[Enqueued] = []
        async with self._postgres.transaction() as connection:
            storing = asyncio.create_task(self._insert([], connection))
            try:
                for start in range(0, len(jobs), _STREAMED):
                    rows = self._rows(jobs[start : start + _STREAMED])
                    answers += await storing
                    storing = asyncio.create_task(self._insert(rows, connection))
                    await asyncio.sleep(0)  # lets it be sent before the next ones keep this thread busy
                answers += await storing
            finally:
                await asyncio.wait([storing])  # the transaction cannot end under a statement
        return answers

    def _rows(self, jobs: Sequence[NewJob]) -> list[Row]:
        bytes_max = self._postgres.config.payload_bytes_max
        return to_rows(jobs, self._ids, now_ms=self._postgres.now_ms(), bytes_max=bytes_max)

    async def _insert(self, rows: list[Row], connection: Connection | None) -> list[Enqueued]:
        answers: list[Enqueued] = []
        for page in pages(rows):
            stored = await self._postgres.fetch(
                "enqueue",
                *columns(sealed(page, self._postgres.config)),
                self._postgres.config.head_start_s,
                connection=connection,
            )
            if charged := [row for row in page if row.owner is not None and row.owner.subject is not None]:
                await self._charge(charged, {row["id"] for row in stored}, connection)
            if len(stored) == len(page):
                created_at = next((row["created_at"] for row in stored if row["created_at"] is not None), None)
                answers += [Enqueued(row.id, duplicate=False, created_at=created_at) for row in page]
            else:
                answers += await self._with_repeated(page, {row["id"] for row in stored}, connection)
        return answers

    async def _charge(self, rows: list[Row], stored: set[UUID], connection: Connection | None) -> None:
        """Count those of the rows that are stored against the quotas of their subjects."""
        new = [(row.id, row.subject, row.thread_demand) for row in rows if row.id in stored]
        if new:
            await self._postgres.fetch("charge", *zip(*new, strict=True), connection=connection)

    async def _insert_one(self, row: Row) -> list[Enqueued]:
        (sent,) = sealed([row], self._postgres.config)
        stored = await self._postgres.fetchrow(
            "enqueue_one", *sent[:10], *sent[12:14], self._postgres.config.head_start_s, WAKING, uuid4()
        )
        if stored is None:
            return await self._with_repeated([row], set(), None)
        return [Enqueued(row.id, duplicate=False, woken=bool(stored["woken"]), created_at=stored["created_at"])]

    async def _with_repeated(self, page: list[Row], stored: set[UUID], connection: Connection | None) -> list[Enqueued]:
        """Some ids were there already: fine if the same job was meant, an error if not."""
        repeated = [row for row in page if row.id not in stored]
        bodies = await self._postgres.fetch("stored_bodies", [row.id for row in repeated], connection=connection)
        known = {body["id"]: body for body in bodies}
        for row in repeated:
            body = known.get(row.id)
            if body is None or not is_same(row, body, opened(row, body["payload"], self._postgres.config)):
                raise IdTaken(row.id)
        return [Enqueued(row.id, duplicate=row.id not in stored) for row in page]

    # Idempotency keys. ----------------------------------------------------------------------------------------------

    async def _insert_keyed(self, rows: list[Row], connection: Connection) -> list[Enqueued]:
        prints = {row.id: fingerprint(row) for row in rows if row.key is not None}
        first: dict[str, Row] = {}
        for row in rows:
            if row.scoped_key is not None:
                first.setdefault(row.scoped_key, row)
        holders = await self._take_keys(first, prints, connection) if first else {}
        lost: dict[UUID, UUID] = {}
        for row in rows:
            if row.key is not None:
                holder, body = holders[row.scoped_key or ""]
                if body != prints[row.id]:
                    raise KeyReused(row.key)
                if holder != row.id:
                    lost[row.id] = holder
        winners = [row for row in rows if row.id not in lost]
        stored = {answer.id: answer for answer in await self._insert(winners, connection)}
        return [stored.get(row.id) or Enqueued(lost[row.id], duplicate=True) for row in rows]

    async def _take_keys(
        self, first: dict[str, Row], prints: dict[UUID, bytes], connection: Connection
    ) -> dict[str, tuple[UUID, bytes]]:
        """The holder of each key after we tried, and its body: us, or the job that was first."""
        keys = sorted(first)
        rows = [first[key] for key in keys]
        ids = [row.id for row in rows]
        plain = [None if row.namespace is None else row.key for row in rows]
        for _ in range(_LOOKS):
            try:
                await self._postgres.fetch(
                    "enqueue_keys", keys, ids, [prints[i] for i in ids], plain, connection=connection
                )
            except Contended as error:
                # Its holder may take hours: do not wait more.
                if getattr(error.__cause__, "sqlstate", "") == _LOCK_NOT_AVAILABLE:
                    raise KeyBusy(" or ".join(str(row.key) for row in rows[:3])) from error
                raise
            holders = await self._postgres.fetch("key_holders", keys, plain, connection=connection)
            if len(holders) == len(keys):
                return {row["key"]: (row["job_id"], row["fingerprint"]) for row in holders}
            # A key expired between the two statements: take it again.
        raise Contended("idempotency keys kept expiring under us")

    # Actions on jobs by id. -----------------------------------------------------------------------------------------

    async def cancel(self, job_id: UUID, reason: str = "cancelled on request") -> Status:
        """Cancelled if it was waiting; running if its worker was asked. Raises JobNotFound, NotPossible."""
        return _one(await self.cancel_many([job_id], reason), job_id)

    async def retry(self, job_id: UUID, *, among: Collection[Status] = FINISHED) -> Status:
        """Make a finished job ready again, with its attempts kept and its failures at zero."""
        return _one(await self.retry_many([job_id], among=among), job_id)

    async def run_now(self, job_id: UUID) -> Status:
        """Make a scheduled or held job ready."""
        return _one(await self.run_now_many([job_id]), job_id)

    async def cancel_many(
        self, job_ids: Iterable[UUID], reason: str = "cancelled on request", *, running: bool = True
    ) -> dict[UUID, Status | WindlassError]:
        document = error_document(Error("Cancelled", reason))
        beyond = FINISHED if running else FINISHED | {Status.RUNNING}
        return await self._act("cancel", job_ids, document, running, impossible=beyond)

    async def retry_many(
        self, job_ids: Iterable[UUID], *, among: Collection[Status] = FINISHED
    ) -> dict[UUID, Status | WindlassError]:
        others = frozenset(Status) - frozenset(among)
        head_start_s = self._postgres.config.head_start_s
        return await self._act("retry", job_ids, head_start_s, [each.value for each in among], impossible=others)

    async def run_now_many(self, job_ids: Iterable[UUID]) -> dict[UUID, Status | WindlassError]:
        elsewhere = frozenset(Status) - {Status.SCHEDULED, Status.HELD}
        return await self._act("run_now", job_ids, impossible=elsewhere)

    async def discard(self, job_id: UUID, reason: str = "discarded on request") -> Status:
        """Take a failed job out of the dead letters: it is cancelled, and its failure is kept among its attempts."""
        return _one(await self.discard_many([job_id], reason), job_id)

    async def discard_many(
        self, job_ids: Iterable[UUID], reason: str = "discarded on request"
    ) -> dict[UUID, Status | WindlassError]:
        document = error_document(Error("Discarded", reason))
        return await self._act("discard", job_ids, document, impossible=frozenset(Status) - {Status.FAILED})

    async def decide(self, job_id: UUID, decision: Decision, effect: str | None = None) -> Status:
        """Say whether an effect that may have happened has happened: `done`, or `redo`. Ready once nothing is undecided, else
        held. Raises JobNotFound, NotPossible."""

        async def run() -> asyncpg.Record | None:
            async with self._postgres.transaction(pinned=True) as connection:
                if not await self._postgres.fetch("lock_undecided", job_id, connection=connection):
                    return None
                return (await self._postgres.fetch("decide", job_id, decision, effect, connection=connection))[0]

        for look in range(_LOOKS):
            if (row := await patiently(run)) is not None:
                return _decided(job_id, row, effect)
            places = {each["job_id"]: each["status"] for each in await self._postgres.pinned("whereabouts", [job_id])}
            if job_id not in places:
                raise JobNotFound(job_id)
            if places[job_id] is not None:
                raise NotPossible(f"job {job_id} is {places[job_id]}, and does not wait for a decision")
            await asyncio.sleep(0.001 * look)
        raise _impossible("decide", job_id, "moving")

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
            looked = await self._postgres.pinned("whereabouts", left)
            places = {row["job_id"]: row["status"] for row in looked}
            undecided = {row["job_id"] for row in looked if row["reason"] == needs_decision}
            for job_id in left:
                if job_id not in places:
                    answers[job_id] = JobNotFound(job_id)
                elif places[job_id] in impossible:
                    answers[job_id] = _impossible(verb, job_id, places[job_id])
                elif verb == "run_now" and job_id in undecided:
                    answers[job_id] = NotPossible(
                        f"job {job_id} waits for a decision; say it: windlass jobs decide {job_id} done, or redo"
                    )
            left = [job_id for job_id in left if job_id not in answers]
            await asyncio.sleep(0.001 * look)
        return answers | {job_id: _impossible(verb, job_id, "moving") for job_id in left}

    async def admit_names(self, kind: NameKind, names: Collection[str], *, most: int) -> set[str]:
        """Note names that are new. Returns those there is no room for; then none is noted."""
        return await self._names.admit(kind, names, most=most)

    async def set_paused(self, queue: str, *, paused: bool) -> None:
        """Stop or resume claims from a queue; what runs goes on, and nothing moves."""
        check_name("queue", queue, queue_name_max)
        await self._postgres.fetch("set_paused", queue, paused)

    async def ask_to_leave(self, worker_id: UUID, how: Leave) -> None:
        """Ask a worker to finish its jobs and go for good, or to give them back at once and start anew."""
        if await self._postgres.fetch("ask_to_leave", worker_id, how):
            return
        found = await self._postgres.fetch("workers", worker_id)
        if not found:
            raise WorkerNotFound(worker_id)
        name = found[0]["name"]
        if found[0]["died_at"] is None and found[0]["lease_left_s"] > 0:
            raise NotPossible(f"worker {name} has no supervisor that could let it {how}")
        raise NotPossible(f"worker {name} has ended")


def _fault(error: asyncpg.PostgresError) -> WindlassError:
    """What should not be: the answer for this job alone."""
    fault = WindlassError(f"PostgreSQL refuses the job: {error}")
    fault.__cause__ = error
    return fault


def _one(answers: dict[UUID, Status | WindlassError], job_id: UUID) -> Status:
    answer = answers[job_id]
    if isinstance(answer, WindlassError):
        raise answer
    return answer


def _decided(job_id: UUID, row: asyncpg.Record, effect: str | None) -> Status:
    asked = ", ".join(repr(key) for key in row["asked"])
    if row["asked"] and row["chosen"] is None and effect is None:
        raise NotPossible(f"several effects of job {job_id} wait for a decision ({asked}); name one")
    if row["chosen"] is None and effect is not None:
        raise NotPossible(
            f"no effect {effect!r} of job {job_id} waits for a decision" + (f"; these do: {asked}" if asked else "")
        )
    return Status.READY if row["ready"] else Status.HELD


def _impossible(verb: str, job_id: UUID, place: str) -> NotPossible:
    return NotPossible(f"job {job_id} is {place} and cannot be {_DONE[verb]}")
