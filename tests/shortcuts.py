"""An Intake behind a real Redis, as `windlass api` wires it."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import asyncpg
import redis

from tests.eventually import aeventually
from windlass.bus.protocol import Shortcuts
from windlass.bus.redis.link import Link
from windlass.bus.redis.opening import open_link, open_shortcuts
from windlass.bus.remembering import Remembering
from windlass.clock import steady_s
from windlass.config import RedisConfig
from windlass.embedded.valkey import EmbeddedValkey
from windlass.model import NewJob
from windlass.store.store import Store


@dataclass(frozen=True, slots=True)
class Behind:
    """`asked`: what Redis was asked, in order, and how long that took."""

    intake: Remembering
    shortcuts: Shortcuts
    link: Link
    asked: list[tuple[str, float]]

    @property
    def waited_s(self) -> float:
        return sum(took_s for _, took_s in self.asked)


@asynccontextmanager
async def behind(
    url: str, store: Store, intake: Any = None, *, well: bool = True, job_cache_s: float = 0.5
) -> AsyncIterator[Behind]:
    """`well`: begin when Redis has answered."""
    config = RedisConfig(redis_url=url, job_cache_s=job_cache_s)
    async with AsyncExitStack() as stack:
        link = await stack.enter_async_context(open_link(config))
        asked = _timed(link)
        shortcuts = await stack.enter_async_context(open_shortcuts(config, link, store))
        if well:
            await aeventually(lambda: _is_well(link))
        yield Behind(Remembering(intake or store.intake, shortcuts, bytes_max=1 << 20), shortcuts, link, asked)


async def _is_well(link: Link) -> bool:
    return link.well


def _timed(link: Link) -> list[tuple[str, float]]:
    asked: list[tuple[str, float]] = []
    ask = link.ask

    async def timed(what: str, call: Any) -> Any:
        began_s = steady_s()
        try:
            return await ask(what, call)
        finally:
            asked.append((what, steady_s() - began_s))

    link.ask = timed  # type: ignore[method-assign]
    return asked


def client(url: str) -> Any:
    return redis.Redis.from_url(url)


def values(url: str) -> dict[bytes, bytes]:
    """Everything there is in a Redis that holds plain values."""
    with client(url) as connection:
        names = connection.keys("*")
        found = connection.mget(names) if names else []
        return {name: value for name, value in zip(names, found, strict=True) if value is not None}


def keyed(key: str, payload: Any = None, **fields: Any) -> NewJob:
    return NewJob("echo", payload, idempotency_key=key, **fields)


async def learnt(valkey: EmbeddedValkey, count: int) -> dict[bytes, bytes]:
    """What Redis holds, once it is so much."""

    async def there() -> dict[bytes, bytes] | None:
        found = values(valkey.url)
        return found if len(found) >= count else None

    found = await aeventually(there)
    assert found is not None
    assert len(found) == count
    return found


async def jobs_stored(sql: "asyncpg.Connection[asyncpg.Record]") -> int:
    count: int = await sql.fetchval("select count(*) from windlass.job")
    return count
