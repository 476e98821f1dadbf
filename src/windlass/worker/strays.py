"""Leases that a worker has without knowing: claims whose answer was lost, jobs handed to it whose notification was.

They are looked for and given back. A notification may come after all, during the search or after it; so tokens are remembered
before their leases go back, and what is handed over while a search is under way waits for its end. Nor is anything a stray that a
claim has brought since the search began, or may just be bringing. Else a job would begin here that is somebody else's by then.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final
from uuid import UUID

from windlass.model import Lease
from windlass.store.protocol import Claims

_REMEMBERED_MAX: Final = 10_000


class Strays:
    """`held`: every lease that the worker knows of. `asking`: whether a claim is on its way. `take`: called with what was
    handed over and had to wait."""

    def __init__(
        self,
        worker_id: UUID,
        claims: Claims,
        *,
        held: Callable[[], Sequence[Lease]],
        asking: Callable[[], bool],
        take: Callable[[Lease], None],
    ) -> None:
        self._worker_id = worker_id
        self._claims = claims
        self._held = held
        self._asking = asking
        self._take = take
        self._under_way = 0
        self._waiting: list[Lease] = []
        self._given_back: dict[UUID, None] = {}  # tokens, oldest first

    def keeps_back(self, lease: Lease) -> bool:
        """Whether a lease that was handed over must not be taken: not now, or never."""
        if self._under_way:
            self._waiting.append(lease)
            return True
        return lease.token in self._given_back

    @contextmanager
    def holding_up(self) -> Iterator[None]:
        """What is handed over meanwhile is taken at the end."""
        self._under_way += 1
        try:
            yield
        finally:
            self._under_way -= 1
            if not self._under_way:
                waiting, self._waiting = self._waiting, []
                for lease in waiting:
                    self._take(lease)

    async def give_back(self, older_than_s: float) -> list[Lease]:
        """Returns what went back. `older_than_s`: what is younger may yet be heard of."""
        with self.holding_up():
            held = {lease.job_id for lease in self._held()}
            found = await self._claims.strays(self._worker_id, held, older_than_s=older_than_s)
            known = {lease.token for lease in self._held()}
            strays = [] if self._asking() else [lease for lease in found if lease.token not in known]
            self._given_back |= dict.fromkeys(lease.token for lease in strays)
            while len(self._given_back) > _REMEMBERED_MAX:
                del self._given_back[next(iter(self._given_back))]
        if not strays:  # as nearly always: a release would make the next claim a full look
            return []
        moved = (await self._claims.release(strays)).moved
        return [lease for lease in strays if lease.job_id in moved]
