"""Placement as it happens: real workers, a real leader, real time."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest

from tests.eventually import aeventually
from tests.pressure import Stopwatch
from tests.worker.placed import Placed, placed, types_of
from windlass.bus.postgres import PostgresWaker
from windlass.bus.protocol import NoWaker
from windlass.bus.waking import Waking
from windlass.clock import steady_s
from windlass.config import LeaseConfig, PlacementConfig, StoreConfig, WorkerConfig
from windlass.leader.loop import Leader
from windlass.model import NewJob, Status
from windlass.store.store import Store
from windlass.worker.context import AsyncContext

PLACEMENT = PlacementConfig()
TICK_S = 0.5
NARROW_S = 0.2
SLACK_S = 1.5  # for machines that are busy with something else


class Stage:
    """Two workers of eight threads, a stream of narrow jobs above their capacity, and a record of what started when."""

    def __init__(self, store: Store, workers: list[Placed]) -> None:
        self.store = store
        self.workers = workers
        self.wide: dict[str, float] = {}
        self.granted: dict[str, int] = {}
        self.shares: list[float] = []

    async def watch(self) -> None:
        while True:
            busy = sum(each.worker.desk.busy for each in self.workers)
            self.shares.append(busy / sum(each.slots.count for each in self.workers))
            await asyncio.sleep(0.02)

    async def feed(self) -> None:
        """Never let the line of narrow jobs run short."""
        while True:
            counts = await self.store.views.counts()
            short = 400 - counts.get(("default", "narrow", Status.READY), 0)
            await self.store.intake.enqueue([NewJob("narrow")] * max(0, short))
            await asyncio.sleep(0.5)

    @property
    def utilisation(self) -> float:
        return sum(self.shares) / len(self.shares)


@asynccontextmanager
async def stage(config: StoreConfig, store: Store, placement: PlacementConfig = PLACEMENT) -> AsyncIterator[Stage]:
    made = Stage(store, [])

    async def narrow() -> None:
        await asyncio.sleep(NARROW_S)

    async def wide(ctx: AsyncContext, name: str) -> None:
        made.wide[name] = steady_s()
        made.granted[name] = ctx.threads
        await asyncio.sleep(NARROW_S)

    async with AsyncExitStack() as stack:
        for _ in range(2):
            at_once = placed(config, types_of(narrow, wide), threads=8, worker=WorkerConfig(poll_s=0.2))
            made.workers.append(await stack.enter_async_context(at_once))
        leading = Leader(
            store.upkeep, store.claims(), NoWaker(), holder=uuid4(), lease=LeaseConfig(), placement=placement
        ).run()
        tasks = [asyncio.create_task(each) for each in (leading, made.feed())]
        stack.callback(lambda: [task.cancel() for task in tasks])

        async def full() -> bool:
            return all(each.worker.desk.busy == 8 for each in made.workers)

        await aeventually(full, 20)
        watching = asyncio.create_task(made.watch())
        stack.callback(watching.cancel)
        yield made


async def test_a_wide_job_starts_within_its_bound_while_narrow_ones_keep_the_threads_busy(
    config: StoreConfig, store: Store
) -> None:
    async with stage(config, store) as here:
        since_s, watch = steady_s(), Stopwatch()
        await store.intake.enqueue([NewJob("wide", {"name": "one"}, thread_demand=8)])
        await aeventually(lambda: _has(here.wide, 1), 20)
        bound_s = PLACEMENT.reserve_after_s + TICK_S + (NARROW_S + TICK_S)
        assert here.wide["one"] - since_s <= bound_s + SLACK_S + watch.waited_s
        assert here.utilisation >= 0.9


async def test_five_wide_jobs_at_once_start_within_theirs(config: StoreConfig, store: Store) -> None:
    async with stage(config, store) as here:
        since_s, watch = steady_s(), Stopwatch()
        await store.intake.enqueue([NewJob("wide", {"name": str(n)}, thread_demand=8) for n in range(5)])
        await aeventually(lambda: _has(here.wide, 5), 30)
        for k, name in enumerate(sorted(here.wide, key=lambda name: here.wide[name]), start=1):
            bound_s = PLACEMENT.reserve_after_s + TICK_S + k * (NARROW_S + TICK_S)
            assert here.wide[name] - since_s <= bound_s + SLACK_S + watch.waited_s


async def test_without_reservations_a_wide_job_waits_for_ever(config: StoreConfig, store: Store) -> None:
    async with stage(config, store, replace(PLACEMENT, reservations="off")) as here:
        await store.intake.enqueue([NewJob("wide", {"name": "one"}, thread_demand=8)])
        with pytest.raises(AssertionError, match="not within"):
            await aeventually(lambda: _has(here.wide, 1), 6)


async def test_a_job_wider_than_every_worker_is_narrowed_fails_or_waits_as_it_asked(
    config: StoreConfig, store: Store
) -> None:
    async with stage(config, store, replace(PLACEMENT, too_wide_grace_s=0.5)) as here:
        asked: tuple[Any, ...] = ("narrow", "fail", "wait")
        jobs = [NewJob("wide", {"name": each}, thread_demand=16, priority=50, if_too_wide=each) for each in asked]
        narrowed, failed, waiting = [each.id for each in await store.intake.enqueue(jobs)]
        assert (await here.workers[0].reaches(narrowed, Status.COMPLETED, timeout_s=20)).threads_granted == 1
        assert here.granted["narrow"] == 1
        job = await here.workers[0].reaches(failed, Status.FAILED)
        assert job.error is not None
        assert job.error.type == "TooWide"
        assert (await store.views.job(waiting)).status is Status.READY


async def test_single_jobs_spread_evenly_over_idle_workers(config: StoreConfig, store: Store) -> None:
    ran: list[str] = []

    async with AsyncExitStack() as stack:
        for n in range(4):

            async def single(name: str = str(n)) -> None:
                ran.append(name)

            # They would also poll, and take a job now and then out of turn.
            patient = WorkerConfig(poll_s=5)
            await stack.enter_async_context(placed(config, types_of(single), worker=patient, listening=True))
        waker = PostgresWaker(store.hints)
        intake = Waking(store.intake, waker, store.hints)
        resting = "select count(*) from windlass.idle"

        async def all_rest() -> bool:
            async with store.postgres.connection() as connection:
                return bool(await connection.fetchval(resting) == 4)

        for n in range(100):
            await aeventually(all_rest)
            await intake.enqueue([NewJob("single", {})])
            await aeventually(lambda done=n + 1: _has(ran, done))  # type: ignore[misc]
        await waker.aclose()
    assert all(20 <= count <= 30 for count in Counter(ran).values()), Counter(ran)


async def _has(items: Any, count: int) -> bool:
    return len(items) >= count
