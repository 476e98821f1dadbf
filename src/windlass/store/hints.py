"""Who rests, and how to wake them: the table behind the wake-ups, and the channels they travel on.

A worker with nothing to do rests, claims once more, and sleeps; a submitter commits, then rouses. Whichever comes
second sees the other, so a job is never overlooked for longer than it takes a hint to be lost and a poll to come round.
"""

import asyncio
import json
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Final
from uuid import UUID

from windlass.model import Want
from windlass.store.foreign import adapted
from windlass.store.postgres import Postgres
from windlass.store.protocol import LATE_S, Ear, Pusher, broadcast_channel

_PAGE: Final = 64  # workers woken by one statement
_PAGES: Final = 16
_BESIDE_S: Final = 0.001
_COUNT_MAX: Final = 100_000  # jobs of one want: far more than 1,024 workers can take


class Hints:
    def __init__(
        self, postgres: Postgres, pusher: Pusher | None = None, ear: Callable[[], Ear] = lambda: Ear.LISTENS
    ) -> None:
        self._postgres = postgres
        self._pusher = pusher
        self._ear = ear
        self._said = Ear.LISTENS
        self._all_busy = False

    def through(self, pusher: Pusher | None, ear: Callable[[], Ear] = lambda: Ear.LISTENS) -> "Hints":
        """The same, and workers that pop are told through `pusher`. `ear`: how those who rest by these hints hear."""
        return Hints(self._postgres, pusher, ear)

    async def rest(
        self,
        worker_id: UUID,
        *,
        queues: Sequence[str],
        types: Sequence[str],
        free: int,
        worked: bool = False,
        hand_key: UUID | None = None,
        hand_for_s: float = 0.0,
    ) -> int:
        """Stand in line to be woken. Then claim once more: what was committed before this is woken for by nobody."""
        self._said = ear = self._ear()
        key = hand_key if ear is Ear.LISTENS else None
        said = (worker_id, free, list(queues), list(types), worked, ear is Ear.POPS, key, hand_for_s, LATE_S)
        row = await self._postgres.fetchrow("rest", *said)
        return 0 if row is None else int(row["held"])

    @property
    def outdated(self) -> bool:
        """Whether the worker that rests by these hints is to be told in another way than it said."""
        return self._said is not self._ear()

    async def leave(self, worker_id: UUID) -> None:
        await self._postgres.fetch("leave", worker_id)

    async def rouse(self, wants: Iterable[Want]) -> list[UUID]:
        """Wake the least recently used idle workers with room for these jobs; returns whom. Call after the commit."""
        left = [want._replace(count=min(want.count, _COUNT_MAX)) for want in wants if want.count > 0]
        woken: list[UUID] = []
        if len(left) == 1 and left[0].count == 1 and not self._all_busy:
            row = await self._postgres.fetchrow("rouse_one", *left[0][:3], self._pusher is not None)
            if row is not None:
                await self._push([row["worker_id"]] if row["pops"] else [])
                return [row["worker_id"]]
        for _ in range(_PAGES):
            if not left or not await self._anyone_idle():
                break
            asked = json.dumps([want._asdict() for want in left])
            row = await self._postgres.fetchrow("rouse", asked, _PAGE, self._pusher is not None)
            self._all_busy = row is None or not (row["found"] or row["passed"])
            if row is None or self._all_busy:
                break
            woken += row["woken"]
            await self._push(row["popping"])
            left = [want._replace(count=n) for want, n in zip(left, row["short"], strict=True) if n > 0]
            if left and not row["found"]:
                await asyncio.sleep(_BESIDE_S)  # another rouser has locked them all, perhaps more than it will take
        return woken

    async def wake_workers(self, worker_ids: Collection[UUID]) -> list[UUID]:
        """Wake those of these workers that are idle; returns which. Call after the commit."""
        rows = await self._postgres.fetch("wake_workers", sorted(worker_ids), self._pusher is not None)
        await self._push([row["worker_id"] for row in rows if row["pops"]])
        return [row["worker_id"] for row in rows]

    async def _anyone_idle(self) -> bool:
        """Asked only while all were busy a moment ago: on a loaded system this is all that a wake-up costs."""
        if self._all_busy:
            row = await self._postgres.fetchrow("anyone_idle")
            self._all_busy = row is None or not row["anyone"]
        return not self._all_busy

    async def call_all(self, *, connection: Any = None) -> None:
        """Wake every worker that listens or pops; with `connection`, those that listen, when the caller's transaction commits."""
        if connection is not None:
            connection = await adapted(connection)
        await self._postgres.fetch("call_all", broadcast_channel(self._postgres.config.schema), connection=connection)
        if self._pusher is not None and connection is None:
            await self._push([row["worker_id"] for row in await self._postgres.fetch("popping", _PAGE * _PAGES)])

    async def _push(self, worker_ids: Sequence[UUID]) -> None:
        if worker_ids and self._pusher is not None:  # else they find it by polling
            await self._pusher.push(worker_ids)

    async def nudge(self, job_ids: Collection[UUID]) -> set[UUID]:
        """Tell the supervisors of those who run these jobs to look for cancel requests; returns which."""
        return {row["id"] for row in await self._postgres.pinned("nudge", sorted(job_ids))}
