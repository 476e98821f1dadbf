"""Workers that people ask to leave: by a notification at once, by the next heartbeat without one."""

import asyncio
from pathlib import Path
from typing import Any

from tests.eventually import aeventually
from tests.worker.supervised import Supervised, begun, supervised
from windlass.config import LeaseConfig, StoreConfig
from windlass.model import Job, Status, Worker
from windlass.versions import installed_version

_NO_HEARTBEAT = LeaseConfig(lease_ttl_s=3600, heartbeat_s=1000)


async def test_a_drained_worker_finishes_its_job_and_is_not_replaced(config: StoreConfig, tmp_path: Path) -> None:
    async with supervised(config, lease=_NO_HEARTBEAT, processes=2) as crew:
        worker, job = await _with_a_job(crew, tmp_path)
        await crew.store.intake.ask_to_leave(worker.id, "drain")
        (tmp_path / "go").touch()
        done = await crew.until(job.id, Status.COMPLETED)
        assert (done.worker_id, done.attempt) == (worker.id, 1)
        (left,) = await crew.living(1)
        assert left.id != worker.id
        assert await _ended_as(crew, worker) == "left"
        assert (await crew.until(await crew.enqueue("echo"), Status.COMPLETED)).worker_id == left.id
        assert not crew.has_ended
        await crew.store.intake.ask_to_leave(left.id, "drain")  # with its last worker the supervisor ends
        await asyncio.wait_for(asyncio.shield(crew.running), 30)
    assert crew.exit_code == 0


async def test_a_stopped_worker_gives_its_job_back_and_is_replaced(config: StoreConfig, tmp_path: Path) -> None:
    async with supervised(config, lease=_NO_HEARTBEAT) as crew:
        worker, job = await _with_a_job(crew, tmp_path)
        await crew.store.intake.ask_to_leave(worker.id, "stop")
        (new,) = await crew.replaced(worker)
        await begun(tmp_path / "begun", 2)
        (tmp_path / "go").touch()
        done = await crew.until(job.id, Status.COMPLETED)
        assert (done.worker_id, done.attempt, done.failures) == (new.id, 2, 0)
        assert await _ended_as(crew, worker) == "left"


async def test_a_stopped_worker_whose_handler_does_not_stop_is_killed_and_uses_up_no_attempt(
    config: StoreConfig, sql: Any, tmp_path: Path
) -> None:
    async with supervised(config, lease=_NO_HEARTBEAT) as crew:
        (worker,) = await crew.living()
        job_id = await crew.enqueue("hold_interpreter", begun=str(tmp_path / "begun"))
        await begun(tmp_path / "begun")
        await crew.store.intake.ask_to_leave(worker.id, "stop")
        await begun(tmp_path / "begun", 2)
        job = await crew.store.views.job(job_id)
        assert (job.attempt, job.failures) == (2, 0)
        assert not await sql.fetchval("select suspect from windlass.running where job_id = $1", job_id)


async def test_a_worker_that_drains_and_is_stopped_then_is_not_replaced(config: StoreConfig, tmp_path: Path) -> None:
    async with supervised(config, lease=_NO_HEARTBEAT) as crew:
        worker, job = await _with_a_job(crew, tmp_path)
        await crew.store.intake.ask_to_leave(worker.id, "drain")
        await crew.store.intake.ask_to_leave(worker.id, "stop")
        await asyncio.wait_for(asyncio.shield(crew.running), 30)
        await crew.until(job.id, Status.READY)
        assert await crew.store.views.thread_map() == []
    assert crew.exit_code == 0


async def test_without_a_notification_the_next_heartbeat_tells(config: StoreConfig, sql: Any, tmp_path: Path) -> None:
    async with supervised(config) as crew:
        worker, job = await _with_a_job(crew, tmp_path)
        await sql.execute("update windlass.worker set stopping = true where id = $1", worker.id)
        (new,) = await crew.replaced(worker)
        (tmp_path / "go").touch()
        assert (await crew.until(job.id, Status.COMPLETED)).worker_id == new.id


async def test_a_worker_tells_its_version_and_its_memory(config: StoreConfig) -> None:
    async with supervised(config) as crew:
        (worker,) = await crew.living()
        assert worker.version == installed_version() is not None

        async def measured() -> int | None:
            return (await crew.store.views.worker(worker.id)).memory_bytes

        memory = await aeventually(measured)
        assert memory is not None
        assert 10 * 2**20 < memory < 2**30


async def _with_a_job(crew: Supervised, tmp_path: Path) -> tuple[Worker, Job]:
    """A worker that runs a job, until `go` is there."""
    await crew.living(len(crew.crew.config.worker.widths))
    job_id = await crew.enqueue("wait", file=str(tmp_path / "go"), begun=str(tmp_path / "begun"))
    await begun(tmp_path / "begun")
    job = await crew.store.views.job(job_id)
    assert job.worker_id is not None
    return await crew.store.views.worker(job.worker_id), job


async def _ended_as(crew: Supervised, worker: Worker) -> str:
    async def ended() -> str:
        one = await crew.store.views.worker(worker.id)
        return "" if one.died_at is None else "left" if one.stopped else "crashed"

    return await aeventually(ended, 30)
