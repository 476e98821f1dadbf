"""The supervisor: whatever happens to a worker, its jobs go on, the innocent lose nothing, and nothing outlives it."""

import asyncio
import os
import signal
import time
from itertools import pairwise
from pathlib import Path
from typing import Any
from uuid import UUID

import psutil
import pytest

from tests.eventually import aeventually
from tests.pressure import Stopwatch
from tests.worker.supervised import begun, children, supervised
from windlass.config import LeaseConfig, StoreConfig
from windlass.errors import Unavailable
from windlass.model import Status
from windlass.store.store import Store
from windlass.worker.supervisor import REFUSED

pytestmark = pytest.mark.filterwarnings("default::ResourceWarning")


async def test_workers_run_jobs_and_leave_in_order(config: StoreConfig, store: Store) -> None:
    async with supervised(config, processes=2) as crew:
        workers = await crew.living(2)
        assert {worker.supervisor_id for worker in workers} == {crew.crew.supervisor_id}
        assert len(children("windlass.worker.guard")) == 1
        job_id = await crew.enqueue("echo")
        await crew.until(job_id, Status.COMPLETED)
        crew.signals.raise_to(1)
    assert crew.exit_code == 0
    assert {(worker.died_at is not None, worker.stopped) for worker in await store.views.workers()} == {(True, True)}


async def test_a_worker_that_was_killed_has_not_stopped(config: StoreConfig, store: Store) -> None:
    async with supervised(config) as crew:
        (worker,) = await crew.living()
        os.kill(crew.pid_of(worker), signal.SIGKILL)
        (after,) = await crew.replaced(worker)
        crew.signals.raise_to(1)
    assert {one.id: one.stopped for one in await store.views.workers()} == {worker.id: False, after.id: True}


async def test_a_drain_waits_for_what_runs(config: StoreConfig, store: Store, tmp_path: Path) -> None:
    async with supervised(config) as crew:
        (worker,) = await crew.living()
        job_id = await crew.enqueue("wait", file=str(tmp_path / "go"), begun=str(tmp_path / "begun"))
        await begun(tmp_path / "begun")
        crew.signals.raise_to(1)

        async def draining() -> bool:
            return any(one.draining for one in await store.views.workers())

        await aeventually(draining)
        left_s = (await crew.living())[0].lease_left_s

        async def renewed() -> bool:
            return (await crew.living())[0].lease_left_s > left_s

        await aeventually(renewed)  # heartbeats go on meanwhile
        (tmp_path / "go").touch()
        job = await crew.until(job_id, Status.COMPLETED)
    assert (job.worker_id, job.attempt, crew.exit_code) == (worker.id, 1, 0)


async def test_a_second_signal_gives_running_jobs_back_unburned(
    config: StoreConfig, store: Store, tmp_path: Path
) -> None:
    async with supervised(config) as crew:
        await crew.living()
        heeds = await crew.enqueue("wait", file=str(tmp_path / "never"), begun=str(tmp_path / "begun"))
        ignores = await crew.enqueue("never_heeds", begun=str(tmp_path / "begun"))
        await begun(tmp_path / "begun", 2)
        crew.signals.raise_to(2)
    for job_id in (heeds, ignores):
        job = await store.views.job(job_id)
        assert (job.status, job.failures) == (Status.READY, 0)
    assert crew.exit_code == 0


async def test_a_drain_that_takes_too_long_becomes_a_release(config: StoreConfig, store: Store, tmp_path: Path) -> None:
    async with supervised(config, drain_s=0.3) as crew:
        await crew.living()
        job_id = await crew.enqueue("wait", file=str(tmp_path / "never"), begun=str(tmp_path / "begun"))
        await begun(tmp_path / "begun")
        crew.signals.raise_to(1)
        await crew.until(job_id, Status.READY)
    assert crew.exit_code == 0


