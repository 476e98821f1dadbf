"""What the bus offers: waking workers and listening for it, and shortcuts past PostgreSQL. Hints and memories only: nothing is
correct because of one, and each has a twin that does nothing.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol
from uuid import UUID

from windlass.model import Lease, Want

# Called with a channel and what was said there: "", a lease that is handed over, "cancel", or RECONNECTED.
OnHint = Callable[[str, str], None]
# Hints may have been missed. Known by its identity: anyone may notify a word like it.
RECONNECTED: Final = "reconnected"


class Waker(Protocol):
    """Tells others to look now. Returns at once, never raises, and coalesces what comes close together."""

    def wake(self, wants: Iterable[Want]) -> None:
        """Wake, for each job, the least recently used idle worker with room for it. Call after the commit."""

    def wake_workers(self, worker_ids: Iterable[UUID]) -> None:
        """Wake those of these workers that are idle: others would give the jobs back. Call after the commit."""

    def wake_all(self) -> None:
        """Wake every worker: something is ready, and it is not known what."""

    def nudge(self, job_ids: Iterable[UUID]) -> None:
        """Tell those who run these jobs that a cancel was asked for."""


class NoWaker:
    """The twin that does nothing: workers find jobs by polling."""

    def wake(self, wants: Iterable[Want]) -> None:
        """Nothing."""

    def wake_workers(self, worker_ids: Iterable[UUID]) -> None:
        """Nothing."""

    def wake_all(self) -> None:
        """Nothing."""

    def nudge(self, job_ids: Iterable[UUID]) -> None:
        """Nothing."""


# Shortcuts. ---------------------------------------------------------------------------------------------------------


class Remembered(NamedTuple):
    """The job that has an idempotency key, and the fingerprint of the submission that took it."""

    job_id: UUID
    fingerprint: bytes


class Recalled(NamedTuple):
    """What is remembered of some keys. `under`: of which store, as it was then; for `learn` alone."""

    found: Mapping[str, Remembered]
    under: Any = None


class KeyMemory(Protocol):
    """Remembers who has which idempotency key, each with its namespace (model.scoped_key). Never raises, never waits
    long, may forget anything at any time; but what it says is true: PostgreSQL would say the same."""

    async def recall(self, keys: Collection[str]) -> Recalled:
        """Those of the keys that are remembered."""

    def learn(self, taken: Mapping[str, Remembered], *, under: Any) -> None:
        """Remember, soon. Only after the commit: what is remembered and not stored is a lost job. `under`: what `recall`
        said before that; if the store is another one since, nothing is learnt."""

    def forget(self, keys: Iterable[str]) -> None:
        """There is doubt about these: ask PostgreSQL from now on."""


class NoKeyMemory:
    """The twin that remembers nothing: PostgreSQL is always asked."""

    async def recall(self, keys: Collection[str]) -> Recalled:  # noqa: ARG002
        return Recalled({})

    def learn(self, taken: Mapping[str, Remembered], *, under: Any) -> None:
        """Nothing."""

    def forget(self, keys: Iterable[str]) -> None:
        """Nothing."""


class JobCache(Protocol):
    """Unfinished jobs as they were shown a moment ago. Never raises, never waits long, may forget anything."""

    @property
    def usable(self) -> bool:
        """Whether what is kept now is kept at all: worth making it."""

    async def look(self, job_id: UUID) -> bytes | None:
        """What was kept, if that is not too long ago."""

    def keep(self, job_id: UUID, shown: bytes, *, read_s: float) -> None:
        """Keep it for a moment from when it was read (`steady_s`). Of unfinished jobs only: others are asked for when they
        matter."""

    async def drop(self, job_ids: Iterable[UUID]) -> None:
        """Something was done to these: what is kept, or is just being kept by somebody who looked before, is void."""


class NoJobCache:
    """The twin that keeps nothing."""

    usable: Final = False

    async def look(self, job_id: UUID) -> bytes | None:  # noqa: ARG002
        return None

    def keep(self, job_id: UUID, shown: bytes, *, read_s: float) -> None:
        """Nothing."""

    async def drop(self, job_ids: Iterable[UUID]) -> None:
        """Nothing."""


# Locks. -------------------------------------------------------------------------------------------------------------


class ExecutionLocks(Protocol):
    """A lock on each execution, as defence in depth: it shows where an earlier execution of a job may still go on. Nothing depends
    on it. Returns at once, never raises, may forget anything. Called on the loop."""

    def acquire(self, leases: Sequence[Lease]) -> None:
        """These jobs were claimed, and are about to begin. What is cached of them is void."""

    def release(self, leases: Sequence[Lease]) -> None:
        """These executions have ended."""


class NoExecutionLocks:
    """The twin that does nothing."""

    def acquire(self, leases: Sequence[Lease]) -> None:
        """Nothing."""

    def release(self, leases: Sequence[Lease]) -> None:
        """Nothing."""


NO_LOCKS: Final = NoExecutionLocks()


def _unknown() -> str | None:
    return None


@dataclass(frozen=True, slots=True)
class Shortcuts:
    """Ways past PostgreSQL; all of them may be closed at any time. `health`: how what they lead through is, in a word or two
    that anyone may read; None: there is nothing."""

    keys: KeyMemory = field(default_factory=NoKeyMemory)
    jobs: JobCache = field(default_factory=NoJobCache)
    health: Callable[[], str | None] = _unknown
