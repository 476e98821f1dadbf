"""The quotas of submitters, as this process keeps them: who has one, what counts against it, and what may still come.

Subjects without a quota cost one look into a table in memory. For the others, unfinished jobs are counted in
PostgreSQL, at most once a second and subject, and what this process has admitted since is added. Several API
processes learn of each other's jobs by the next count: together they may exceed a quota by what the others admit in
that second. Submissions a second are counted in each process alone: a count that all share would be a write for every
submission.
"""

import asyncio
import math
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final

from windlass.clock import steady_s
from windlass.model import Enqueued, NewJob, Owner
from windlass.quotas import (
    QuotaUse,
    SubmissionRates,
    Submitter,
    Use,
    check_size,
    check_use,
    count_good_s,
    namespace_of,
    quota_uses,
    use_of,
)
from windlass.store.protocol import Accounts

_share: Final = 20  # a count is believed for so many times as long as it took: counting stays below 5 % of the time


class _Count:
    """What counts against one subject's quota: what was counted, and what was admitted here and may not be in that
    count."""

    __slots__ = ("added", "counted", "due_s", "in_flight", "reading")

    def __init__(self) -> None:
        self.counted = Use()
        self.added = Use()
        self.in_flight = Use()  # of what was added: being stored
        self.due_s = -math.inf
        self.reading: asyncio.Task[None] | None = None

    @property
    def use(self) -> Use:
        return self.counted.plus(self.added)


class Quotas:
    """`enforced`: False without authentication, where nobody has a subject of their own."""

    def __init__(self, accounts: Accounts, *, enforced: bool) -> None:
        self._accounts = accounts
        self._enforced = enforced
        self._submitters: Mapping[str, Submitter] = {}
        self._rates = SubmissionRates()
        self._counts: dict[str, _Count] = {}
        self.clock = steady_s

    async def read(self) -> None:
        """Learn who has which quota now."""
        self._submitters = await self._accounts.submitters()
        self._rates.keep(self._submitters)
        self._counts = {subject: count for subject, count in self._counts.items() if subject in self._submitters}

    def find(self, subject: str) -> Submitter | None:
        return self._submitters.get(subject)

    def owner(self, subject: str, *, named: bool) -> Owner | None:
        """Whose job it is, if that matters: `named`, with an id or idempotency key of the caller; or counted."""
        submitter = self._submitters.get(subject)
        if not self._enforced or (submitter is None and not named):
            return None
        namespace = namespace_of(subject, submitter) if named else None
        charged = subject if submitter is not None and submitter.is_counted else None
        return None if namespace is None and charged is None else Owner(namespace, charged)

    def take(self, submitter: Submitter, jobs: int) -> None:
        """Count a submission against the submissions a second. Raises QuotaExceeded."""
        self._rates.take(submitter, jobs, self.clock())

    @asynccontextmanager
    async def counted(self, submitter: Submitter, jobs: Collection[NewJob]) -> AsyncIterator[list[Enqueued]]:
        """Admit jobs, or raise BeyondQuota or QuotaExceeded. The block stores them and fills the list; what it does
        not store, and what was there before, is not counted."""
        stored: list[Enqueued] = []
        if not submitter.is_counted:
            yield stored
            return
        asked = use_of(jobs)
        check_size(submitter, asked)
        count = await self._fresh_count(submitter.subject)
        check_use(submitter, count.use, asked)
        # Nothing is awaited between the check and this: of two submissions at once the second sees the first.
        count.added = count.added.plus(asked)
        count.in_flight = count.in_flight.plus(asked)
        try:
            yield stored
        finally:
            count.in_flight = count.in_flight.plus(asked, -1)
            count.added = count.added.plus(asked, -1).plus(_new(jobs, stored))

    async def uses(self, submitter: Submitter) -> list[QuotaUse]:
        """Every quota that is set, and what counts against it."""
        use = (await self._fresh_count(submitter.subject)).use if submitter.is_counted else Use()
        return quota_uses(submitter, use)

    async def _fresh_count(self, subject: str) -> _Count:
        """Not older than a second. Who comes while it is read waits for the same reading."""
        count = self._counts.setdefault(subject, _Count())
        while self.clock() >= count.due_s:
            if count.reading is None:
                count.reading = asyncio.create_task(self._read_count(subject, count))
            await asyncio.shield(count.reading)  # a caller that hangs up must not take it from the others
        return count

    async def _read_count(self, subject: str, count: _Count) -> None:
        began_s = self.clock()
        committed = count.added.plus(
            count.in_flight, -1
        )  # the count will see these; of those in flight it is not known
        try:
            count.counted = await self._accounts.use(subject)
        finally:
            count.reading = None
        count.added = count.added.plus(committed, -1)
        now_s = self.clock()
        count.due_s = now_s + max(count_good_s, _share * (now_s - began_s))


def _new(jobs: Collection[NewJob], stored: Sequence[Enqueued]) -> Use:
    """What was stored of the jobs, without what was there before; nothing, if storing them failed."""
    if len(stored) != len(jobs):
        return Use()
    return use_of([job for job, answer in zip(jobs, stored, strict=True) if not answer.duplicate])
