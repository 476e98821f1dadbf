"""The embedded PostgreSQL never outlives its owner, never loses data, and has one owner at a time."""

import os
import random
import re
import shutil
import signal
import subprocess
import threading
from pathlib import Path

import psutil
import pytest

from tests.eventually import eventually
from tests.faults.embedded_client import gone, kept, write
from tests.faults.embedded_support import SCRIPT, Owner, exists, processes_of
from tests.pressure import Stopwatch
from windlass.embedded import guardian
from windlass.embedded.postgres import EmbeddedPostgres
from windlass.errors import InUse

# Every way of dying


def test_killing_the_owner_stops_the_server_cleanly_and_keeps_the_data(data_dir: Path) -> None:
    with Owner("postgres", data_dir).up() as owner:
        write(owner.news["url"], 42)
        assert owner.news["pid"] in processes_of(data_dir)
        owner.kill()
        eventually(lambda: gone(data_dir))
        assert "database system is shut down" in (data_dir / "server.log").read_text()
    with EmbeddedPostgres(data_dir) as pg:
        assert kept(pg.url) == 42


def test_children_that_outlive_the_owner_hold_back_neither_the_stop_nor_the_lock(data_dir: Path) -> None:
    with Owner("postgres", data_dir, "fork").up() as owner:
        owner.kill()
        eventually(lambda: gone(data_dir))
        assert all(exists(child) for child in owner.news["children"])
        with EmbeddedPostgres(data_dir) as pg:
            assert pg.alive


def test_killing_the_guardian_stops_the_server_and_the_owner_sees_it(data_dir: Path) -> None:
    with EmbeddedPostgres(data_dir) as pg:
        write(pg.url, 7)
        os.kill(pg.guardian_pid, signal.SIGKILL)
        eventually(lambda: not pg.alive)
        eventually(lambda: gone(data_dir))
        assert "received fast shutdown request" in pg.log.read_text()
        pg.start()
        assert kept(pg.url) == 7


def test_killing_owner_and_guardian_together_leaves_nothing(data_dir: Path) -> None:
    with Owner("postgres", data_dir).up() as owner:
        write(owner.news["url"], 9)
        os.kill(owner.process.pid, signal.SIGSTOP)
        os.kill(owner.news["guardian_pid"], signal.SIGKILL)
        owner.kill()
        eventually(lambda: gone(data_dir))
    with EmbeddedPostgres(data_dir) as pg:
        assert kept(pg.url) == 9


def test_killing_the_server_is_seen_and_the_next_start_recovers(data_dir: Path) -> None:
    with EmbeddedPostgres(data_dir) as pg:
        write(pg.url, 5)
        pg.kill()
        eventually(lambda: not pg.alive)
        pg.start()
        assert kept(pg.url) == 5
        assert "automatic recovery in progress" in pg.log.read_text()


@pytest.mark.parametrize("victim", ["owner", "guardian"])
def test_killed_at_any_moment_of_a_first_start_nothing_is_left_and_the_next_start_works(
    tmp_path: Path, victim: str
) -> None:
    rng = random.Random(victim)
    data_dir = tmp_path / "data"
    stages = [lambda: processes_of(data_dir), (data_dir / "pgdata.new" / "PG_VERSION").exists]
    for attempt in range(6):
        with Owner("postgres", data_dir) as owner:
            if attempt < 4:
                eventually(stages[attempt % 2])
            with_timeout(owner.process, rng.uniform(0, 0.3))
            kill_one(victim, owner)
            eventually(lambda: gone(data_dir), 20)
            assert owner.process.wait(20) != 0 or victim == "guardian"
            shutil.rmtree(data_dir / "pgdata", ignore_errors=True)
    with EmbeddedPostgres(data_dir) as pg:
        assert pg.alive
        assert not (data_dir / "pgdata.new").exists()


def test_an_owner_whose_guardian_dies_during_the_first_start_says_so(tmp_path: Path) -> None:
    with Owner("postgres", tmp_path) as owner:
        eventually((tmp_path / "pgdata.new" / "PG_VERSION").exists)
        for child in psutil.Process(owner.process.pid).children():
            child.kill()
        assert owner.process.wait(10) != 0
        assert owner.process.stderr is not None
        assert "the first set-up of PostgreSQL failed" in owner.process.stderr.read()
        eventually(lambda: gone(tmp_path))


@pytest.mark.parametrize("orphaned", [True, False])
def test_a_program_whose_guardian_died_before_the_death_signal_was_set_never_runs(
    tmp_path: Path, orphaned: bool
) -> None:
    orders: guardian.Orders = {
        "owner_pid": 0,
        "argv": [str(shutil.which("touch")), str(tmp_path / "ran")],
        "stdin_fd": -1,
        "death_signal": signal.SIGKILL,
        "stop": [],
        "identity": "same",
        "reach": [],
        "run_dir": None,
    }
    parent = os.getpid()
    child = os.fork()
    if child == 0:
        guardian._become(orders, parent + 1 if orphaned else parent, 2)
    os.waitpid(child, 0)
    assert (tmp_path / "ran").exists() is not orphaned


def with_timeout(process: subprocess.Popen[str], seconds: float) -> None:
    """Let a moment pass, at random: the fault may come at any time."""
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return


def kill_one(victim: str, owner: Owner) -> None:
    if victim == "owner":
        owner.kill()
        return
    for child in psutil.Process(owner.process.pid).children():
        child.kill()
    with_timeout(owner.process, 2)
    owner.kill()


# One owner at a time


def test_a_second_owner_is_told_at_once_who_the_first_is(data_dir: Path) -> None:
    with Owner("postgres", data_dir).up() as owner:
        watch = Stopwatch()
        with pytest.raises(InUse) as refusal:
            EmbeddedPostgres(data_dir).start()
        assert watch.free_s < 0.1
        assert f"process {owner.process.pid} (" in str(refusal.value)
        assert SCRIPT.name in str(refusal.value)
        assert re.search(r"started 20\d\d-", str(refusal.value))


def test_a_forked_child_is_refused_too_and_cannot_stop_its_parents_server(data_dir: Path) -> None:
    with EmbeddedPostgres(data_dir) as pg:
        child = os.fork()
        if child == 0:
            pg.stop()
            try:
                EmbeddedPostgres(data_dir).start()
            except InUse as refusal:
                os._exit(0 if f"process {os.getppid()} " in str(refusal) else 1)
            os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert pg.alive
        assert exists(pg.pid)


def test_a_dead_owners_server_is_waited_for_with_a_deadline(data_dir: Path) -> None:
    with Owner("postgres", data_dir).up() as owner:
        write(owner.news["url"], 3)
        os.kill(owner.news["pid"], signal.SIGSTOP)  # a shutdown that takes long
        owner.kill()
        pg = EmbeddedPostgres(data_dir)
        pg.earlier_server_timeout_s = 0.2
        with pytest.raises(InUse, match="still shutting down"):
            pg.start()
        pg.earlier_server_timeout_s = 20
        starting = threading.Thread(target=pg.start)
        starting.start()
        os.kill(owner.news["pid"], signal.SIGCONT)
        starting.join()
        with pg:
            assert pg.pid != owner.news["pid"]
            assert kept(pg.url) == 3
