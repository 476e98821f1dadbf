"""The names that submissions use: queues, types that no worker has declared, and tags. How many there may be is
bounded.

Names are counted at most once a second in each process, and only while new ones come: whoever uses known names pays
nothing, and several processes together may exceed a bound by what they admit within that second.
"""

from collections.abc import Collection
from typing import Final

from windlass.clock import steady_s
from windlass.model import NameKind
from windlass.store.postgres import Postgres

_COUNTED_S: Final = 1.0
_PAGE: Final = 1_000


class Names:
    def __init__(self, postgres: Postgres) -> None:
        self._postgres = postgres
        self._room: dict[NameKind, int] = {}  # how many more may come, as far as this process knows
        self._counted_s: dict[NameKind, float] = {}

    async def admit(self, kind: NameKind, names: Collection[str], *, most: int) -> set[str]:
        """Note the names that are new. Returns those there is no room for; then none is noted."""
        new = {row["name"] for row in await self._postgres.fetch("new_names", kind, sorted(names))}
        if not new:
            return new
        await self._count(kind, most)
        if len(new) > self._room[kind]:
            return new
        self._room[kind] -= len(new)  # before the next await: others in this process admit names meanwhile
        await self._postgres.fetch("note_names", kind, sorted(new))
        return set()

    async def _count(self, kind: NameKind, most: int) -> None:
        now_s = steady_s()
        if kind not in self._room or now_s - self._counted_s[kind] >= _COUNTED_S:
            ((count,),) = await self._postgres.fetch("count_names", kind)
            self._room[kind], self._counted_s[kind] = most - count, now_s

    async def keep(self, *, unused_s: float) -> set[str]:
        """Note queues and types that have jobs, and forget those that have had none for a while. Returns what was
        forgotten."""
        await self._postgres.fetch("note_used_names")
        forgotten = {row["name"] for row in await self._postgres.fetch("forget_names", unused_s)}
        return forgotten | {row["name"] for row in await self._postgres.fetch("forget_queues")}

    async def forget_tags(self, *, unused_s: float, limit: int = _PAGE) -> int:
        """Forget tags that no job has any more."""
        forgotten, after = 0, ""
        while True:
            page = [row["name"] for row in await self._postgres.pinned("old_tags", unused_s, after, limit)]
            if page:
                forgotten += len(await self._postgres.pinned("forget_tags", page))
            if len(page) < limit:
                return forgotten
            after = page[-1]
