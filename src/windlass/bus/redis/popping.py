"""Wake-ups through Redis, for workers that hear no notifications: a list for each, which its owner waits at.

Where LISTEN is to be had it is the shorter way, and is used: the hint then travels with the commit. This is for behind a
pooler, and for as long as a listener's connection is lost.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, Self
from uuid import UUID

from windlass.bus.redis.link import Client, Link, client_of, pipeline, reason
from windlass.bus.redis.opening import open_link
from windlass.config import RedisConfig
from windlass.config.redis_url import RedisAddress
from windlass.pauses import Pauses

_WAIT_S: Final = 5.0  # of one pop, at the server
_FIRST_WAIT_S: Final = 0.01
_LATE_S: Final = 3.0  # its answer may come after that
_KEPT_S: Final = 10
_KEPT: Final = 16  # hints; one would do
_LEAST_S: Final = 0.005  # between two hints: a server that gives and gives must not keep a core busy
_BACK_OFF_S: Final = (0.1, 5.0)
_log: Final = logging.getLogger(__name__)


def _list_of(worker_id: UUID) -> str:
    return f"windlass:wake:{worker_id.hex}"


class RedisPusher:
    def __init__(self, link: Link) -> None:
        self._link = link

    async def push(self, worker_ids: Sequence[UUID]) -> None:
        """In one message for all of them. A list outlives the worker that would have read it by seconds."""

        async def pushed(redis: Client) -> Any:
            pipe = pipeline(redis)
            for name in map(_list_of, worker_ids):
                pipe.rpush(name, b"")
                pipe.ltrim(name, -_KEPT, -1)
                pipe.expire(name, _KEPT_S)
            return await pipe.execute()

        await self._link.ask("wake workers", pushed)


class Popper:
    """Waits for hints while its block lasts, on one connection. `on_hint` is called in the loop's thread."""

    def __init__(self, address: RedisAddress, worker_id: UUID) -> None:
        self._client = client_of(address, timeout_s=None, connections=1)
        self._name = _list_of(worker_id)
        self._task: asyncio.Task[None] | None = None
        self.on_hint: Callable[[], None] = lambda: None
        self.popping = False  # whether hints arrive, as far as the last pop could tell

    async def __aenter__(self) -> Self:
        """Does not wait for Redis."""
        self._task = asyncio.create_task(self._keep_popping(), name="windlass popper")
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        self.popping = False
        with contextlib.suppress(Exception):
            async with asyncio.timeout(1.0):
                await self._client.aclose()

    async def _keep_popping(self) -> None:
        pauses = Pauses(*_BACK_OFF_S)
        while True:
            try:
                await self._pop(_FIRST_WAIT_S)  # with the command that is used: others may be allowed where it is not
                pauses.reset()
                self.popping = True
                self.on_hint()  # something may have been missed
                while True:
                    if await self._pop(_WAIT_S):
                        self.on_hint()
                        await asyncio.sleep(_LEAST_S)
            except Exception as problem:  # noqa: BLE001 - whatever it says or does: hints may be lost, their reader not
                if pauses.is_first:
                    _log.info("no wake-ups through Redis: %s", reason(problem))
                self.popping = False
            await pauses.wait()

    async def _pop(self, wait_s: float) -> bool:
        async with asyncio.timeout(wait_s + _LATE_S):
            return bool(await self._client.blpop([self._name], timeout=wait_s))


@asynccontextmanager
async def open_pusher(config: RedisConfig) -> AsyncIterator[RedisPusher]:
    """A way to workers that pop, on a link of its own."""
    async with open_link(config) as link:
        yield RedisPusher(link)


@asynccontextmanager
async def open_popper(link: Link, worker_id: UUID) -> AsyncIterator[tuple[RedisPusher, Popper]]:
    """A worker's own ear at Redis, and its way to the others'."""
    async with Popper(link.address, worker_id) as popper:
        yield RedisPusher(link), popper
