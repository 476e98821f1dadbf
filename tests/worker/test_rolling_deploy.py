"""Two versions of an app side by side, real workers of both: a parameter that was added with a default, in either order."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import UUID, uuid4

import pytest

from tests.eventually import aeventually
from tests.factory import reached
from tests.worker.apps import deployed_v1, deployed_v2
from tests.worker.supervised import Supervised, supervised
from windlass import App
from windlass.bus.postgres import PostgresWaker
from windlass.config import LeaseConfig, PlacementConfig, StoreConfig
from windlass.errors import Unavailable
from windlass.leader.loop import Leader
from windlass.model import Declared, Job, NewWorker, Status
from windlass.store.store import Store, open_store

pytestmark = pytest.mark.filterwarnings("default::ResourceWarning")
V1 = "tests.worker.apps.deployed_v1:app"
V2 = "tests.worker.apps.deployed_v2:app"


@asynccontextmanager
async def leading(config: StoreConfig) -> AsyncIterator[None]:
    """A leader, as in any cluster."""
    async with open_store(config) as store:
        waker = PostgresWaker(store.hints)
        leader = Leader(
            store.upkeep, store.claims(), waker, holder=uuid4(), lease=LeaseConfig(), placement=PlacementConfig()
        )
        running = asyncio.create_task(leader.run())
        try:
            yield
        finally:
            running.cancel()
            await asyncio.wait([running])
            await waker.aclose()


@asynccontextmanager
async def producing(app: App, config: StoreConfig) -> AsyncIterator[App]:
    """A program with this version of the app that enqueues and runs nothing."""
    producer = App(app.name, config=config)
    for job in app.types.values():
        producer._registry.add(job)
    yield producer
    await producer.aclose()


async def enqueued(app: App, config: StoreConfig, type_: str, **payload: str) -> UUID:
    async with producing(app, config) as producer:
        return (await producer.aenqueue_named(type_, payload)).id


async def ended(store: Store, job_id: UUID) -> Job:
    return await reached(store, job_id, Status.COMPLETED, Status.FAILED, timeout_s=30)


async def declared(store: Store) -> None:
    """A worker lives, and has declared its types."""

    async def there() -> bool:
        return any(known.current for known in await store.views.types())

    await aeventually(there, 30)


async def stopped(crew: Supervised) -> None:
    crew.signals.raise_to(1)
    await asyncio.wait([crew.running])


async def test_producers_first_a_job_waits_for_the_newer_worker_and_loses_nothing(
    config: StoreConfig, store: Store
) -> None:
    types = ("send", "send_apart")  # the second in a process of its own
    async with leading(config), supervised(config, app=V1) as old:
        await declared(store)
        jobs = [await enqueued(deployed_v2.app, config, type_, to="ann", note="hi") for type_ in types]
        for job_id in jobs:
            assert (await reached(store, job_id, Status.HELD, timeout_s=30)).reason == "needs newer worker: note"
            explanation = await store.views.explain(job_id)
            assert [obstacle.code for obstacle in explanation.obstacles] == ["needs_newer_worker"]
        plain = await enqueued(deployed_v1.app, config, "send", to="bob")
        assert (await ended(store, plain)).result == '"v1: bob"', "other jobs go on"
        async with supervised(config, app=V2):
            # Beside the old worker, which may claim them again, and gives them back again.
            for job_id in jobs:
                job = await ended(store, job_id)
                assert (job.status, job.failures, job.error) == (Status.COMPLETED, 0, None)
                assert job.result == '"v2: ann, hi"'
            await stopped(old)


async def test_workers_first_either_version_runs_what_older_producers_submit(config: StoreConfig, store: Store) -> None:
    async with supervised(config, app=V1) as old, supervised(config, app=V2) as new:
        await new.living(2)
        jobs = [await enqueued(deployed_v1.app, config, "send", to="ann") for _ in range(6)]
        ends = [await ended(store, job_id) for job_id in jobs]
        assert {job.status for job in ends} == {Status.COMPLETED}
        assert {job.result for job in ends} <= {'"v1: ann"', '"v2: ann, none"'}
        # And a field that no version knows is nobody's to wait for.
        job = await ended(store, await enqueued(deployed_v2.app, config, "send", to="ann", colour="red"))
        assert (job.status, job.attempt) == (Status.FAILED, 1)
        assert job.error is not None
        assert "payload.colour: is no parameter of the handler" in job.error.message
        await stopped(old)


async def test_versions_that_each_lack_a_field_of_the_job_do_not_hand_it_to_each_other(
    config: StoreConfig, store: Store
) -> None:
    other = Declared("send", fields=("to", "colour"))
    await store.upkeep.declare([other])
    new = NewWorker(uuid4(), "w", 1, ["elsewhere"], ["send"], None, [other.digest])
    await store.upkeep.register(new, lease_ttl_s=600)
    async with supervised(config, app=V2):
        job_id = await enqueued(deployed_v2.app, config, "send", to="ann", note="hi", colour="red")
        job = await reached(store, job_id, Status.COMPLETED, Status.FAILED, Status.HELD, timeout_s=30)
        assert (job.status, job.reason) == (Status.FAILED, None), "the other version does not know note"


async def test_a_producer_that_may_not_declare_enqueues_all_the_same(config: StoreConfig, store: Store) -> None:
    app = App("producer", config=config)

    @app.job
    def send(to: str) -> None: ...

    async def refuse(_types: object) -> None:
        raise Unavailable("not for you")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("windlass.store.upkeep.Upkeep.add_versions", refuse)
        handle = await send.aenqueue("ann")
        assert (await store.views.job(handle.id)).status is Status.READY
        await app.aclose()
