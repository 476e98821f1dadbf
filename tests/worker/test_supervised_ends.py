"""How workers leave: seen by all from the first moment, not missed by a shutdown, and never for another attempt's sake."""

import asyncio
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from tests.eventually import aeventually
from tests.pressure import Stopwatch
from tests.worker.supervised import begun, supervised
from windlass.config import StoreConfig
from windlass.errors import Unavailable
from windlass.model import Status, Worker
from windlass.store.store import Store
from windlass.worker.berth import Berth, Crew


async def test_a_worker_that_leaves_by_itself_is_shown_draining_and_is_replaced(
    config: StoreConfig, store: Store, sql: Any, tmp_path: Path
) -> None:
    async with supervised(config, deaf_s=0.5) as crew:
        (worker,) = await crew.living()
        job_id = await crew.enqueue("wait", file=str(tmp_path / "go"), begun=str(tmp_path / "begun"))
        await begun(tmp_path / "begun")
        await sql.execute("alter function windlass.claim_v2 rename to claim_v0")  # it goes deaf, and says so

        async def shown() -> bool:
            (seen,) = [one for one in await store.views.workers() if one.id == worker.id]
            assert seen.alive
            return seen.draining

        await aeventually(shown, 20)
        assert (await store.views.job(job_id)).status is Status.RUNNING
        await sql.execute("alter function windlass.claim_v0 rename to claim_v2")
        (tmp_path / "go").touch()
        done = await crew.until(job_id, Status.COMPLETED)
        assert (done.worker_id, done.attempt) == (worker.id, 1)
        await crew.replaced(worker)


async def test_a_worker_that_drains_by_itself_and_is_taken_along_by_a_job_has_crashed(
    config: StoreConfig, sql: Any, tmp_path: Path
) -> None:
    async with supervised(config, threads=2) as crew:
        (worker,) = await crew.living()
        noted = tmp_path / "begun"
        job_id = await crew.enqueue("exit_when", file=str(tmp_path / "go"), begun=str(noted))
        await crew.enqueue("never_heeds", begun=str(noted), _timeout_s=0.5, _max_attempts=1)
        await begun(noted, 2)
        await aeventually(lambda: _draining(crew.store, worker), 20)
        (tmp_path / "go").touch()
        await crew.until(job_id, Status.SCHEDULED)  # once more, alone
        assert await sql.fetchval("select cause from windlass.worker where id = $1", worker.id) == "crashed"
        first, _ = await crew.store.views.attempts(job_id)
        assert (first.worker_id, first.status) == (worker.id, "lost")


async def _draining(store: Store, worker: Worker) -> bool:
    return any(one.draining for one in await store.views.workers() if one.id == worker.id)


async def test_a_signal_while_a_process_is_made_does_not_wait_for_it_to_start(
    config: StoreConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = Berth.open
    made = asyncio.Event()
    go_on = asyncio.Event()

    async def held_up(crew: Crew, n: int) -> Berth:
        berth = await opened(crew, n)
        made.set()
        await go_on.wait()
        return berth

    monkeypatch.setattr(Berth, "open", held_up)
    async with supervised(config, app="tests.worker.apps.sleepy:app", drain_s=20) as crew:
        await made.wait()
        crew.signals.raise_to(1)
        await asyncio.wait_for(_turns(50), 5)  # the drain has begun, and knows nothing of it
        go_on.set()
        watch = Stopwatch()
        await aeventually(lambda: asyncio.sleep(0, crew.has_ended), 15)
        assert watch.free_s < 5
    assert crew.exit_code == 0


async def _turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


class NoMoreCancels:
    """The real upkeep, over a line that has failed: what was asked for once is not heard of again."""

    def __init__(self, real: Any) -> None:
        self._real = real
        self.cut = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    async def cancels(self, worker_ids: Any) -> Any:
        if self.cut:
            raise Unavailable("cut off")
        return await self._real.cancels(worker_ids)


async def test_an_attempt_is_not_ended_for_the_cancel_of_the_one_before(
    config: StoreConfig, store: Store, tmp_path: Path
) -> None:
    line = NoMoreCancels(store.upkeep)
    async with supervised(config, upkeep=lambda _: line) as crew:
        (worker,) = await crew.living()
        noted = tmp_path / "begun"
        job_id = await crew.enqueue("wait", file=str(tmp_path / "go"), begun=str(noted))
        await begun(noted)
        assert await store.intake.cancel(job_id) is Status.RUNNING
        await crew.until(job_id, Status.CANCELLED)
        line.cut = True
        await store.intake.retry(job_id)
        await begun(noted, 2)
        until_s = time.monotonic() + 3  # the grace, twice

        async def lives_on() -> bool:
            assert [one.id for one in await crew.living()] == [worker.id]
            return time.monotonic() > until_s

        await aeventually(lives_on)
        (tmp_path / "go").touch()
        done = await crew.until(job_id, Status.COMPLETED)
        assert (done.attempt, done.worker_id) == (2, worker.id)


async def test_a_start_that_ended_and_whose_end_was_never_written_counts_as_one_that_died(
    config: StoreConfig, sql: Any, tmp_path: Path
) -> None:
    """Its slot is free, as are those of jobs that have not begun; and yet it must not be started again for nothing."""
    noted = tmp_path / "begun"
    async with supervised(config, threads=2) as crew:
        (worker,) = await crew.living()
        job_id = await crew.enqueue("wait", file=str(tmp_path / "go"), begun=str(noted), _max_attempts=1)
        await begun(noted)
        async with sql.transaction():
            await sql.execute("select from windlass.running where job_id = $1 for update", job_id)
            (tmp_path / "go").touch()
            waiting = await aeventually(lambda: _waiting(sql), 20)
            os.kill(crew.pid_of(worker), signal.SIGKILL)
            await aeventually(lambda: _have_ended(sql, waiting), 20)  # else what it was writing would be written
        job = await crew.until(job_id, Status.FAILED, Status.COMPLETED)
    assert (job.status, job.attempt, job.error and job.error.type) == (Status.FAILED, 1, "MayHaveRun")
    assert len(noted.read_text().split()) == 1


async def _waiting(sql: Any) -> list[int]:
    """The sessions that wait for what our transaction holds."""
    return [row["pid"] for row in await sql.fetch("select pid from pg_locks where not granted")]


async def _have_ended(sql: Any, sessions: list[int]) -> bool:
    found = await sql.fetch("select pid from pg_locks where pid = any ($1)", sessions)
    return not found