async def test_workers_may_differ_in_width_and_a_replaced_one_keeps_its_own(config: StoreConfig) -> None:
    async with supervised(config, workers="1,3") as crew:
        before = await crew.living(2)
        assert sorted(worker.threads for worker in before) == [1, 3]
        wide = next(worker for worker in before if worker.threads == 3)
        job = await crew.until(await crew.enqueue("echo", _thread_demand=3), Status.COMPLETED)
        assert (job.worker_id, job.threads_granted) == (wide.id, 3)
        os.kill(crew.pid_of(wide), signal.SIGKILL)

        async def replaced() -> bool:
            return wide.id not in {worker.id for worker in await crew.living(2)}

        await aeventually(replaced)
        assert sorted(worker.threads for worker in await crew.living(2)) == [1, 3]


async def test_the_jobs_of_a_killed_worker_go_on_elsewhere_at_once(config: StoreConfig, tmp_path: Path) -> None:
    async with supervised(config, processes=2, threads=4) as crew:
        await crew.living(2)
        noted = tmp_path / "begun"
        jobs = [await crew.enqueue("wait", file=str(tmp_path / "go"), begun=str(noted)) for _ in range(4)]
        await begun(noted, 4)
        victim = next(worker for worker in await crew.living(2) if worker.jobs)
        held = victim.jobs
        os.kill(crew.pid_of(victim), signal.SIGKILL)
        watch = Stopwatch()
        await begun(noted, 4 + held)
        took_s = watch.free_s
        print(f"{held} jobs of a killed worker began again after {took_s:.2f} s")
        assert took_s < 5  # under 1 s with a core to itself, and suspects need a process of their own
        (tmp_path / "go").touch()
        for job_id in jobs:
            job = await crew.until(job_id, Status.COMPLETED)
            assert job.failures == job.attempt - 1  # a start that died is one
        assert victim.id not in {worker.id for worker in await crew.living(2)}
        attempts = [one for job_id in jobs for one in await crew.store.views.attempts(job_id)]
        assert [one.worker_id for one in attempts if one.status == "lost"] == [victim.id] * held


@pytest.mark.parametrize("how", ["exit", "kill", "segfault"])
async def test_a_worker_that_dies_by_itself_makes_a_suspect_of_what_had_begun_alone(
    config: StoreConfig, sql: Any, how: str
) -> None:
    async with supervised(config, threads=1) as crew:
        (worker,) = await crew.living()
        await crew.store.intake.set_paused("default", paused=True)
        (culprit, innocent) = [await crew.enqueue("die", how=how), await crew.enqueue("echo")]
        await crew.store.intake.set_paused("default", paused=False)
        await crew.until(innocent, Status.COMPLETED)

        async def crashed() -> bool:
            cause = await sql.fetchval("select cause from windlass.worker where id = $1", worker.id)
            return bool(cause == "crashed")

        await aeventually(crashed, 20)
        assert (await crew.store.views.job(innocent)).failures == 0
        await crew.until(culprit, Status.SCHEDULED)  # it crashed alone, once more
        first, second = await crew.store.views.attempts(culprit)
        assert (first.worker_id, first.error and first.error.type) == (worker.id, "Lost")
        assert (second.error and second.error.type) == "Crashed"
        assert await sql.fetchval("select suspect from windlass.scheduled where job_id = $1", culprit)


async def test_a_handler_that_holds_the_interpreter_is_ended_at_its_deadline(
    config: StoreConfig, store: Store, tmp_path: Path
) -> None:
    noted = tmp_path / "begun"
    async with supervised(config, threads=2) as crew:
        await crew.living()
        neighbour = await crew.enqueue("wait", file=str(tmp_path / "go"), begun=str(noted))
        await begun(noted)
        culprit = await crew.enqueue("hold_interpreter", begun=str(noted), _timeout_s=1.0, _max_attempts=1)
        job = await crew.until(culprit, Status.FAILED)
        assert job.error is not None
        assert (job.error.type, job.attempt) == ("TimedOut", 1)
        await begun(noted, 3)  # the neighbour again
        (tmp_path / "go").touch()
        innocent = await crew.until(neighbour, Status.COMPLETED)
        assert (innocent.failures, innocent.attempt) == (1, 2)  # its start died
        lost = [one for one in await store.views.attempts(neighbour) if one.status == "lost"]
        assert len(lost) == 1


