"""The children of isolated jobs: kept, replaced, bounded, heard while they run, and at home in the database."""

import asyncio
import json
import logging
import os
import resource
import signal
from contextlib import aclosing
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from tests.eventually import aeventually
from tests.factory import Rig
from tests.pressure import Stopwatch
from tests.worker.apps.isolated import app
from tests.worker.isolating import a_run, begun, children, isolated, log_of, ran, result
from windlass.clock import steady_s
from windlass.config import StoreConfig
from windlass.lifecycle import (
    Cancelled,
    Completed,
    Failed,
    Held,
    Lost,
    Outcome,
    Released,
    Written,
    log_chars_max,
)
from windlass.model import Lease
from windlass.store.store import Store
from windlass.worker.isolation import Isolation
from windlass.worker.run import Run, Stop

# Children come and go. --------------------------------------------------------------------------------------------


async def test_a_child_runs_many_jobs_on_one_loop(isolation: Isolation) -> None:
    assert await result(isolation, "loop_id") == await result(isolation, "loop_id")


async def test_a_child_is_replaced_after_its_number_of_jobs() -> None:
    isolation = isolated(isolated_jobs_max=2)
    pids = [await result(isolation, "pid") for _ in range(6)]
    await isolation.aclose()
    assert [pids.count(pid) for pid in dict.fromkeys(pids)] == [2, 2, 2]


async def test_a_child_is_replaced_when_it_has_grown() -> None:
    isolation = isolated(isolated_mib_max=128)
    small = [await result(isolation, "hoard", {"mib": 1}) for _ in range(2)]
    large = [await result(isolation, "hoard", {"mib": 128}), await result(isolation, "pid")]
    await isolation.aclose()
    assert len(set(small)) == 1
    assert large[0] == small[0] != large[1]


async def test_a_suspect_shares_its_child_with_nobody(isolation: Isolation) -> None:
    before = await result(isolation, "pid")
    suspects = [await result(isolation, "pid", suspect=True) for _ in range(2)]
    after = await result(isolation, "pid")
    assert len({before, *suspects}) == 3
    assert after not in suspects


async def test_never_more_children_than_threads() -> None:
    isolation = isolated(spare=5, threads=2, fork=False)
    isolation.warm()
    assert len(isolation._cells) == 2
    runs = [a_run("sleep"), a_run("sleep")]
    running = [asyncio.create_task(isolation.run(run)) for run in runs]
    for run in runs:
        await begun(run)
    assert len(children()) == 2
    await isolation.aclose()
    await asyncio.gather(*running)


async def test_spares_are_ready_before_they_are_needed() -> None:
    isolation = isolated(spare=2, fork=False)
    isolation.warm()

    async def both_ready() -> bool:
        return [cell.is_ready for cell in isolation._idle] == [True, True]

    await aeventually(both_ready)
    waiting = {cell.pid for cell in isolation._idle}
    assert await result(isolation, "pid") in waiting
    await isolation.aclose()


async def test_a_child_that_dies_while_it_waits_is_replaced_and_no_job_notices(isolation: Isolation) -> None:
    for _ in range(3):
        first = await result(isolation, "pid")
        os.kill(first, signal.SIGKILL)
        assert await result(isolation, "pid") != first


