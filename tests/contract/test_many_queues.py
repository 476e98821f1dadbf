"""Twenty thousand queues with a job each: what looks over queues reads the counts once, not once for each.

Read once for each, they took minutes. The statements here may take 10 s, which is twenty times what the slowest takes
on an idle machine: a statement that is quadratic again fails, and a busy machine does not matter."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from uuid import uuid4

import pytest

from tests.conftest import database
from windlass.config import StoreConfig
from windlass.embedded.postgres import EmbeddedPostgres
from windlass.leader import chores
from windlass.model import NewJob, NewWorker, Status
from windlass.store.protocol import Ask, JobQuery
from windlass.store.store import Store, open_store

QUEUES = 20_000
NAMES = [f"made-up-{n}" for n in range(QUEUES)]


@pytest.fixture(scope="module")
def many_url(postgres_server: EmbeddedPostgres) -> Iterator[str]:
    with database(postgres_server, "many_queues") as url:
        yield url


@pytest.fixture(scope="module")
def filled(many_url: str) -> StoreConfig:
    config = StoreConfig(database_url=many_url, pool_min=0, pool_max=4, statement_timeout_s=10)
    asyncio.run(_fill(config))
    return config


async def _fill(config: StoreConfig) -> None:
    async with open_store(config) as store:
        await store.intake.enqueue([NewJob("echo", queue=name) for name in NAMES])
        await store.intake.enqueue([NewJob("echo", queue="made-up-7"), NewJob("strange", queue="made-up-7")])
        await store.intake.set_paused("made-up-8", paused=True)
        await store.upkeep.fold_counts()


@pytest.fixture
async def many(filled: StoreConfig) -> AsyncIterator[Store]:
    async with open_store(filled) as store:
        yield store


async def test_the_pages_make_the_whole_in_the_order_of_names(many: Store) -> None:
    found: list[str] = []
    page = await many.views.queues(limit=7_000)
    while page:
        found += [queue.name for queue in page]
        page = await many.views.queues(after=found[-1], limit=7_000)
    assert found == sorted(NAMES)


async def test_each_queue_has_its_own_counts_and_age(many: Store) -> None:
    worker = NewWorker(uuid4(), "w", 4, ["made-up-7*"], ["echo"])
    await many.upkeep.register(worker, lease_ttl_s=60)
    seen = {queue.name: queue for queue in await many.views.queues()}
    await many.upkeep.bury([worker.id], "left")
    assert all(queue.oldest_age_s is not None for queue in seen.values())
    assert seen["made-up-6"].counts == {Status.READY: 1}
    assert (seen["made-up-7"].depth, seen["made-up-7"].counts) == (3, {Status.READY: 2, Status.HELD: 1})
    assert (seen["made-up-8"].paused, seen["made-up-8"].counts) == (True, {Status.HELD: 1})
    assert (seen["made-up-6"].served_by, seen["made-up-7"].served_by) == (0, 1)
    alone = await many.views.queue("made-up-8")
    assert (alone.name, alone.paused, alone.counts) == ("made-up-8", True, {Status.HELD: 1})


async def test_a_queue_that_nobody_has_used_is_empty(many: Store) -> None:
    nobodys = await many.views.queue("nobody's")
    assert (nobodys.paused, nobodys.depth, nobodys.oldest_age_s, nobodys.counts) == (False, 0, None, {})


async def test_a_summary_has_the_sums_and_the_largest_lines(many: Store) -> None:
    summary = await many.views.summary(lines=3)
    assert sum(summary.statuses.values()) == QUEUES + 2
    assert summary.statuses[Status.HELD] == 1  # of the paused queue
    assert len(summary.lines) == 3
    assert summary.lines["made-up-7", "echo", Status.READY] == 2


async def test_lists_and_an_explanation_are_answered(many: Store) -> None:
    for query in (
        JobQuery(),
        JobQuery(type="echo"),
        JobQuery(queue="made-up-19999"),
        JobQuery(statuses=[Status.READY]),
    ):
        assert (await many.views.jobs(query)).jobs
    (job,) = (await many.views.jobs(JobQuery(queue="made-up-19999"))).jobs
    assert (await many.views.explain(job.id)).summary


async def test_the_leader_folds_and_looks_for_wide_jobs_and_unknown_types(many: Store) -> None:
    worker = NewWorker(uuid4(), "w", 4, ["*"], ["echo"])
    await many.upkeep.register(worker, lease_ttl_s=60)
    await many.intake.enqueue([NewJob("echo", queue="made-up-9", thread_demand=2)])
    assert await many.upkeep.fold_counts()
    assert await many.upkeep.unknown_types() == {"strange"}
    found = chores.FoundQueues(many.upkeep)
    seen: set[str] = set()
    while "made-up-9" not in seen:
        seen |= set(await found.next(await many.upkeep.rooms()))
    await many.upkeep.bury([worker.id], "left")


async def test_a_worker_that_serves_all_queues_drains_them(many: Store) -> None:
    worker = NewWorker(uuid4(), "w", 1000, ["*"], ["echo"])
    await many.upkeep.register(worker, lease_ttl_s=60)
    claims = many.claims()
    taken = 0
    while leases := await claims.claim(Ask(worker.id, ["*"], ["echo"], free=1000, most=2000, budget=2000)):
        taken += len(leases)
    assert taken >= QUEUES  # all but the paused one, and two in one of them
