"""The shortcuts there are when there is a Redis: opened together, on one link."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from windlass.bus.protocol import ExecutionLocks, NoExecutionLocks, NoJobCache, Shortcuts
from windlass.bus.redis.cache import RedisJobCache
from windlass.bus.redis.keys import RedisKeyMemory
from windlass.bus.redis.link import Link
from windlass.bus.redis.locks import RedisExecutionLocks
from windlass.bus.redis.seals import Seals
from windlass.config import RedisConfig
from windlass.config.redis_url import parse_redis_url
from windlass.errors import Misconfigured
from windlass.store.store import Store


@asynccontextmanager
async def open_link(config: RedisConfig) -> AsyncIterator[Link]:
    """The link that is configured. Does not wait for Redis."""
    if config.redis_url is None:
        raise Misconfigured("WINDLASS_REDIS_URL is not set")
    async with Link(parse_redis_url(config.redis_url), timeout_s=config.redis_timeout_s) as link:
        yield link


@asynccontextmanager
async def open_shortcuts(config: RedisConfig, link: Link, store: Store) -> AsyncIterator[Shortcuts]:
    now_ms = store.postgres.now_ms
    async with Seals(store.identities) as seals:
        keys = RedisKeyMemory(link, seals, key_ttl_s=store.postgres.config.key_ttl_s, now_ms=now_ms)
        kept = RedisJobCache(link, seals, life_s=config.job_cache_s, now_ms=now_ms) if config.job_cache_s else None
        try:
            yield Shortcuts(keys, kept or NoJobCache(), lambda: _health(link, seals))
        finally:
            await keys.aclose()
            if kept is not None:
                await kept.aclose()


@asynccontextmanager
async def open_locks(config: RedisConfig, link: Link, store: Store) -> AsyncIterator[ExecutionLocks]:
    """What a worker tells Redis of the jobs it begins and ends."""
    locks = config.redis_locks == "on"
    if link.address.kind == "cluster" or not (locks or config.job_cache_s):
        yield NoExecutionLocks()
        return
    async with Seals(store.identities) as seals:
        made = RedisExecutionLocks(link, seals, locks=locks, cache_s=config.job_cache_s)
        try:
            yield made
        finally:
            await made.aclose()


def _health(link: Link, seals: Seals) -> str:
    return (
        link.health() if seals.current is not None else "not asked: whose jobs it remembers is not known at the moment"
    )
