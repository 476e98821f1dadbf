"""What callers do to jobs, queues and workers."""

from collections.abc import Collection, Iterable, Sequence
from typing import Any, Protocol
from uuid import UUID

from windlass.errors import WindlassError
from windlass.model import (
    Decision,
    Enqueued,
    Leave,
    NameKind,
    NewJob,
    Status,
)


class Intake(Protocol):
    """What callers do to jobs, queues and workers."""

    async def enqueue(self, jobs: Sequence[NewJob], *, connection: Any = None) -> list[Enqueued]:
        """Store all or none, in order. A job whose id or idempotency key is there already is answered as duplicate.
        With `connection`, inside the caller's transaction."""

    async def enqueue_each(self, jobs: Sequence[NewJob]) -> list[Enqueued | WindlassError]:
        """Store independent jobs together; one that cannot be stored gets its error, and the others are stored. None waits
        long for another's key: who wants to wait for his own calls `enqueue` with that job alone."""

    async def cancel(self, job_id: UUID, reason: str = ...) -> Status:
        """Cancelled if it was waiting; running if its worker was asked. Raises JobNotFound, NotPossible."""

    async def retry(self, job_id: UUID, *, among: Collection[Status] = ...) -> Status:
        """Make a finished job ready again, with its attempts kept and its failures at zero. `among`: only if it is in one
        of these statuses at that very moment; one that was replayed and has completed meanwhile must not run again."""

    async def run_now(self, job_id: UUID) -> Status:
        """Make a scheduled or held job ready."""

    async def decide(self, job_id: UUID, decision: Decision, effect: str | None = ...) -> Status:
        """Say whether an effect that may have happened has happened: `done`, or `redo`. `effect`: its key, where several wait.
        Ready once nothing is undecided, else held. Raises JobNotFound, NotPossible."""

    async def cancel_many(
        self, job_ids: Iterable[UUID], reason: str = ..., *, running: bool = True
    ) -> dict[UUID, Status | WindlassError]:
        """`running`: also those that run at that very moment; else only those that wait."""

    async def retry_many(
        self, job_ids: Iterable[UUID], *, among: Collection[Status] = ...
    ) -> dict[UUID, Status | WindlassError]: ...

    async def run_now_many(self, job_ids: Iterable[UUID]) -> dict[UUID, Status | WindlassError]: ...

    async def discard(self, job_id: UUID, reason: str = ...) -> Status:
        """Take a failed job out of the dead letters: it is cancelled, and its failure is kept among its attempts."""

    async def discard_many(self, job_ids: Iterable[UUID], reason: str = ...) -> dict[UUID, Status | WindlassError]: ...

    async def admit_names(self, kind: NameKind, names: Collection[str], *, most: int) -> set[str]:
        """Note names of queues, undeclared types or tags that are new: `most` of a kind may be. Returns those there
        is no room for; then none is noted."""

    async def set_paused(self, queue: str, *, paused: bool) -> None:
        """Stop or resume claims from a queue; what runs goes on, and nothing moves."""

    async def ask_to_leave(self, worker_id: UUID, how: Leave) -> None:
        """Ask a worker to finish its jobs and go for good (`drain`), or to give them back at once and start anew (`stop`). Its
        supervisor is told. Raises WorkerNotFound, NotPossible."""
