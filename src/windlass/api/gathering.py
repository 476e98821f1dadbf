"""Single submissions that are in flight together share one transaction.

An answer is given after the commit, to each caller his own: one that cannot be stored fails alone. Jobs with an
idempotency key go apart from the others, since they take longer; and one whose key another transaction holds waits for
it aside, where nobody stands behind it.
"""

from types import TracebackType
from typing import Final, Self

from windlass.api.together import Together
from windlass.errors import KeyBusy
from windlass.model import Enqueued, NewJob
from windlass.store.protocol import Intake

_ASIDE: Final = 4  # each has a connection meanwhile, and there are few
_WHAT: Final = "submissions are waiting to be stored"


class Gathering:
    def __init__(self, intake: Intake, *, plain_lanes: int = 1, keyed_lanes: int = 2) -> None:
        self._intake = intake
        self._held: set[str] = set()  # keys, with their namespaces, that someone waits for aside
        self._plain: Together[NewJob, Enqueued] = Together(intake.enqueue_each, what=_WHAT, lanes=plain_lanes)
        self._keyed: Together[NewJob, Enqueued] = Together(intake.enqueue_each, what=_WHAT, lanes=keyed_lanes)

    async def submit(self, job: NewJob) -> Enqueued:
        """Stored, or refused, when this returns."""
        key = job.scoped_key
        if key is None:
            return await (self._plain if job.id is None and job.owner is None else self._keyed).ask(job)
        if key not in self._held:
            try:
                return await self._keyed.ask(job)
            except KeyBusy:
                pass
        return await self._aside(key, job)

    async def _aside(self, key: str, job: NewJob) -> Enqueued:
        """Wait for whoever holds the key, one caller for each key: another is told at once that it is held."""
        if key in self._held or len(self._held) >= _ASIDE:
            raise KeyBusy(job.idempotency_key or "")
        self._held.add(key)
        try:
            return (await self._intake.enqueue([job]))[0]
        finally:
            self._held.discard(key)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._plain.close()
        await self._keyed.close()
