"""An Intake that wakes workers for what it has stored: step 2 on the path of a job.

Hints go out after the commit. In a caller's own transaction, whose commit we do not see, PostgreSQL carries one: to
every worker, when and if it commits.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from windlass.bus.protocol import Waker
from windlass.errors import WindlassError
from windlass.model import FINISHED, Decision, Enqueued, Leave, NameKind, NewJob, Status, Want
from windlass.store.protocol import Hints, Intake


class Waking:
    """Everything an Intake does, and a hint for whoever should know."""

    def __init__(self, intake: Intake, waker: Waker, hints: Hints) -> None:
        self._intake = intake
        self._waker = waker
        self._hints = hints

    async def enqueue(self, jobs: Sequence[NewJob], *, connection: Any = None) -> list[Enqueued]:
        answers = await self._intake.enqueue(jobs, connection=connection)
        wants = wants_of(jobs, answers)
        if wants and connection is None:
            self._waker.wake(wants)
        elif wants:
            await self._hints.call_all(connection=connection)
        return answers

    async def enqueue_each(self, jobs: Sequence[NewJob]) -> list[Enqueued | WindlassError]:
        answers = await self._intake.enqueue_each(jobs)
        if wants := wants_of(jobs, answers):
            self._waker.wake(wants)
        return answers

    async def cancel(self, job_id: UUID, reason: str = "cancelled on request") -> Status:
        status = await self._intake.cancel(job_id, reason)
        if status is Status.RUNNING:
            self._waker.nudge([job_id])
        return status

    async def retry(self, job_id: UUID, *, among: Collection[Status] = FINISHED) -> Status:
        status = await self._intake.retry(job_id, among=among)
        self._waker.wake_all()
        return status

    async def run_now(self, job_id: UUID) -> Status:
        status = await self._intake.run_now(job_id)
        self._waker.wake_all()
        return status

    async def decide(self, job_id: UUID, decision: Decision, effect: str | None = None) -> Status:
        status = await self._intake.decide(job_id, decision, effect)
        if status is Status.READY:
            self._waker.wake_all()
        return status

    async def cancel_many(
        self, job_ids: Iterable[UUID], reason: str = "cancelled on request", *, running: bool = True
    ) -> dict[UUID, Status | WindlassError]:
        answers = await self._intake.cancel_many(job_ids, reason, running=running)
        if asked := [job_id for job_id, answer in answers.items() if answer is Status.RUNNING]:
            self._waker.nudge(asked)
        return answers

    async def retry_many(
        self, job_ids: Iterable[UUID], *, among: Collection[Status] = FINISHED
    ) -> dict[UUID, Status | WindlassError]:
        return self._woken(await self._intake.retry_many(job_ids, among=among))

    async def run_now_many(self, job_ids: Iterable[UUID]) -> dict[UUID, Status | WindlassError]:
        return self._woken(await self._intake.run_now_many(job_ids))

    async def discard(self, job_id: UUID, reason: str = "discarded on request") -> Status:
        return await self._intake.discard(job_id, reason)

    async def discard_many(
        self, job_ids: Iterable[UUID], reason: str = "discarded on request"
    ) -> dict[UUID, Status | WindlassError]:
        return await self._intake.discard_many(job_ids, reason)

    async def admit_names(self, kind: NameKind, names: Collection[str], *, most: int) -> set[str]:
        return await self._intake.admit_names(kind, names, most=most)

    async def set_paused(self, queue: str, *, paused: bool) -> None:
        await self._intake.set_paused(queue, paused=paused)
        if not paused:
            self._waker.wake_all()

    async def ask_to_leave(self, worker_id: UUID, how: Leave) -> None:
        await self._intake.ask_to_leave(worker_id, how)

    def _woken(self, answers: dict[UUID, Status | WindlassError]) -> dict[UUID, Status | WindlassError]:
        if Status.READY in answers.values():
            self._waker.wake_all()
        return answers


def wants_of(jobs: Sequence[NewJob], answers: Sequence[Enqueued | WindlassError]) -> list[Want]:
    """What has become ready: jobs that were stored, not there before, and not for later (the leader wakes for those)."""
    return [Want(*kind, count) for kind, count in Counter(_kinds(jobs, answers)).items()]


def _kinds(jobs: Sequence[NewJob], answers: Sequence[Enqueued | WindlassError]) -> Iterator[tuple[str, str, int]]:
    now = datetime.now(UTC)
    for job, answer in zip(jobs, answers, strict=True):
        if isinstance(answer, Enqueued) and not (answer.duplicate or answer.woken or job.is_later(now)):
            yield job.queue, job.type, job.thread_demand
