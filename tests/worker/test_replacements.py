"""Workers that should make way for others: the others start beside them, and no more of them than allowed."""

from pathlib import Path
from uuid import UUID

from tests.eventually import aeventually
from tests.worker.supervised import Supervised, begun, children, supervised
from windlass.config import StoreConfig
from windlass.model import Status, Worker

_WORKERS = "windlass.worker.main"


async def test_a_worker_with_a_stuck_thread_is_replaced_at_once_and_finishes_its_other_jobs(
    config: StoreConfig, tmp_path: Path
) -> None:
    async with supervised(config, threads=2) as crew:
        (worker,) = await crew.living()
        neighbour = await _neighbour(crew, tmp_path)
        stuck = await _stuck(crew, tmp_path)
        old, new = await _beside(crew, worker)
        assert (old.lost_threads, old.draining, old.jobs) == (1, True, 2)
        assert (new.lost_threads, new.draining, new.threads) == (0, False, 2)
        assert (await crew.until(await crew.enqueue("echo"), Status.COMPLETED)).worker_id == new.id
        assert (await crew.store.views.job(stuck)).status is Status.RUNNING, (
            "not to be tried again while it may still run"
        )
        (tmp_path / "go").touch()
        done = await crew.until(neighbour, Status.COMPLETED)
        assert (done.worker_id, done.attempt) == (worker.id, 1)
        job = await crew.until(stuck, Status.FAILED)
        assert job.error is not None
        assert job.error.type == "TimedOut"
        assert [one.id for one in await crew.living()] == [new.id]


async def test_where_no_more_may_be_replaced_a_worker_goes_on_with_the_threads_it_has_left(
    config: StoreConfig, tmp_path: Path
) -> None:
    async with supervised(config, threads=3, replacing_max=1) as crew:
        (worker,) = await crew.living()
        first = await _neighbour(crew, tmp_path, "first")
        await _stuck(crew, tmp_path)
        _, new = await _beside(crew, worker)
        second = await _neighbour(crew, tmp_path, "second")
        await _stuck(crew, tmp_path)

        async def lost() -> bool:
            return any(one.lost_threads for one in await crew.store.views.workers() if one.id == new.id)

        await aeventually(lost)
        assert (await crew.until(await crew.enqueue("echo"), Status.COMPLETED)).worker_id == new.id
        assert len(children(_WORKERS)) == 2
        (tmp_path / "first").touch()  # the first one goes, and makes room
        await crew.until(first, Status.COMPLETED)
        await _beside(crew, new)
        (tmp_path / "second").touch()
        done = await crew.until(second, Status.COMPLETED)
        assert (done.worker_id, done.attempt) == (new.id, 1)


async def test_a_worker_without_a_thread_left_is_replaced_whatever_else_is_being_replaced(
    config: StoreConfig, tmp_path: Path
) -> None:
    async with supervised(config, threads=2, replacing_max=1) as crew:
        (worker,) = await crew.living()
        await _neighbour(crew, tmp_path)
        await _stuck(crew, tmp_path)
        _, new = await _beside(crew, worker)
        for _ in range(2):
            await _stuck(crew, tmp_path)

        async def replaced() -> bool:
            living = {one.id for one in await crew.store.views.workers() if one.alive}
            return len(living) == 2 and worker.id in living and new.id not in living

        await aeventually(replaced)
        await crew.until(await crew.enqueue("echo"), Status.COMPLETED)


async def test_a_worker_that_makes_way_is_let_finish_by_a_drain_of_the_supervisor(
    config: StoreConfig, tmp_path: Path
) -> None:
    async with supervised(config, threads=2) as crew:
        (worker,) = await crew.living()
        neighbour = await _neighbour(crew, tmp_path)
        await _stuck(crew, tmp_path)
        await _beside(crew, worker)
        crew.signals.raise_to(1)
        (tmp_path / "go").touch()
        assert (await crew.until(neighbour, Status.COMPLETED)).attempt == 1
        await aeventually(lambda: _ended(crew))
    assert crew.exit_code == 0


async def test_a_frozen_worker_is_killed_and_its_jobs_start_again(config: StoreConfig, tmp_path: Path) -> None:
    async with supervised(config, frozen_s=1.0) as crew:
        (worker,) = await crew.living()
        job_id = await _neighbour(crew, tmp_path)
        (process,) = children(_WORKERS)
        process.suspend()
        await crew.replaced(worker)
        await begun(tmp_path / "begun-go", 2)
        (tmp_path / "go").touch()
        done = await crew.until(job_id, Status.COMPLETED)
        assert (done.attempt, done.failures) == (2, 1), "a start that died"


async def test_a_worker_whose_loop_a_handler_blocks_is_not_taken_for_frozen(
    config: StoreConfig, tmp_path: Path
) -> None:
    async with supervised(config, frozen_s=0.1) as crew:
        (worker,) = await crew.living()
        await crew.enqueue("block_loop", begun=str(tmp_path / "begun"), _timeout_s=4.0, _max_attempts=1)
        await begun(tmp_path / "begun")
        await crew.replaced(worker)
        (job,) = (await crew.store.views.jobs()).jobs
        assert job.error is not None
        assert job.error.type == "TimedOut"


async def _neighbour(crew: Supervised, folder: Path, until: str = "go") -> UUID:
    """A job that runs until it is let go."""
    noted = folder / f"begun-{until}"
    job_id = await crew.enqueue("wait", file=str(folder / until), begun=str(noted))
    await begun(noted)
    return job_id


async def _stuck(crew: Supervised, folder: Path) -> UUID:
    return await crew.enqueue("never_heeds", begun=str(folder / "stuck"), _timeout_s=0.3, _max_attempts=1)


async def _beside(crew: Supervised, old: Worker) -> tuple[Worker, Worker]:
    """The old worker and another, both alive, once the old one is known to drain with a thread lost."""

    async def there() -> tuple[Worker, Worker] | None:
        living = {one.id: one for one in await crew.store.views.workers() if one.alive}
        others = [one for one in living.values() if one.id != old.id and not one.draining]
        mine = living.get(old.id)
        return (mine, others[0]) if mine is not None and others and mine.draining and mine.lost_threads else None

    both = await aeventually(there)
    assert both is not None
    return both


async def _ended(crew: Supervised) -> bool:
    return crew.has_ended
