"""Which queues a worker serves: those its types name, those it was told, and those that match a pattern."""

import logging

import pytest

from tests.eventually import aeventually
from tests.worker.placed import SOON, placed, types_of
from tests.worker.supervised import supervised
from windlass import AsyncContext
from windlass.config import StoreConfig, WorkerConfig
from windlass.model import NewJob, Status
from windlass.store.store import Store

pytestmark = pytest.mark.filterwarnings("default::ResourceWarning")

APP = "tests.worker.apps.queues:app"


async def test_a_worker_that_was_told_no_queues_serves_those_its_types_name(
    config: StoreConfig, caplog: pytest.LogCaptureFixture
) -> None:
    async with supervised(config, app=APP) as crew:
        (worker,) = await crew.living()
        assert worker.queues == ["mail", "reports"]
        for type_, queue in (("send_letter", "mail"), ("print_report", "reports")):
            job = await crew.until(await crew.enqueue(type_, _queue=queue), Status.COMPLETED)
            assert job.result == f'"{queue}"'
    assert "not served" not in caplog.text


async def test_a_worker_whose_types_name_no_queue_serves_the_default_one(config: StoreConfig) -> None:
    async with supervised(config, app="tests.worker.apps.empty:app") as crew:
        assert [worker.queues for worker in await crew.living()] == [["default"]]


async def test_types_whose_queue_is_not_served_are_named_once_at_the_start(
    config: StoreConfig, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        async with supervised(config, app=APP, queues="mail,tenant-*", processes=2) as crew:
            assert [worker.queues for worker in await crew.living(2)] == [["mail", "tenant-*"]] * 2
    (said,) = [record.getMessage() for record in caplog.records if "not served" in record.getMessage()]
    assert said.startswith("queue 'reports' is not served here, and jobs of type write_report, print_report go to it")


async def test_jobs_of_a_queue_that_a_pattern_serves_are_handed_to_its_worker(config: StoreConfig) -> None:
    async def told(ctx: AsyncContext) -> str:
        return ctx.queue

    async with placed(config, types_of(told), queues={"tenant-*": 1, "mail": 1}, listening=True) as worker:
        for queue in ("tenant-1", "mail", "tenant-new", "tenant-1"):
            assert (await worker.run("told", queue=queue)).result == f'"{queue}"'
        waits = await worker.enqueue("told", queue="other")
        await worker.run("told", queue="mail")
        assert (await worker.store.views.job(waits)).status is Status.READY


async def test_a_weight_of_a_pattern_is_shared_by_all_queues_that_match(config: StoreConfig, store: Store) -> None:
    ran: list[str] = []

    async def counted(ctx: AsyncContext) -> None:
        ran.append(ctx.queue)

    queues = ["mail"] * 400 + ["tenant-1", "tenant-2"] * 200
    await store.intake.enqueue([NewJob("counted", queue=queue) for queue in queues])
    one_by_one = WorkerConfig(poll_s=SOON.poll_s, buffer_s=0)
    async with placed(config, types_of(counted), threads=1, queues={"mail": 1, "tenant-*": 3}, worker=one_by_one):

        async def all_ran() -> bool:
            return len(ran) == 800

        await aeventually(all_ran, 30)
    assert 280 <= sum(queue != "mail" for queue in ran[:400]) <= 320
    assert 140 <= ran[:400].count("tenant-1") <= 160
