"""Redis as the first tier of idempotency: who has which key. It is asked first; PostgreSQL decides whatever it does not know.

A value holds the job, the fingerprint of what was submitted, and until when PostgreSQL keeps the key at least; sealed by
the store (seals.py). Redis's own expiry is not relied on. While a key is there PostgreSQL keeps its job as well, so what
is remembered never names a job that is gone.
"""

import struct
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, Final
from uuid import UUID

from windlass.bus.protocol import Recalled, Remembered
from windlass.bus.redis.later import Later
from windlass.bus.redis.link import Link, get_many
from windlass.bus.redis.seals import Seal, Seals
from windlass.store.ids import unix_ms

_KIND: Final = "key"
_BODY: Final = struct.Struct("!16s32sQ")
_LIFE_MS: Final = 24 * 3600 * 1000
# The time in an id may be ahead of the key's by as much; and a process may take a while to learn.
_SLACK_MS: Final = 6 * 60 * 1000
_DOUBTED: Final = 10_000


class RedisKeyMemory:
    """`key_ttl_s`: how long PostgreSQL keeps a key at least. `now_ms`: the database's time."""

    def __init__(self, link: Link, seals: Seals, *, key_ttl_s: float, now_ms: Callable[[], int]) -> None:
        self._link = link
        self._seals = seals
        self._life_ms = min(_LIFE_MS, int(key_ttl_s * 1000)) - _SLACK_MS
        self._now_ms = now_ms
        self._later = Later(link, "remember idempotency keys")
        self._doubted: dict[str, None] = {}

    async def recall(self, keys: Collection[str]) -> Recalled:
        seal = self._seals.current
        if seal is None or not self._link.well:
            return Recalled({}, seal)
        names = {seal.name(_KIND, key): key for key in keys if key not in self._doubted}
        values = await self._values(list(names))
        if self._seals.current is not seal:  # lost, or another one, while Redis was asked
            return Recalled({})
        return Recalled(dict(self._known(seal, names, values)), seal)

    async def _values(self, names: list[str]) -> list[Any]:
        values = await self._link.ask("recall idempotency keys", lambda redis: get_many(redis, names))
        # A server that answers another question than was asked has answered none.
        return values if isinstance(values, list) and len(values) == len(names) else [None] * len(names)

    def _known(
        self, seal: Seal, names: Mapping[str, str], values: Iterable[object]
    ) -> Iterator[tuple[str, Remembered]]:
        for (name, key), value in zip(names.items(), values, strict=True):
            body = seal.opened(name, value)
            if body is not None and len(body) == _BODY.size:
                job_id, fingerprint, until_ms = _BODY.unpack(body)
                if until_ms > self._now_ms():
                    yield key, Remembered(UUID(bytes=job_id), fingerprint)
                    continue
            if value is not None:  # or it would stand in the way of what is true
                self._later.remove(name)

    def learn(self, taken: Mapping[str, Remembered], *, under: Any) -> None:
        seal = self._seals.current
        if seal is None or seal is not under or not self._link.well:
            return
        now_ms = self._now_ms()
        for key, (job_id, fingerprint) in taken.items():
            until_ms = min(now_ms, unix_ms(job_id)) + self._life_ms
            if key not in self._doubted and until_ms > now_ms:
                name = seal.name(_KIND, key)
                body = _BODY.pack(job_id.bytes, fingerprint, until_ms)
                self._later.put(name, seal.sealed(name, body), until_ms - now_ms)

    def forget(self, keys: Iterable[str]) -> None:
        """Also here: Redis may not be told, or not listen."""
        seal = self._seals.current
        for key in keys:
            if len(self._doubted) >= _DOUBTED:
                del self._doubted[next(iter(self._doubted))]
            self._doubted[key] = None
            if seal is not None:
                self._later.remove(seal.name(_KIND, key))

    async def aclose(self) -> None:
        await self._later.aclose()
