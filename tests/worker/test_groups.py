"""Process groups without their heads: what is ours is found and killed, what is not is left alone."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from tests.eventually import eventually
from tests.worker.isolating import is_alive
from windlass.worker.groups import Head, kill_groups
from windlass.worker.parentage import started_ticks

LEADER = """
import subprocess, sys
print(subprocess.Popen(["sleep", "1000"], stdout=subprocess.DEVNULL).pid, flush=True)
sys.stdin.read()
"""

Started = Callable[..., tuple["subprocess.Popen[bytes]", Head, int]]


@pytest.fixture
def started() -> Iterator[Started]:
    """A process that leads a group, who it is, and the program it has started."""
    made: list[tuple[subprocess.Popen[bytes], int]] = []

    def start(*, session: bool = False) -> tuple["subprocess.Popen[bytes]", Head, int]:
        process = subprocess.Popen(
            [sys.executable, "-c", LEADER], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            process_group=None if session else 0, start_new_session=session,
        )  # fmt: skip
        assert process.stdout is not None
        program = int(process.stdout.readline())
        made.append((process, program))
        return process, Head(process.pid, started_ticks(process.pid)), program

    yield start
    for process, program in made:
        process.kill()
        process.communicate()
        if is_alive(program):
            os.kill(program, 9)


@pytest.mark.parametrize("leader_gone", [False, True])
def test_what_is_left_of_a_group_is_killed_whether_or_not_its_leader_lives(started: Started, leader_gone: bool) -> None:
    process, head, program = started()
    if leader_gone:
        process.kill()
        process.communicate()
    assert is_alive(program)
    assert kill_groups([head]) == (1 if leader_gone else 2)
    eventually(lambda: not is_alive(program))
    eventually(lambda: kill_groups([head]) == 0)


def test_the_group_of_another_process_with_that_number_is_left_alone(started: Started) -> None:
    _, head, program = started()
    assert kill_groups([head._replace(started=head.started - 1), head._replace(started=0)]) == 0
    assert is_alive(program)


def test_a_group_of_another_session_is_left_alone(started: Started) -> None:
    """Neither we nor our workers begin sessions: that number was given out anew."""
    process, head, program = started(session=True)
    process.kill()
    process.communicate()
    assert kill_groups([head]) == 0
    assert is_alive(program)


def test_nobody_kills_the_group_it_is_in_itself() -> None:
    own = os.getpgrp()
    assert kill_groups([Head(own, started_ticks(own)), Head(0, 1), Head(1, started_ticks(1))]) == 0