async def test_a_handler_that_holds_the_interpreter_costs_no_lease(config: StoreConfig, tmp_path: Path) -> None:
    lease = LeaseConfig(lease_ttl_s=1.5, heartbeat_s=0.2)
    async with supervised(config, lease=lease) as crew:
        (worker,) = await crew.living()
        await crew.enqueue("hold_interpreter", begun=str(tmp_path / "begun"), _max_attempts=1)
        await begun(tmp_path / "begun")
        until_s = time.monotonic() + 2 * lease.lease_ttl_s

        async def long_after() -> bool:
            assert [one.id for one in await crew.living()] == [worker.id]
            return time.monotonic() > until_s

        await aeventually(long_after, 30)


@pytest.mark.parametrize("handler", ["block_loop", "hold_interpreter"])
async def test_a_cancel_reaches_what_cannot_hear_it(config: StoreConfig, tmp_path: Path, handler: str) -> None:
    async with supervised(config) as crew:
        (worker,) = await crew.living()
        job_id = await crew.enqueue(handler, begun=str(tmp_path / "begun"))
        await begun(tmp_path / "begun")
        assert await crew.store.intake.cancel(job_id) is Status.RUNNING
        await crew.until(job_id, Status.CANCELLED, timeout_s=15)
        await crew.replaced(worker)


async def test_a_thread_that_cannot_be_freed_is_shown_and_its_worker_replaced(
    config: StoreConfig, sql: Any, tmp_path: Path
) -> None:
    async with supervised(config, threads=2) as crew:
        (worker,) = await crew.living()
        noted = tmp_path / "begun"
        neighbour = await crew.enqueue("wait", file=str(tmp_path / "go"), begun=str(noted))
        stuck = await crew.enqueue("never_heeds", begun=str(noted), _timeout_s=0.5, _max_attempts=1)

        async def shown() -> bool:
            lost: int = await sql.fetchval("select lost_threads from windlass.worker where id = $1", worker.id)
            return lost == 1

        await aeventually(shown, 20)
        assert (await crew.store.views.job(stuck)).status is Status.RUNNING  # its process has not ended yet
        (tmp_path / "go").touch()
        done = await crew.until(neighbour, Status.COMPLETED)
        assert (done.worker_id, done.attempt) == (worker.id, 1)
        job = await crew.until(stuck, Status.FAILED)
        assert job.error is not None
        assert job.error.type == "TimedOut"
        await crew.replaced(worker)


async def test_a_worker_declared_dead_is_killed_and_replaced(config: StoreConfig, store: Store, tmp_path: Path) -> None:
    async with supervised(config) as crew:
        (worker,) = await crew.living()
        job_id = await crew.enqueue("wait", file=str(tmp_path / "go"), begun=str(tmp_path / "begun"))
        await begun(tmp_path / "begun")
        await store.upkeep.bury([worker.id], "left")
        await crew.replaced(worker)
        assert not psutil.pid_exists(crew.pid_of(worker))
        await begun(tmp_path / "begun", 2)
        (tmp_path / "go").touch()
        assert (await crew.until(job_id, Status.COMPLETED)).attempt == 2


class CutOff:
    """The real upkeep over a line that can be cut: nothing gets through, and after a while that is an error."""

    def __init__(self, real: Any) -> None:
        self._real = real
        self.cut = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        async def act(*args: Any, **options: Any) -> Any:
            if self.cut.is_set():
                raise Unavailable("cut off")
            return await getattr(self._real, name)(*args, **options)

        return act


async def test_no_job_outlives_a_lease_that_cannot_be_renewed(
    config: StoreConfig, store: Store, tmp_path: Path
) -> None:
    lease = LeaseConfig(lease_ttl_s=1.5, heartbeat_s=0.2)
    line = CutOff(store.upkeep)
    async with supervised(config, lease=lease, upkeep=lambda _: line) as crew:
        (worker,) = await crew.living()
        job_id = await crew.enqueue("wait", file=str(tmp_path / "go"), begun=str(tmp_path / "begun"))
        await begun(tmp_path / "begun")
        line.cut.set()

        async def gone_before_its_lease() -> bool:
            (seen,) = [one for one in await store.views.workers() if one.id == worker.id]
            gone = not psutil.pid_exists(crew.pid_of(worker))
            assert gone or seen.lease_left_s > 0, "it lives on without a lease"
            return gone

        await aeventually(gone_before_its_lease)
        assert (await store.views.job(job_id)).status is Status.RUNNING
        line.cut.clear()
        await begun(tmp_path / "begun", 2)
        (tmp_path / "go").touch()
        job = await crew.until(job_id, Status.COMPLETED)
        assert (job.failures, job.attempt) == (0, 2)
    assert not await suspected(store, job_id)


