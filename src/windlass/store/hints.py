"""Who rests, and how to wake them: the table behind the wake-ups, and the channels they travel on.

A worker with nothing to do rests, claims once more, and sleeps; a submitter commits, then rouses. Whichever comes
second sees the other, so a job is never overlooked for longer than it takes a hint to be lost and a poll to come round.
"""

import asyncio
import json
from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final
from uuid import UUID

from windlass.model import Want
from windlass.store.foreign import adapted
from windlass.store.postgres import Postgres
from windlass.store.protocol import broadcast_channel

_PAGE: Final = 64  # workers woken by one statement
_PAGES: Final = 16
_BESIDE_S: Final = 0.001
_COUNT_MAX: Final = 100_000  # jobs of one want: far more than 1,024 workers can take


class Hints:
    def __init__(self, postgres: Postgres) -> None:
        self._postgres = postgres
        self._all_busy = False

    async def rest(
        self, worker_id: UUID, *, queues: Sequence[str], types: Sequence[str], free: int, worked: bool = False
    ) -> None:
        """Stand in line to be woken. Then claim once more: what was committed before this is woken for by nobody."""
        await self._postgres.fetch("rest", worker_id, free, list(queues), list(types), worked)

    async def leave(self, worker_id: UUID) -> None:
        await self._postgres.fetch("leave", worker_id)

    async def rouse(self, wants: Iterable[Want]) -> list[UUID]:
        """Wake the least recently used idle workers with room for these jobs; returns whom. Call after the commit."""
        left = [want._replace(count=min(want.count, _COUNT_MAX)) for want in wants if want.count > 0]
        woken: list[UUID] = []
        if len(left) == 1 and left[0].count == 1 and not self._all_busy:
            row = await self._postgres.fetchrow("rouse_one", *left[0][:3])
            if row is not None:
                return [row["worker_id"]]
        for _ in range(_PAGES):
            if not left or not await self._anyone_idle():
                break
            row = await self._postgres.fetchrow("rouse", json.dumps([want._asdict() for want in left]), _PAGE)
            self._all_busy = row is None or not (row["found"] or row["passed"])
            if row is None or self._all_busy:
                break
            woken += row["woken"]
            left = [want._replace(count=n) for want, n in zip(left, row["short"], strict=True) if n > 0]
            if left and not row["found"]:
                await asyncio.sleep(_BESIDE_S)  # another rouser has locked them all, perhaps more than it will take
        return woken

    async def _anyone_idle(self) -> bool:
        """Asked only while all were busy a moment ago: on a loaded system this is all that a wake-up costs."""
        if self._all_busy:
            row = await self._postgres.fetchrow("anyone_idle")
            self._all_busy = row is None or not row["anyone"]
        return not self._all_busy

    async def call_all(self, *, connection: Any = None) -> None:
        """Wake every worker that listens; with `connection`, when the caller's transaction commits."""
        if connection is not None:
            connection = await adapted(connection)
        await self._postgres.fetch("call_all", broadcast_channel(self._postgres.config.schema), connection=connection)

    async def nudge(self, job_ids: Collection[UUID]) -> set[UUID]:
        """Tell the supervisors of those who run these jobs to look for cancel requests; returns which."""
        return {row["id"] for row in await self._postgres.pinned("nudge", sorted(job_ids))}
