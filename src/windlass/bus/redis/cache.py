"""Unfinished jobs as the API showed them a moment ago, in Redis: for dashboards and scripts that look again and again.

What is kept is what was shown, with secrets masked, sealed by the store together with the time it is good until. An action on a
job puts a marker in its place, which also keeps out what somebody who looked just before is about to keep; and this
process does not use what is kept of that job until all of it is too old.
"""

import struct
from collections.abc import Callable, Iterable
from typing import Final
from uuid import UUID

from windlass.bus.redis.later import Later
from windlass.bus.redis.link import Client, Link, pipeline
from windlass.bus.redis.seals import Seals
from windlass.clock import steady_s

_UNTIL: Final = struct.Struct("!Q")
_BYTES_MAX: Final = 65_536
MARKER: Final = b"-"
_TOGETHER: Final = 1_000
_TOUCHED: Final = 100_000


class RedisJobCache:
    """`life_s`: how old what is shown may be. `now_ms`: the database's time."""

    def __init__(self, link: Link, seals: Seals, *, life_s: float, now_ms: Callable[[], int]) -> None:
        self._link = link
        self._seals = seals
        self._life_ms = int(life_s * 1000)
        self._now_ms = now_ms
        self._later = Later(link, "keep jobs")
        self._touched: dict[UUID, float] = {}  # the oldest first, with the time until which it is not asked about

    @property
    def usable(self) -> bool:
        # In a cluster no worker voids what is kept of the jobs it begins (locks.py).
        return self._link.well and self._seals.current is not None and self._link.address.kind != "cluster"

    async def look(self, job_id: UUID) -> bytes | None:
        seal = self._seals.current
        if seal is None or self._is_touched(job_id):
            return None
        name = seal.job_name(job_id)
        body = seal.opened(name, await self._link.ask("look at jobs", lambda redis: redis.get(name)))
        if body is None or len(body) < _UNTIL.size or self._is_touched(job_id):
            return None
        (until_ms,) = _UNTIL.unpack_from(body)
        return body[_UNTIL.size :] if until_ms > self._now_ms() else None

    def keep(self, job_id: UUID, shown: bytes, *, read_s: float) -> None:
        seal = self._seals.current
        # Counted from the read: one that was held up since must not outlast the marker of an action in between.
        left_ms = self._life_ms - int((steady_s() - read_s) * 1000)
        if seal is None or left_ms <= 0 or len(shown) > _BYTES_MAX or self._is_touched(job_id):
            return
        name = seal.job_name(job_id)
        body = _UNTIL.pack(self._now_ms() + left_ms) + shown
        self._later.put(name, seal.sealed(name, body), left_ms)

    async def drop(self, job_ids: Iterable[UUID]) -> None:
        ids = list(job_ids)
        seal = self._seals.current
        self._touch(ids)
        if seal is None:
            return
        names = [seal.job_name(job_id) for job_id in ids]
        for start in range(0, len(names), _TOGETHER):
            page = names[start : start + _TOGETHER]
            await self._link.ask("drop jobs", lambda redis, page=page: _marked(redis, page, self._life_ms))  # type: ignore[misc]

    def _touch(self, job_ids: Iterable[UUID]) -> None:
        # Twice as long as anything is kept: whoever looked before has kept it by then, and that is too old as well.
        now_s = steady_s()
        while self._touched and (len(self._touched) > _TOUCHED or next(iter(self._touched.values())) < now_s):
            del self._touched[next(iter(self._touched))]
        for job_id in job_ids:
            self._touched.pop(job_id, None)
            self._touched[job_id] = now_s + 2 * self._life_ms / 1000

    def _is_touched(self, job_id: UUID) -> bool:
        return self._touched.get(job_id, 0.0) > steady_s()

    async def aclose(self) -> None:
        await self._later.aclose()


async def _marked(redis: Client, names: list[str], life_ms: int) -> None:
    pipe = pipeline(redis)
    for name in names:
        pipe.set(name, MARKER, px=life_ms)
    await pipe.execute()
