"""What a worker makes of the app it is given."""

from uuid import UUID

import pytest

from tests.eventually import aeventually
from tests.worker.supervised import supervised
from windlass.config import StoreConfig
from windlass.model import Status


async def test_handlers_enqueue_to_the_store_of_their_worker_whatever_their_app_was_made_for(
    config: StoreConfig,
) -> None:
    async with supervised(config, app="tests.worker.apps.elsewhere:app") as crew:
        for type_ in ("threaded", "on_the_loop", "on_a_loop_of_its_own", "isolated"):
            job = await crew.until(await crew.enqueue(type_, _max_attempts=1), Status.COMPLETED, Status.FAILED)
            assert job.error is None, type_
            await crew.until(UUID((job.result or "").strip('"')), Status.COMPLETED)


async def test_a_worker_of_an_app_without_jobs_says_so(config: StoreConfig, capfd: pytest.CaptureFixture[str]) -> None:
    said = ""

    async def warned() -> bool:
        nonlocal said
        said += capfd.readouterr().err
        return "declares no jobs" in said

    async with supervised(config, app="tests.worker.apps.empty:app"):
        await aeventually(warned, 30)
