"""An Intake behind shortcuts: a key that is known to be taken is answered without PostgreSQL, and what is shown of a job is
void once something was done to it.

Asked first, told last: a memory learns of a key after the commit that took it. The other way round, a process that dies in
between makes the repetition a duplicate of a job that does not exist. In a caller's own transaction, whose commit is not
seen, there is no shortcut at all.
"""

from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from typing import Any, Final, TypeVar
from uuid import UUID

from windlass.bus.protocol import Recalled, Remembered, Shortcuts
from windlass.errors import WindlassError
from windlass.model import FINISHED, Decision, Enqueued, Leave, NameKind, NewJob, Status
from windlass.store.protocol import Intake
from windlass.store.rows import fingerprint_of

A = TypeVar("A")

_FEW: Final = 500


class Remembering:
    """Everything an Intake does. `bytes_max`: of a payload."""

    def __init__(self, intake: Intake, shortcuts: Shortcuts, *, bytes_max: int) -> None:
        self._intake = intake
        self._keys = shortcuts.keys
        self._jobs = shortcuts.jobs
        self._bytes_max = bytes_max

    # Enqueue. -------------------------------------------------------------------------------------------------------

    async def enqueue(self, jobs: Sequence[NewJob], *, connection: Any = None) -> list[Enqueued]:
        if connection is not None:
            return await self._intake.enqueue(jobs, connection=connection)
        return await self._shortened(jobs, self._intake.enqueue)

    async def enqueue_each(self, jobs: Sequence[NewJob]) -> list[Enqueued | WindlassError]:
        return await self._shortened(jobs, self._intake.enqueue_each)

    async def _shortened(
        self, jobs: Sequence[NewJob], enqueue: Callable[[Sequence[NewJob]], Awaitable[list[A]]]
    ) -> "list[Enqueued | A]":
        keys = _keys(jobs)
        if not keys:
            return [*await enqueue(jobs)]
        recalled = await self._keys.recall(keys)
        known, rest = self._split(jobs, recalled)
        stored = await enqueue(rest) if rest else []
        self._learn(rest, stored, recalled)
        left = iter(stored)
        return [known.get(n) or next(left) for n in range(len(jobs))]

    def _split(self, jobs: Sequence[NewJob], recalled: Recalled) -> tuple[dict[int, Enqueued], Sequence[NewJob]]:
        """What is answered already, by its place; and what PostgreSQL decides: whatever is not known, or wrong, or not the
        same as before."""
        if not recalled.found:
            return {}, jobs
        known: dict[int, Enqueued] = {}
        for n, job in enumerate(jobs):
            holder = recalled.found.get(job.scoped_key or "")
            # An id of the caller's is checked by the store, key or not.
            if holder is not None and job.id is None and self._fingerprint(job) == holder.fingerprint:
                known[n] = Enqueued(holder.job_id, duplicate=True)
        return known, [job for n, job in enumerate(jobs) if n not in known]

    def _learn(self, jobs: Sequence[NewJob], stored: Sequence[object], recalled: Recalled) -> None:
        if recalled.under is None:
            return
        taken: dict[str, Remembered] = {}
        for job, answer in zip(jobs, stored, strict=True):
            if job.scoped_key is not None and isinstance(answer, Enqueued):
                fingerprint = self._fingerprint(job)
                if fingerprint is not None:
                    taken[job.scoped_key] = Remembered(answer.id, fingerprint)
        self._keys.learn(taken, under=recalled.under)

    def _fingerprint(self, job: NewJob) -> bytes | None:
        try:
            return fingerprint_of(job, bytes_max=self._bytes_max)
        except WindlassError:  # the store says what is wrong with it
            return None

    # Actions. -------------------------------------------------------------------------------------------------------

    async def cancel(self, job_id: UUID, reason: str = "cancelled on request") -> Status:
        return await self._voiding([job_id], self._intake.cancel(job_id, reason))

    async def retry(self, job_id: UUID, *, among: Collection[Status] = FINISHED) -> Status:
        return await self._voiding([job_id], self._intake.retry(job_id, among=among))

    async def run_now(self, job_id: UUID) -> Status:
        return await self._voiding([job_id], self._intake.run_now(job_id))

    async def decide(self, job_id: UUID, decision: Decision, effect: str | None = None) -> Status:
        return await self._voiding([job_id], self._intake.decide(job_id, decision, effect))

    async def cancel_many(
        self, job_ids: Iterable[UUID], reason: str = "cancelled on request", *, running: bool = True
    ) -> dict[UUID, Status | WindlassError]:
        ids = list(job_ids)
        return await self._voiding(ids, self._intake.cancel_many(ids, reason, running=running))

    async def retry_many(
        self, job_ids: Iterable[UUID], *, among: Collection[Status] = FINISHED
    ) -> dict[UUID, Status | WindlassError]:
        ids = list(job_ids)
        return await self._voiding(ids, self._intake.retry_many(ids, among=among))

    async def run_now_many(self, job_ids: Iterable[UUID]) -> dict[UUID, Status | WindlassError]:
        ids = list(job_ids)
        return await self._voiding(ids, self._intake.run_now_many(ids))

    async def discard(self, job_id: UUID, reason: str = "discarded on request") -> Status:
        return await self._voiding([job_id], self._intake.discard(job_id, reason))

    async def discard_many(
        self, job_ids: Iterable[UUID], reason: str = "discarded on request"
    ) -> dict[UUID, Status | WindlassError]:
        ids = list(job_ids)
        return await self._voiding(ids, self._intake.discard_many(ids, reason))

    async def _voiding(self, job_ids: Sequence[UUID], action: Awaitable[A]) -> A:
        try:
            return await action
        finally:  # also when it fails: it may have been done, and only the answer be lost
            await self._jobs.drop(job_ids)

    async def admit_names(self, kind: NameKind, names: Collection[str], *, most: int) -> set[str]:
        return await self._intake.admit_names(kind, names, most=most)

    async def set_paused(self, queue: str, *, paused: bool) -> None:
        await self._intake.set_paused(queue, paused=paused)

    async def ask_to_leave(self, worker_id: UUID, how: Leave) -> None:
        await self._intake.ask_to_leave(worker_id, how)


def _keys(jobs: Sequence[NewJob]) -> list[str]:
    """Each in its namespace: one caller's key says nothing about another's. None of a large batch: what it would take
    to look at each of its payloads once more would hold everybody up, to spare a transaction that all of them
    share."""
    if len(jobs) > _FEW:
        return []
    return list({key: None for job in jobs if (key := job.scoped_key) is not None})