async def suspected(store: Store, job_id: UUID) -> bool:
    """Whether a crash was ever held against it."""
    errors = [one.error for one in await store.views.attempts(job_id)]
    return any(error is not None and error.type in {"Crashed", "PoisonPill"} for error in errors)


async def test_a_worker_that_has_grown_too_big_is_replaced(config: StoreConfig) -> None:
    async with supervised(config, worker_mib_max=300) as crew:
        (worker,) = await crew.living()
        job_id = await crew.enqueue("grow", mib=400)
        await crew.replaced(worker)
        assert (await crew.until(job_id, Status.COMPLETED)).worker_id == worker.id


async def test_what_a_handler_started_does_not_outlive_its_worker(config: StoreConfig, tmp_path: Path) -> None:
    async with supervised(config) as crew:
        (worker,) = await crew.living()
        await crew.enqueue("start_program", pid_file=str(tmp_path / "pid"), _max_attempts=1)
        (pid,) = await begun(tmp_path / "pid")
        os.kill(crew.pid_of(worker), signal.SIGKILL)

        async def gone() -> bool:
            return not psutil.pid_exists(int(pid)) or psutil.Process(int(pid)).status() == psutil.STATUS_ZOMBIE

        await aeventually(gone)


async def test_a_worker_drained_by_others_is_not_replaced(config: StoreConfig, store: Store) -> None:
    async with supervised(config, processes=2) as crew:
        workers = await crew.living(2)
        await store.upkeep.drain([workers[0].id])
        assert [one.id for one in await crew.living(1)] == [workers[1].id]
        await store.upkeep.drain([workers[1].id])
        await crew.deserted()
    assert crew.exit_code == 0


async def test_an_app_that_cannot_be_imported_is_refused_in_one_line(
    config: StoreConfig, capfd: pytest.CaptureFixture[str]
) -> None:
    async with supervised(config, app="tests.worker.apps.nowhere:app", processes=2) as crew:
        await crew.signals.reached(1)
    assert crew.exit_code == REFUSED
    said = [line for line in capfd.readouterr().err.splitlines() if line.startswith("windlass:")]
    assert len(said) == 1
    assert "tests.worker.apps.nowhere" in said[0]


async def test_workers_that_die_at_once_are_restarted_ever_more_slowly(config: StoreConfig, store: Store) -> None:
    births: list[float] = []

    class Counting:
        def __getattr__(self, name: str) -> Any:
            return getattr(store.upkeep, name)

        async def register(self, worker: Any, *, lease_ttl_s: float) -> None:
            births.append(time.monotonic())
            await store.upkeep.register(worker, lease_ttl_s=lease_ttl_s)

    async with supervised(config, upkeep=lambda _: Counting()) as crew:
        (worker,) = await crew.living()
        for _ in range(4):
            os.kill(crew.pid_of(worker), signal.SIGKILL)
            (worker,) = await crew.replaced(worker)
    pauses = [after - before for before, after in pairwise(births)]
    assert pauses[3] > 0.8, pauses  # 0.1, 0.2, 0.4, 0.8 s and the start of a process


async def test_a_guard_that_dies_is_replaced(config: StoreConfig) -> None:
    async with supervised(config) as crew:
        await crew.living()
        (guard,) = children("windlass.worker.guard")
        guard.kill()

        async def another() -> bool:
            return [one.pid for one in children("windlass.worker.guard")] not in ([], [guard.pid])

        await aeventually(another)
        job_id = await crew.enqueue("echo")
        await crew.until(job_id, Status.COMPLETED)
