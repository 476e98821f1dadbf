"""Jobs for whose sake a worker had to be killed: each costs its neighbours one start, and not one at every attempt."""

from pathlib import Path
from typing import Any

import pytest

from tests.eventually import aeventually
from tests.worker.supervised import begun, supervised
from windlass.config import StoreConfig
from windlass.model import NewJob, RetryPolicy, Status


@pytest.mark.parametrize("handler", ["block_loop", "hold_interpreter"])
async def test_a_job_that_forced_a_kill_runs_alone_and_ever_later_from_then_on(
    config: StoreConfig, tmp_path: Path, handler: str
) -> None:
    at_once = RetryPolicy(base_s=0, jitter=0)
    async with supervised(config, threads=3, leads=True) as crew:
        (worker,) = await crew.living()
        neighbour = await crew.enqueue("wait", file=str(tmp_path / "go"), begun=str(tmp_path / "neighbour"))
        await begun(tmp_path / "neighbour")
        culprit = await crew.enqueue(
            handler, begun=str(tmp_path / "culprit"), _timeout_s=0.5, _max_attempts=3, _retry=at_once
        )
        (successor,) = await crew.replaced(worker)
        await crew.until(culprit, Status.FAILED, timeout_s=60)
        (tmp_path / "go").touch()
        innocent = await crew.until(neighbour, Status.COMPLETED)
        assert (innocent.attempt, innocent.worker_id) == (2, successor.id), "one kill for three attempts"
        first, second, third = sorted(await crew.store.views.attempts(culprit), key=lambda one: one.attempt)
        waits_s = [
            (later.started_at - earlier.ended_at).total_seconds()
            for earlier, later in ((first, second), (second, third))
            if later.started_at is not None
        ]
        assert waits_s[0] >= 0.8, "a second, give or take a fifth, though its own policy says none"
        assert waits_s[1] >= 1.6


async def test_a_job_that_holds_the_loop_up_is_isolated_though_another_one_was_past_its_timeout(
    config: StoreConfig, sql: Any, tmp_path: Path
) -> None:
    """Else whoever has the shortest timeout would be blamed, and the blocker would block the next worker."""
    async with supervised(config, threads=3, leads=True) as crew:
        (worker,) = await crew.living()
        innocent = await crew.enqueue(
            "wait", file=str(tmp_path / "go"), begun=str(tmp_path / "innocent"), _timeout_s=1.0, _max_attempts=9
        )
        await begun(tmp_path / "innocent")
        blocker = await crew.enqueue("block_loop", begun=str(tmp_path / "blocker"))
        await crew.replaced(worker)
        await begun(tmp_path / "blocker", 2)
        assert await sql.fetchval("select suspect from windlass.running where job_id = $1", blocker)
        (tmp_path / "go").touch()
        await crew.until(innocent, Status.COMPLETED)
        assert (await crew.until(await crew.enqueue("echo"), Status.COMPLETED)).attempt == 1


async def test_jobs_claimed_ahead_of_a_blocked_loop_go_back_though_it_stays_blocked(
    config: StoreConfig, tmp_path: Path
) -> None:
    async with supervised(config, threads=1, buffer_s=1.0) as crew:
        await crew.living()
        naps = [NewJob("nap", {"seconds": 0.02})] * 60  # so that it claims ahead
        blocker = NewJob("block_loop", {"begun": str(tmp_path / "begun")})
        stored = await crew.store.intake.enqueue([*naps, blocker, *[NewJob("echo")] * 5])
        ids = [one.id for one in stored]
        await begun(tmp_path / "begun")

        async def given_back() -> bool:
            return all([(await crew.store.views.job(one)).status is Status.READY for one in ids[-5:]])

        await aeventually(given_back)
        jobs = [await crew.store.views.job(one) for one in ids[-5:]]
        assert any(job.attempt for job in jobs), "none was claimed ahead: the test shows nothing"
        assert (await crew.store.views.job(ids[60])).status is Status.RUNNING
        assert {job.failures for job in jobs} == {0}
