"""Jobs in processes of their own: every death is an outcome, every stop a kill, and nothing is left behind."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from uuid import UUID

import pytest
import uvloop

from tests.eventually import aeventually, eventually
from tests.pressure import Stopwatch
from tests.worker.isolating import a_run, begun, children, is_alive, isolated, log_of, ran, result
from windlass.lifecycle import (
    Cancelled,
    Completed,
    Failed,
    Lost,
    Outcome,
    Released,
    Snoozed,
    TimedOut,
    result_bytes_max,
    settle,
)
from windlass.worker.isolation import Isolation
from windlass.worker.run import Stop

# What a handler does to itself. -----------------------------------------------------------------------------------


async def test_results_come_back_as_they_were_made(isolation: Isolation) -> None:
    value = {"a": [1, 2.5, None, "é"], "big": 2**80}
    assert await result(isolation, "echo", value) == value
    assert await result(isolation, "aecho", value) == value
    assert await result(isolation, "add", {"a": 1, "b": 2}) == 3
    assert await ran(isolation, "echo", payload=None) == Completed({})._replace(result=("{}", None))


async def test_a_payload_that_does_not_fit_the_handler_fails_for_good(isolation: Isolation) -> None:
    outcome = await ran(isolation, "add", {"a": 1, "b": "x"})
    assert isinstance(outcome, Failed)
    assert outcome.final


@pytest.mark.parametrize("type_", ["echo", "aecho"])
async def test_the_largest_payload_and_result_pass(isolation: Isolation, type_: str) -> None:
    text = "x" * (result_bytes_max - 2)
    assert await result(isolation, type_, text) == text


async def test_a_result_that_cannot_be_stored_finishes_the_job_and_says_why(isolation: Isolation) -> None:
    for type_, payload in (("unstorable", None), ("echo", "x" * result_bytes_max)):
        run = a_run(type_, payload)
        settlement = settle(run.lease, await isolation.run(run), jitter=0)
        assert (settlement.status, settlement.result) == ("completed", None)
        assert "ResultNotStored" in (settlement.error or "")


async def test_a_child_writes_a_result_as_its_type_says(isolation: Isolation) -> None:
    assert await result(isolation, "typed", {"day": "2026-02-07"}) == {str(UUID(int=7)): "1.50"}


async def test_what_a_handler_raises_is_its_outcome(isolation: Isolation) -> None:
    failed = await ran(isolation, "ask", {"how": "fail"})
    assert isinstance(failed, Failed)
    assert (failed.error.type, failed.error.message) == ("ValueError", "no such thing ?")
    assert "isolated.py" in failed.error.traceback
    retried = await ran(isolation, "ask", {"how": "retry"})
    assert isinstance(retried, Failed)
    assert (retried.delay_s, retried.error.message) == (7.5, "later")
    assert await ran(isolation, "ask", {"how": "snooze"}) == Snoozed(60)
    assert await ran(isolation, "ask", {"how": "cancel"}) == Cancelled("not needed")
    hopeless = await ran(isolation, "ask", {"how": "give up"})
    assert isinstance(hopeless, Failed)
    assert hopeless.final


async def test_an_outcome_that_makes_no_sense_is_a_failure_and_not_a_crash(isolation: Isolation) -> None:
    for how in ("nonsense", "endless"):
        outcome = await ran(isolation, "ask", {"how": how})
        assert isinstance(outcome, Failed)
        assert len(outcome.error.message) < 10_000


async def test_sys_exit_is_a_failure_and_not_a_crash(isolation: Isolation) -> None:
    for type_, payload in (("ask", {"how": "exit"}), ("aexit", None)):
        outcome = await ran(isolation, type_, payload)
        assert isinstance(outcome, Failed)
        assert outcome.error.type == "SystemExit"
    assert await result(isolation, "aecho", "still well") == "still well"


@pytest.mark.parametrize("how", ["stop", "exit"])
async def test_a_handler_goes_on_when_its_loop_is_ended_under_it(isolation: Isolation, how: str) -> None:
    assert await result(isolation, "end_the_loop", {"how": how}) == how
    assert await result(isolation, "aecho", "still well") == "still well"


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("exit 0", "exited with code 0"),
        ("exit 3", "exited with code 3"),
        ("segfault", "was ended by SIGSEGV"),
        ("killed", "was ended by SIGKILL"),
        ("memory", "was ended by SIGKILL"),
        ("recursion", "was ended by SIGSEGV"),
        ("channel", "closed its channel and was ended for that"),
        ("slow exit", "exited with code 4"),
    ],
)
async def test_a_child_that_dies_loses_its_attempt_and_nothing_else(isolation: Isolation, how: str, said: str) -> None:
    run = a_run("die", {"how": how})
    innocent = a_run("echo", "innocent")
    outcome, other = await asyncio.gather(isolation.run(run), isolation.run(innocent))
    assert outcome == Lost(crashed=True)
    assert isinstance(other, Completed)
    log = log_of(run)
    assert "about to die" in log
    assert said in log


async def test_a_segfault_leaves_its_traceback_in_the_attempts_log(isolation: Isolation) -> None:
    run = a_run("die", {"how": "segfault"})
    await isolation.run(run)
    log = log_of(run)
    assert "Segmentation fault" in log
    assert "isolated.py" in log


async def test_a_process_left_behind_does_not_hide_the_death_of_a_child(isolation: Isolation) -> None:
    run = a_run("die", {"how": "orphan"})
    assert await asyncio.wait_for(isolation.run(run), 30) == Lost(crashed=True)
    os.kill(int(log_of(run).partition("orphan=")[2].split()[0]), signal.SIGKILL)


async def test_a_process_that_a_handler_forked_neither_answers_nor_runs_jobs(isolation: Isolation) -> None:
    assert await result(isolation, "fork") == "parent"
    assert await result(isolation, "echo", 1) == 1
    assert await result(isolation, "fork") == "parent"
    assert await result(isolation, "fork_and_wait") == "parent"


async def test_what_a_handler_starts_heeds_the_usual_signal(isolation: Isolation) -> None:
    assert await result(isolation, "terminate") == -signal.SIGTERM


# What others do to it. --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("type_", ["spin", "sleep"])
@pytest.mark.parametrize(
    ("why", "kind"), [(Stop.TIMEOUT, TimedOut), (Stop.CANCEL, Cancelled), (Stop.SHUTDOWN, Released)]
)
async def test_a_run_told_to_stop_ends_within_a_second(
    isolation: Isolation, type_: str, why: Stop, kind: type[Outcome]
) -> None:
    run = a_run(type_)
    running = asyncio.create_task(isolation.run(run))
    await begun(run)
    pid = isolation.pid_of(run)
    assert pid is not None
    watch = Stopwatch()
    run.tell_to_stop(why)
    isolation.kill(run)
    outcome = await running
    assert watch.free_s < 1
    assert isinstance(outcome, kind)
    assert not is_alive(pid)
    assert isolation.pid_of(run) is None


async def test_a_run_told_to_stop_while_its_child_starts_never_begins(isolation: Isolation) -> None:
    run = a_run("spin")
    running = asyncio.create_task(isolation.run(run))
    await aeventually(lambda: asyncio.sleep(0, run in isolation._held))
    watch = Stopwatch()
    run.tell_to_stop(Stop.CANCEL)
    isolation.kill(run)
    assert isinstance(await running, Cancelled)
    assert watch.free_s < 1
    assert run.log is None


async def test_what_a_handler_started_dies_with_it(isolation: Isolation) -> None:
    run = a_run("family")
    running = asyncio.create_task(isolation.run(run))
    started = int((await begun(run)).partition("pid=")[2])
    assert is_alive(started)
    run.tell_to_stop(Stop.TIMEOUT)
    isolation.kill(run)
    await running
    eventually(lambda: not is_alive(started))


async def test_a_run_whose_worker_ends_is_given_back() -> None:
    isolation = isolated()
    run = a_run("spin")
    running = asyncio.create_task(isolation.run(run))
    await begun(run)
    await isolation.aclose()
    assert await running == Released()
    assert await ran(isolation, "echo") == Released()
    assert children() == []


async def test_an_abandoned_run_leaves_no_busy_child_among_the_idle(isolation: Isolation) -> None:
    run = a_run("sleep")
    running = asyncio.create_task(isolation.run(run))
    await begun(run)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert await asyncio.wait_for(result(isolation, "echo", 1), 20) == 1


def test_all_of_it_holds_on_the_loop_that_workers_use() -> None:
    async def scenario() -> list[Outcome]:
        isolation = isolated(spare=1)
        text = "x" * (result_bytes_max - 2)
        run = a_run("spin")
        running = asyncio.create_task(isolation.run(run))
        await begun(run)
        isolation.kill(run)
        outcomes = [
            await running,
            await ran(isolation, "echo", text),
            await ran(isolation, "die", {"how": "killed"}),
            await ran(isolation, "aecho", 1),
        ]
        await isolation.aclose()
        return outcomes

    assert [type(outcome) for outcome in uvloop.run(scenario())] == [Released, Completed, Lost, Completed]
    assert children() == []


@pytest.mark.parametrize("how", ["forked", "started"])
def test_no_child_outlives_a_worker_that_is_killed(how: str) -> None:
    with subprocess.Popen([sys.executable, "-m", "tests.worker.isolating", how], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        pids: list[int] = json.loads(parent.stdout.readline())
        assert len(pids) == 2
        assert all(is_alive(pid) for pid in pids)
        parent.kill()
    eventually(lambda: not any(is_alive(pid) for pid in pids), timeout_s=2)
