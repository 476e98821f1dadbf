"""Writes to Redis that nobody waits for: those of a few milliseconds together, for a message costs as much as many values.

What is waiting is bounded, and dropped when there is too much of it or when Redis is not well: it was only to save time.
"""

import asyncio
from typing import Final, NamedTuple

from windlass.bus.redis.link import Client, Link, pipeline, set_many

_WAITING: Final = 10_000
_BYTES: Final = 8_388_608
_GATHERED_S: Final = 0.01
_TOGETHER: Final = 200


class _Put(NamedTuple):
    value: bytes
    life_ms: int


class Later:
    def __init__(self, link: Link, what: str) -> None:
        self._link = link
        self._what = what
        self._removals: dict[str, None] = {}
        self._puts: dict[str, _Put] = {}
        self._bytes = 0
        self._sending: asyncio.Task[None] | None = None

    def put(self, name: str, value: bytes, life_ms: int) -> None:
        """If there is nothing under that name yet."""
        if not self._link.well or life_ms < 1 or self._is_full(len(value)):
            return
        before = self._puts.get(name)
        self._puts[name] = _Put(value, life_ms)
        self._bytes += len(value) - (0 if before is None else len(before.value))
        self._send_soon()

    def remove(self, name: str) -> None:
        """Before anything that is put under that name from now on."""
        if not self._link.well or self._is_full(0):
            return
        before = self._puts.pop(name, None)
        self._bytes -= 0 if before is None else len(before.value)
        self._removals[name] = None
        self._send_soon()

    async def aclose(self) -> None:
        """Let what is waiting be sent, which takes no longer than Redis may take."""
        if self._sending is not None and not self._sending.done():
            self._puts = dict(list(self._puts.items())[:_TOGETHER])
            await asyncio.wait([self._sending], timeout=1.0)
            self._sending.cancel()

    def _is_full(self, size: int) -> bool:
        return len(self._puts) + len(self._removals) >= _WAITING or self._bytes + size > _BYTES

    def _send_soon(self) -> None:
        if self._sending is None or self._sending.done():
            self._sending = asyncio.create_task(self._send(), name=f"windlass redis {self._what}")

    async def _send(self) -> None:
        while self._puts or self._removals:
            await asyncio.sleep(_GATHERED_S)
            if not self._link.well:
                self._puts, self._removals, self._bytes = {}, {}, 0
                return
            removals = [self._removals.popitem()[0] for _ in range(min(_TOGETHER, len(self._removals)))]
            puts = {name: self._puts.pop(name) for name in list(self._puts)[:_TOGETHER]}
            self._bytes -= sum(len(put.value) for put in puts.values())
            await self._link.ask(self._what, lambda redis, r=removals, p=puts: _written(redis, r, p))  # type: ignore[misc]


async def _written(redis: Client, removals: list[str], puts: dict[str, _Put]) -> None:
    if removals:
        pipe = pipeline(redis)
        for name in removals:
            pipe.delete(name)
        await pipe.execute()
    if puts:
        await set_many(redis, [(name, put.value, put.life_ms) for name, put in puts.items()])
