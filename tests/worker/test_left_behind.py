"""Programs that handlers have started end before their jobs begin again, whoever was killed: never two at once."""

import os
import signal
from pathlib import Path

import psutil
import pytest

from tests.eventually import eventually
from tests.faults.node import node
from tests.worker.isolating import is_alive
from tests.worker.supervised import APP, begun, supervised
from windlass.config import StoreConfig
from windlass.model import NewJob
from windlass.store.store import Store

HANDLERS = ["start_program", "start_program_apart"]


@pytest.mark.parametrize("handler", HANDLERS)
async def test_a_killed_workers_programs_end_before_its_jobs_begin_again(
    config: StoreConfig, tmp_path: Path, handler: str
) -> None:
    async with supervised(config) as crew:
        (worker,) = await crew.living()
        await crew.enqueue(handler, pid_file=str(tmp_path / "pid"))
        (first,) = await begun(tmp_path / "pid")
        os.kill(crew.pid_of(worker), signal.SIGKILL)
        second = (await begun(tmp_path / "pid", 2))[1]
        assert not is_alive(int(first))
        assert is_alive(int(second))
    eventually(lambda: not is_alive(int(second)))  # with the drain


@pytest.mark.parametrize("handler", HANDLERS)
async def test_a_killed_supervisors_programs_end_before_its_jobs_begin_again(
    url: str, store: Store, tmp_path: Path, handler: str
) -> None:
    with node(url, tmp_path / "a", app=APP, threads=2) as one, node(url, tmp_path / "b", app=APP, threads=2) as two:
        one.ready()
        two.ready()
        await store.intake.enqueue([NewJob(handler, {"pid_file": str(tmp_path / "pid")})])
        (first,) = await begun(tmp_path / "pid")
        above = {each.pid for each in psutil.Process(int(first)).parents()}
        victim, other = (one, two) if one.pid in above else (two, one)
        victim.process.kill()
        second = (await begun(tmp_path / "pid", 2))[1]
        assert not is_alive(int(first))
        assert is_alive(int(second))
        other.process.kill()
        eventually(lambda: not is_alive(int(second)), 20)
