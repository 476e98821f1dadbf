"""A worker that is handed jobs, and what can happen to the notification that tells it so."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final
from uuid import UUID

from tests.eventually import aeventually
from tests.worker.placed import SOON, Placed, placed, types_of
from windlass.config import StoreConfig
from windlass.model import Lease, NewJob
from windlass.store.postgres import Connection
from windlass.store.protocol import Ask, channel
from windlass.store.store import Store

PATIENT: Final = replace(SOON, poll_s=60)


@dataclass(slots=True)
class Handlers:
    """`count` notes what it ran; `wait` waits for `go`."""

    ran: list[int] = field(default_factory=list)
    go: asyncio.Event = field(default_factory=asyncio.Event)

    async def count(self, n: int) -> int:
        self.ran.append(n)
        return n

    async def wait(self) -> None:
        await self.go.wait()


@dataclass(slots=True)
class Handed:
    """A worker at rest, what it ran, and a connection that sees the database."""

    site: Placed
    handlers: Handlers
    sql: Connection

    @property
    def ran(self) -> list[int]:
        return self.handlers.ran

    @property
    def store(self) -> Store:
        return self.site.store

    async def rests(self, *, with_key: bool = True) -> None:
        """Until it is in line; with its key, so that a job can be handed to it."""

        async def there() -> bool:
            rows = await self.sql.fetch("select hand_key is not null as key from windlass.idle")
            return [row["key"] for row in rows] == [with_key]

        await aeventually(there)

    async def submit(self, n: int = 1) -> UUID:
        return await submit(self.store, n)

    async def begin_waiting(self) -> UUID:
        """A job that is at work until `go`."""
        (stored,) = await self.store.intake.enqueue([NewJob("wait")])
        self.site.worker.hint()

        async def begun() -> bool:
            return any(run.lease.job_id == stored.id for run in self.site.worker.desk.runs.values())

        await aeventually(begun)
        return stored.id

    async def notification(self) -> tuple[UUID, str]:
        """A job that is handed to it, and what it would be told."""
        async with self.listening() as heard:
            job_id = await self.submit()
            await aeventually(lambda: self.has(heard))
        assert str(job_id) in heard[0]
        return job_id, heard[0]

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[list[str]]:
        """What is said on its secret channel."""
        heard: list[str] = []
        name = channel(self.site.post.hand_key)

        def hear(_connection: Any, _pid: int, _name: str, said: object) -> None:
            heard.append(str(said))

        await self.sql.add_listener(name, hear)
        yield heard
        await self.sql.remove_listener(name, hear)

    async def has(self, heard: list[str]) -> bool:
        await self.sql.execute("select")  # its answer comes after what was said before
        return bool(heard)

    def told(self, said: str) -> None:
        """The notification comes after all."""
        self.site.worker.hear(channel(self.site.post.hand_key), said)

    def before_a_search_is_answered(self, meanwhile: Callable[[], None]) -> None:
        """The next search for strays, after it has looked."""
        claims = self.site.worker._claims
        strays = claims.strays

        async def found(*args: Any, **options: Any) -> list[Lease]:
            claims.strays = strays  # type: ignore[method-assign]
            leases = await strays(*args, **options)
            meanwhile()
            return leases

        claims.strays = found  # type: ignore[method-assign]

    def before_a_claim_is_answered(self, meanwhile: Callable[[], None]) -> None:
        """The next of one that stands in line, after it was written."""
        claims = self.site.worker._claims
        claim = claims.claim

        async def slow(ask: Ask) -> list[Lease]:
            leases = await claim(ask)
            if ask.in_line:
                claims.claim = claim  # type: ignore[method-assign]
                meanwhile()
            return leases

        claims.claim = slow  # type: ignore[method-assign]

    def before_a_rest_is_answered(self, meanwhile: Callable[[dict[str, Any]], Awaitable[None]]) -> None:
        """Each, after it was written. `meanwhile` is told what the worker said."""
        hints = self.site.worker._claimer._hints
        rest = hints.rest

        async def slow(worker_id: UUID, **said: Any) -> int:
            had = await rest(worker_id, **said)
            await meanwhile(said)
            return had

        hints.rest = slow  # type: ignore[method-assign]


async def submit(store: Store, n: int = 1) -> UUID:
    (stored,) = await store.intake.enqueue([NewJob("count", {"n": n})])
    return stored.id


@asynccontextmanager
async def handed(config: StoreConfig, sql: Connection, **fields: Any) -> AsyncIterator[Handed]:
    """By default one that seems to listen and hears nothing, and polls once a minute."""
    handlers = Handlers()
    options = {"deaf": True, "worker": PATIENT, **fields}
    async with placed(config, types_of(handlers.count, handlers.wait), **options) as site:
        one = Handed(site, handlers, sql)
        await one.rests()
        yield one
        handlers.go.set()