@pytest.mark.parametrize(
    ("app_", "said"),
    [
        ("tests.worker.apps.missing:app", "No module named 'tests.worker.apps.missing'"),
        ("tests.worker.apps.isolated:other", "has no attribute 'other'"),
    ],
)
async def test_an_app_that_can_no_longer_be_imported_costs_no_attempt_and_is_said_loudly(
    app_: str, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    isolation = isolated(app=app_)
    outcome = await ran(isolation, "echo")
    await isolation.aclose()
    assert outcome == Lost(crashed=False)
    (line,) = [record for record in caplog.records if record.levelno == logging.CRITICAL]
    assert said in line.getMessage()
    assert line.__dict__["job_id"] == str(UUID(int=7))


async def test_a_child_that_does_not_get_ready_costs_no_attempt(caplog: pytest.LogCaptureFixture) -> None:
    isolation = isolated(app="tests.worker.apps.sleepy:app", start_s=1)
    outcome = await asyncio.wait_for(ran(isolation, "echo"), 20)
    await isolation.aclose()
    assert outcome == Lost(crashed=False)
    assert "not ready within 1 s" in caplog.text


@pytest.mark.parametrize("fork", [True, False])
async def test_a_host_without_descriptors_costs_no_attempt_and_jobs_run_once_it_has_some(fork: bool) -> None:
    isolation = isolated(fork=fork)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    os.close(next_fd := os.dup(0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (next_fd, hard))
    try:
        outcome = await ran(isolation, "echo")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert outcome == Lost(crashed=False)
    assert await result(isolation, "echo", 1) == 1
    await isolation.aclose()


async def test_jobs_that_cannot_start_are_tried_ever_more_slowly() -> None:
    isolation = isolated(app="tests.worker.apps.missing:app")
    began_s = steady_s()
    # Those at one time wait for as long; those after them for longer.
    both = await asyncio.gather(ran(isolation, "echo"), ran(isolation, "echo"))
    once_s = steady_s() - began_s
    third = await ran(isolation, "echo")
    twice_s = steady_s() - began_s - once_s
    await isolation.aclose()
    assert [*both, third] == [Lost(crashed=False)] * 3
    assert once_s >= 1
    assert twice_s >= 2


@pytest.mark.parametrize(
    ("why", "kind"), [(Stop.TIMEOUT, Lost), (Stop.CANCEL, Cancelled), (Stop.SHUTDOWN, Released), (None, Released)]
)
async def test_a_job_that_waits_in_vain_for_a_child_can_be_stopped_and_is_not_timed_out(
    why: Stop | None, kind: type[Outcome], caplog: pytest.LogCaptureFixture
) -> None:
    isolation = isolated(app="tests.worker.apps.missing:app")
    run = a_run("echo")
    running = asyncio.create_task(isolation.run(run))
    await aeventually(lambda: asyncio.sleep(0, "it goes back in" in caplog.text))
    watch = Stopwatch()
    if why is not None:
        run.tell_to_stop(why)
        isolation.kill(run)
    else:
        await isolation.aclose()
    assert isinstance(await running, kind)
    assert watch.free_s < 0.8, "it waited for as long as it would have anyway"
    await isolation.aclose()


# What comes back meanwhile. ---------------------------------------------------------------------------------------


async def test_logs_are_kept_with_the_attempt(isolation: Isolation, capfd: pytest.CaptureFixture[str]) -> None:
    run = a_run("logs", {"lines": 2})
    await isolation.run(run)
    log = log_of(run)
    assert [line.split(" ", 1)[1] for line in log.splitlines()[:4]] == [
        "PRINT: to standard output",
        "INFO library: from a library",
        "INFO job.logs: line n=0",
        "INFO job.logs: line n=1",
    ]
    out, err = capfd.readouterr()
    assert out == "to standard output\n"
    entries = [json.loads(line) for line in err.splitlines() if line.startswith("{")]
    assert {entry["job_id"] for entry in entries if entry["event"] == "line"} == {str(run.lease.job_id)}


async def test_a_flood_of_lines_is_cut_and_counted(isolation: Isolation) -> None:
    run = a_run("logs", {"lines": 10_000})
    await isolation.run(run)
    log = log_of(run)
    assert len(log) <= log_chars_max
    *kept, more = log.splitlines()
    assert more == f"… {10_003 - len(kept):,} lines more" or more == f"… {10_002 - len(kept):,} lines more"


async def test_lines_of_a_thread_left_behind_reach_no_later_job(isolation: Isolation) -> None:
    first = await result(isolation, "stray")
    run = a_run("pid")
    outcome = await isolation.run(run)
    assert outcome == Completed((str(first), None))
    assert run.log is None


async def test_progress_is_told_while_it_changes(isolation: Isolation) -> None:
    told: list[Run] = []
    isolation.progressed = told.append
    run = a_run("advance")
    await isolation.run(run)
    assert run.progress == (1.0, "1000 of 1000")
    assert 1 <= len(told) <= 50


# Children reach the database themselves. --------------------------------------------------------------------------


async def test_steps_are_kept_and_not_done_again(rig: Rig, config: StoreConfig) -> None:
    isolation = isolated(store=config)
    worker = await rig.worker(types=["steps", "plain_steps"])
    for type_ in ("steps", "plain_steps"):
        await rig.enqueue(type=type_)
        (taken,) = await worker.claim()
        run = Run(taken, app.types[type_], steady_s(), 0)
        outcome = await isolation.run(run)
        assert outcome == Completed(("[1,1]", None))
        await worker.settle(taken, outcome)
    await isolation.aclose()


async def test_a_job_finished_in_a_transaction_is_settled_by_its_child(
    rig: Rig, store: Store, config: StoreConfig
) -> None:
    isolation = isolated(store=replace(config, pool_max=2))
    worker = await rig.worker(types=["pay"])
    (job_id,) = await rig.enqueue(type="pay")
    (taken,) = await worker.claim()
    run = Run(taken, app.types["pay"], steady_s(), 0)
    await isolation.run(run)
    await isolation.aclose()
    assert run.settled
    job = await store.views.job(job_id)
    assert (job.status, job.result) == ("completed", '{"paid":true}')


async def test_what_a_handler_enqueues_goes_where_its_own_job_came_from(rig: Rig, config: StoreConfig) -> None:
    isolation = isolated(store=config)
    for type_ in ("follow", "afollow"):
        assert await rig.status(UUID(await result(isolation, type_))) == "ready"
    await isolation.aclose()


@pytest.mark.parametrize("handler", ["pays", "plainly_pays", "gathers_payments"])
async def test_effects_are_recorded_from_a_process_of_its_own(rig: Rig, config: StoreConfig, handler: str) -> None:
    worker = await rig.worker(types=[handler])
    await rig.enqueue(2, type=handler)
    first, second = await worker.claim()
    async with aclosing(isolated(store=config)) as isolation:
        outcome = await isolation.run(_run(first, times_out=True))
        assert isinstance(outcome, Held)
        assert (outcome.reason, outcome.error and outcome.error.type) == ("needs decision", "NeedsDecision")
        assert await isolation.run(_run(second, times_out=False)) == Completed(Written("true"))
        assert await isolation.run(_run(second, times_out=False)) == Completed(Written("false"))


@pytest.mark.parametrize("handler", ["begins_once", "asynchronously_begins_once"])
async def test_a_job_that_is_started_once_at_most_is_refused_a_second_process(
    rig: Rig, config: StoreConfig, handler: str
) -> None:
    worker = await rig.worker(types=[handler])
    await rig.enqueue(type=handler)
    (lease,) = await worker.claim()
    async with aclosing(isolated(store=config)) as isolation:
        run = _run(lease)
        assert await isolation.run(run) == Completed(Written('"begun"'))
        assert run.start_recorded
        await worker.settle(lease, Released())
        (again,) = await worker.claim()
        outcome = await isolation.run(_run(again))
        assert isinstance(outcome, Failed)
        assert (outcome.error.type, outcome.final) == ("MayHaveRun", True)


def _run(lease: Lease, **payload: Any) -> Run:
    return Run(lease._replace(payload=json.dumps(payload)), app.types[lease.type], steady_s(), 0)
