"""A supervisor in the test's own loop, with real worker processes, a real guard and a real database."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import psutil

from tests.eventually import aeventually
from tests.factory import reached
from windlass.bus.postgres import Listener, PostgresWaker
from windlass.bus.protocol import NoWaker
from windlass.config import Config, LeaseConfig, RedisConfig, StoreConfig, WorkerConfig
from windlass.leader.loop import Leader
from windlass.model import Job, NewJob, Status, Worker
from windlass.store.protocol import Upkeep, channel
from windlass.store.store import Store, open_store
from windlass.worker.berth import Crew
from windlass.worker.signals import Signals
from windlass.worker.supervisor import supervise

APP = "tests.worker.apps.supervised:app"
SOON = WorkerConfig(threads=2, poll_s=0.1, stop_ask_s=0.1, stop_grace_s=0.5, drain_s=20, log_level="warning")
LEASE = LeaseConfig(lease_ttl_s=6, heartbeat_s=0.3)


@dataclass(slots=True)
class Supervised:
    """`exit_code` is there after the block."""

    store: Store
    crew: Crew
    signals: Signals
    running: "asyncio.Task[int]"
    exit_code: int | None = None

    @property
    def has_ended(self) -> bool:
        return self.running.done()

    async def living(self, count: int = 1) -> list[Worker]:
        """That many workers, registered."""

        async def there() -> list[Worker]:
            found = [worker for worker in await self.store.views.workers() if worker.alive]
            return found if len(found) == count else []

        return await aeventually(there, 30)

    async def replaced(self, *old: Worker) -> list[Worker]:
        """As many others as there are old ones."""

        async def there() -> list[Worker]:
            found = [worker for worker in await self.store.views.workers() if worker.alive]
            others = not {worker.id for worker in found} & {worker.id for worker in old}
            return found if others and len(found) == len(old) else []

        return await aeventually(there, 30)

    async def deserted(self) -> None:
        """No worker is left."""

        async def empty() -> bool:
            return not any(worker.alive for worker in await self.store.views.workers())

        await aeventually(empty, 30)

    def pid_of(self, worker: Worker) -> int:
        return int(worker.name.split("-")[-2])

    async def enqueue(self, type_: str, **payload: Any) -> UUID:
        options = {name.removeprefix("_"): payload.pop(name) for name in list(payload) if name.startswith("_")}
        (made,) = await self.store.intake.enqueue([NewJob(type_, payload, **options)])
        return made.id

    async def until(self, job_id: UUID, *statuses: Status, timeout_s: float = 30) -> Job:
        return await reached(self.store, job_id, *statuses, timeout_s=timeout_s)


def _leader(store: Store, crew: Crew) -> Leader:
    return Leader(
        store.upkeep,
        store.claims(),
        NoWaker(),
        holder=crew.supervisor_id,
        lease=crew.config.lease,
        placement=crew.config.placement,
    )


async def begun(file: Path, lines: int = 1) -> list[str]:
    """What handlers have noted, once there is that much of it."""

    async def there() -> list[str]:
        noted = _noted(file)
        return noted if len(noted) >= lines else []

    return await aeventually(there, 30)


def _noted(file: Path) -> list[str]:
    return file.read_text().split() if file.exists() else []


def children(module: str) -> list[psutil.Process]:
    """Our child processes that run this module and live."""
    found = psutil.Process().children()
    return [one for one in found if one.status() != psutil.STATUS_ZOMBIE and module in " ".join(one.cmdline())]


@asynccontextmanager
async def supervised(
    config: StoreConfig,
    *,
    app: str = APP,
    lease: LeaseConfig = LEASE,
    redis: RedisConfig | None = None,
    upkeep: Callable[[Store], Upkeep] = lambda store: store.upkeep,
    reload: bool = False,
    leads: bool = False,
    **over: Any,
) -> AsyncIterator[Supervised]:
    settings = Config(store=config, redis=redis or RedisConfig(), lease=lease, worker=replace(SOON, **over))
    crew = Crew(settings, app, "test", uuid4(), reload=reload)
    signals = Signals()
    async with open_store(config) as store:
        waker = PostgresWaker(store.hints)
        running = asyncio.create_task(
            supervise(
                crew, upkeep(store), store.claims(), waker, signals,
                listen=lambda look: Listener(config, [channel(crew.supervisor_id)], lambda *_: look()),
                lead=_leader(store, crew).run if leads else None,
            )
        )  # fmt: skip
        made = Supervised(store, crew, signals, running)
        try:
            yield made
        finally:
            signals.raise_to(2)
            made.exit_code = await running
            await waker.aclose()
    assert not children("windlass.worker")
