"""The command as a process: its signals, its guard, its death, and its life as PID 1."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Any
from uuid import UUID, uuid4

import psutil
import pytest

from tests.eventually import aeventually, eventually
from tests.factory import Rig
from tests.worker.supervised import APP, begun
from windlass.config import Config, StoreConfig
from windlass.model import Status
from windlass.store.store import Store
from windlass.worker.control import config_said, encoded
from windlass.worker.parentage import started_ticks

WINDLASS = Path(sys.executable).with_name("windlass")
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith(("WINDLASS_", "DATABASE_"))}


class Command:
    """`windlass worker`, running."""

    def __init__(self, url: str, log: IO[bytes], *, before: tuple[str, ...] = (), **environ: str) -> None:
        usual = {"WINDLASS_DATABASE_URL": url, "WINDLASS_STOP_GRACE_S": "1", "WINDLASS_STOP_ASK_S": "0.1"}
        argv = [*before, str(WINDLASS), "worker", "--app", APP, "--threads", "2", "--name", "test"]
        self.process = subprocess.Popen(argv, env={**CLEAN, **usual, **environ}, stderr=log, stdout=log)

    def family(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children(recursive=True)

    def guard(self) -> psutil.Process:
        guards = [one for one in self.family() if "windlass.worker.guard" in cmdline(one)]
        assert len(guards) == 1
        return guards[0]


def cmdline(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def ended(process: psutil.Process) -> bool:
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


def all_ended(processes: list[psutil.Process]) -> bool:
    return all(map(ended, processes))


Run = Callable[..., Command]


@pytest.fixture
def command(url: str, tmp_path: Path) -> Iterator[Run]:
    """Start it; afterwards nothing of it may be left."""
    with running(url, tmp_path / "log") as run:
        yield run


@contextmanager
def running(url: str, log: Path) -> Iterator[Run]:
    started: list[Command] = []

    def run(**options: Any) -> Command:
        with log.open("ab") as file:
            started.append(Command(url, file, **options))
        return started[-1]

    try:
        yield run
    finally:
        for one in started:
            family = one.family() if one.process.poll() is None else []
            one.process.kill()
            one.process.wait(10)
            print(log.read_text())
            assert eventually(partial(all_ended, family), 20)


async def enqueue_waiting(rig: Rig, tmp_path: Path, count: int = 2) -> list[UUID]:
    payload = {"file": str(tmp_path / "never"), "begun": str(tmp_path / "begun")}
    jobs = await rig.enqueue(count, type="wait", payload=payload)
    await begun(tmp_path / "begun", count)
    return jobs


async def until_ready(rig: Rig, jobs: list[UUID], timeout_s: float) -> None:
    async def ready() -> bool:
        return {await rig.status(job) for job in jobs} == {Status.READY}

    await aeventually(ready, timeout_s)


@pytest.mark.parametrize("guard_killed_before", [False, True])
async def test_a_killed_supervisor_costs_seconds_not_a_lease(
    command: Run, rig: Rig, store: Store, tmp_path: Path, guard_killed_before: bool
) -> None:
    run = command()
    jobs = await enqueue_waiting(rig, tmp_path)
    if guard_killed_before:
        old = run.guard()
        old.kill()
        eventually(lambda: run.guard().pid != old.pid)
    family = run.family()
    run.process.kill()
    killed_s = time.monotonic()
    await until_ready(rig, jobs, 10)
    print(f"jobs given back {time.monotonic() - killed_s:.2f} s after the supervisor was killed")
    eventually(partial(all_ended, family))
    for job_id in jobs:
        (attempt,) = await store.views.attempts(job_id)
        job = await store.views.job(job_id)
        assert (attempt.status, job.failures) == ("lost", 1), "what had begun has died"
    assert {worker.died_at is not None for worker in await store.views.workers()} == {True}


async def test_workers_do_not_outlive_supervisor_and_guard(command: Run, rig: Rig, tmp_path: Path) -> None:
    run = command()
    await enqueue_waiting(rig, tmp_path)
    family = run.family()
    run.guard().kill()
    run.process.kill()
    eventually(partial(all_ended, family))


async def test_a_node_frozen_past_its_lease_loses_its_jobs_and_its_say(
    command: Run, rig: Rig, store: Store, tmp_path: Path
) -> None:
    lease = {"WINDLASS_LEASE_TTL_S": "2", "WINDLASS_HEARTBEAT_S": "0.3"}
    frozen = command(**lease)
    (job_id,) = await enqueue_waiting(rig, tmp_path, 1)
    (old,) = await store.views.workers()
    node = [psutil.Process(frozen.process.pid), *frozen.family()]
    for process in node:
        process.suspend()
    command(**lease)
    await begun(tmp_path / "begun", 2)  # elsewhere, again
    for process in node:
        process.resume()
    # The old attempt would see this file, too, and complete the job: it is dead, or what it says is refused.
    (tmp_path / "never").touch()

    async def completed() -> bool:
        return await rig.status(job_id) is Status.COMPLETED

    await aeventually(completed, 20)
    job = await store.views.job(job_id)
    assert job.attempt == 2
    assert job.worker_id != old.id

    async def back() -> bool:
        return sum(worker.alive for worker in await store.views.workers()) == 2

    await aeventually(back, 20)  # with a new id


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_one_signal_drains_two_give_back(
    command: Run, rig: Rig, store: Store, tmp_path: Path, number: signal.Signals
) -> None:
    run = command()
    jobs = await enqueue_waiting(rig, tmp_path)
    run.process.send_signal(number)

    async def draining() -> bool:
        return any(worker.draining for worker in await store.views.workers())

    await aeventually(draining)
    assert {await rig.status(job) for job in jobs} == {Status.RUNNING}
    run.process.send_signal(number)
    assert run.process.wait(15) == 0
    await until_ready(rig, jobs, 1)
    assert [await store.views.attempts(job) for job in jobs] == [[], []]  # given back, not lost


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_the_third_signal_ends_at_once_and_the_guard_gives_back(
    command: Run, rig: Rig, store: Store, tmp_path: Path, number: signal.Signals
) -> None:
    run = command()
    jobs = await rig.enqueue(1, type="never_heeds", payload={"begun": str(tmp_path / "begun")})
    await begun(tmp_path / "begun")
    family = run.family()
    # One after the other: signals that are still pending when the next of their kind comes are one signal.
    run.process.send_signal(number)
    eventually(lambda: "draining" in (tmp_path / "log").read_text())
    run.process.send_signal(number)
    eventually(lambda: "releasing" in (tmp_path / "log").read_text())
    run.process.send_signal(number)
    assert run.process.wait(2) == 128 + number
    await until_ready(rig, jobs, 10)
    eventually(partial(all_ended, family))


def test_a_signal_while_it_starts_ends_it(command: Run, tmp_path: Path) -> None:
    run = command()
    eventually(lambda: any("windlass.worker.main" in cmdline(one) for one in run.family()))
    run.process.terminate()
    assert run.process.wait(15) == 0


@pytest.mark.parametrize(
    ("args", "environ", "code", "says"),
    [
        (["--app", "nowhere_at_all:app"], {}, 2, "nowhere_at_all"),
        (["--app", "tests.worker.apps.supervised:nothing"], {}, 2, "nothing"),
        (["--app", APP, "--queues", "a b"], {}, 3, "WINDLASS_QUEUES"),
        (["--app", APP, "--name", "two\nlines"], {}, 3, "--name"),
        (["--app", APP], {"WINDLASS_THREADS": "many"}, 3, "WINDLASS_THREADS"),
        (["--app", APP], {"WINDLASS_DATABASE_URL": ""}, 3, "no database"),
        (["--app", APP], {"WINDLASS_DATABASE_URL": "postgresql://u:secret@127.0.0.1:1/d"}, 6, "cannot be reached"),
    ],
)
def test_what_cannot_work_is_refused_in_one_line(
    url: str, args: list[str], environ: dict[str, str], code: int, says: str
) -> None:
    done = subprocess.run(
        [WINDLASS, "worker", *args], env={**CLEAN, "WINDLASS_DATABASE_URL": url, **environ},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == code, done.stderr
    assert len([line for line in done.stderr.splitlines() if line.startswith("windlass:")]) == 1
    assert says in done.stderr
    assert "secret" not in done.stderr


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("unshare"), reason="needs root and unshare")
async def test_as_pid_1_it_heeds_signals_and_leaves_no_zombies(command: Run, rig: Rig, tmp_path: Path) -> None:
    run = command(before=("unshare", "--pid", "--fork", "--mount-proc", "--kill-child"))
    payload = {"pid_file": str(tmp_path / "pid")}
    (job,) = await rig.enqueue(1, type="leave_orphan", payload=payload)

    async def completed() -> bool:
        return await rig.status(job) is Status.COMPLETED

    await aeventually(completed, 20)
    (supervisor,) = psutil.Process(run.process.pid).children()
    (orphan,) = [one for one in supervisor.children() if one.name() == "sleep"]
    eventually(lambda: not psutil.pid_exists(orphan.pid))
    supervisor.terminate()
    assert run.process.wait(20) == 0


# The guard itself. ----------------------------------------------------------------------------------------------------


def told(*messages: dict[str, Any], config: StoreConfig) -> bytes:
    start = {"say": "start", "config": config_said(Config(store=config))}
    return b"".join(map(encoded, (start, *messages)))


def guard(lines: bytes) -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run(
        [sys.executable, "-m", "windlass.worker.guard"], input=lines, timeout=60, check=False, capture_output=True
    )


@pytest.fixture
def sleeper() -> Iterator["subprocess.Popen[bytes]"]:
    with subprocess.Popen(["sleep", "1000"]) as process:
        yield process
        process.kill()


async def test_the_guard_kills_and_buries_whom_it_was_told_of(
    config: StoreConfig, rig: Rig, sleeper: "subprocess.Popen[bytes]"
) -> None:
    await rig.enqueue(2)
    dead, sent_away = await rig.worker(), await rig.worker()
    (lost,) = await dead.claim(1)
    (kept,) = await sent_away.claim(1)
    here = {"say": "worker", "pid": sleeper.pid, "started": started_ticks(sleeper.pid)}
    gone = {"say": "gone", "id": str(sent_away.id)}
    lines = told({**here, "id": str(sent_away.id)}, {**here, "id": str(dead.id)}, gone, config=config)
    assert guard(lines + b'{"say": "gone", "id": "torn').returncode == 0
    assert sleeper.wait(1) == -signal.SIGKILL
    assert await rig.status(lost.job_id) is Status.READY
    assert await rig.status(kept.job_id) is Status.RUNNING


async def test_the_guard_does_nothing_after_a_farewell(
    config: StoreConfig, rig: Rig, sleeper: "subprocess.Popen[bytes]"
) -> None:
    worker = await rig.worker()
    here = {"say": "worker", "id": str(worker.id), "pid": sleeper.pid, "started": started_ticks(sleeper.pid)}
    done = guard(told(here, {"say": "bye"}, config=config))
    assert (done.returncode, done.stderr, sleeper.poll()) == (0, b"", None)
    assert (await rig.store.views.workers())[0].alive


async def test_the_guard_never_kills_a_process_that_got_the_number_of_another(
    config: StoreConfig, rig: Rig, sleeper: "subprocess.Popen[bytes]"
) -> None:
    worker = await rig.worker()
    here = {"say": "worker", "id": str(worker.id), "pid": sleeper.pid, "started": started_ticks(sleeper.pid) - 1}
    assert guard(told(here, config=config)).returncode == 0
    assert sleeper.poll() is None
    assert not (await rig.store.views.workers())[0].alive


def test_a_sleeping_guard_is_small_and_has_no_driver(config: StoreConfig, sleeper: "subprocess.Popen[bytes]") -> None:
    # Not of ourselves: should anything below fail, the guard does its work.
    here = {"say": "worker", "id": str(uuid4()), "pid": sleeper.pid, "started": started_ticks(sleeper.pid)}
    with subprocess.Popen([sys.executable, "-m", "windlass.worker.guard"], stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        process.stdin.write(told(here, config=config))
        process.stdin.flush()
        # It has heard of the worker once it has a descriptor of it.
        descriptors = Path(f"/proc/{process.pid}/fd")
        eventually(lambda: any("pidfd" in _target(one) for one in descriptors.iterdir()))
        mib = psutil.Process(process.pid).memory_info().rss / 1_048_576
        print(f"the guard uses {mib:.1f} MiB")
        assert "asyncpg" not in Path(f"/proc/{process.pid}/maps").read_text()
        assert mib < 30
        process.stdin.write(encoded({"say": "bye"}))
        process.stdin.close()
        assert process.wait(10) == 0


def _target(link: Path) -> str:
    with contextlib.suppress(OSError):  # a descriptor that was closed since it was listed
        return str(link.readlink())
    return ""
