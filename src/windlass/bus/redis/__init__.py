"""What Redis or Valkey is used for, if there is one. It makes some things faster, and nothing right or wrong.

link.py speaks to the driver; the others speak to it: keys.py remembers idempotency keys, cache.py unfinished jobs, popping.py
wakes workers that cannot listen. opening.py puts them together. None of these is imported by who has no Redis, nor is the
driver.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from windlass.config import RedisConfig
from windlass.store.hints import Hints


@asynccontextmanager
async def reaching_all(hints: Hints, config: RedisConfig) -> AsyncIterator[Hints]:
    """Hints that reach workers that pop as well, if there is a Redis."""
    if config.redis_url is None:
        yield hints
        return
    from windlass.bus.redis.popping import open_pusher  # noqa: PLC0415

    async with open_pusher(config) as pusher:
        yield hints.through(pusher)
