"""The template that children are forked from: fast, alone to blame for its own death, and done without where it must."""

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.eventually import aeventually, eventually
from tests.pressure import Stopwatch
from tests.worker.isolating import (
    a_run,
    begun,
    children,
    is_alive,
    isolated,
    log_of,
    ran,
    result,
    template_of,
)
from windlass.clock import steady_s
from windlass.lifecycle import Cancelled, Lost, Released
from windlass.worker.isolation import Isolation
from windlass.worker.run import Stop

LEAVING = "tests.worker.apps.leaving:app"


async def warm(isolation: Isolation, *, not_: int = 0) -> int:
    """Wait for a template, other than that one, that is ready; its pid."""
    isolation.warm()

    async def ready() -> int:
        template = isolation._forks._template
        return template.pid if template is not None and template.is_ready and template.pid != not_ else 0

    return await aeventually(ready)


def open_in(pid: int | None) -> list[str]:
    return [str(each.readlink()) for each in Path(f"/proc/{pid}/fd").iterdir()]


async def closed(isolation: Isolation) -> None:
    await isolation.aclose()
    assert children() == []


# Forked. ----------------------------------------------------------------------------------------------------------


async def test_eight_suspects_begin_at_once_each_in_a_fresh_child_of_the_template() -> None:
    isolation = isolated()
    template = await warm(isolation)
    runs = [a_run("sleep", suspect=True) for _ in range(8)]
    running = [asyncio.create_task(isolation.run(run)) for run in runs]
    for run in runs:
        await begun(run)
    pids = {isolation.pid_of(run) for run in runs}
    assert len(pids) == 8
    assert {psutil.Process(pid).ppid() for pid in pids} == {template}
    assert {os.getpgid(pid or 0) for pid in pids} == pids
    # Not the time that it takes, which others on this machine have a say in: eight that are started use 2 s and more.
    assert sum(sum(psutil.Process(pid).cpu_times()[:2]) for pid in pids) < 0.5
    await closed(isolation)
    assert await asyncio.gather(*running) == [Released()] * 8


async def test_suspects_wait_for_one_template_when_there_is_none_yet() -> None:
    isolation = isolated()
    parents = await asyncio.gather(*(result(isolation, "parent", suspect=True) for _ in range(8)))
    assert set(parents) == {template_of(isolation)}
    await closed(isolation)


async def test_a_child_has_no_descriptor_of_the_template_or_its_siblings() -> None:
    isolation = isolated()
    runs = [a_run("sleep") for _ in range(3)]
    running = [asyncio.create_task(isolation.run(run)) for run in runs]
    for run in runs:
        await begun(run)
    for run in runs:
        links = open_in(isolation.pid_of(run))
        loop_sockets = 2
        assert len([link for link in links if link.startswith("socket:")]) == 1 + loop_sockets
        assert not [link for link in links if "pidfd" in link]
        assert len([link for link in links if "last-words" in link]) == 1
    await closed(isolation)
    await asyncio.gather(*running)


async def test_ended_children_are_reaped_by_the_template() -> None:
    isolation = isolated()
    for how in ("exit 3", "killed"):
        await ran(isolation, "die", {"how": how})
    await result(isolation, "pid", suspect=True)
    template = psutil.Process(template_of(isolation))
    await aeventually(lambda: asyncio.sleep(0, not template.children()))
    await closed(isolation)


async def test_children_draw_numbers_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEAVES", "numpy")
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "2")  # threads that know of forks are no reason not to
    isolation = isolated(app=LEAVING)
    template = await warm(isolation)
    drawn = [await result(isolation, "draw", suspect=True) for _ in range(3)]
    assert template_of(isolation) == template
    assert len({number for numbers in drawn for number in numbers}) == 6
    await closed(isolation)


async def test_what_the_import_printed_is_printed_once(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LEAVES", "text")
    isolation = isolated(app=LEAVING)
    for _ in range(3):
        await result(isolation, "pid", suspect=True)
    await closed(isolation)
    assert capfd.readouterr().out == "imported\n"


# Its death. -------------------------------------------------------------------------------------------------------


async def test_a_template_that_is_killed_takes_its_children_along_and_blames_no_job(kept_logs: None) -> None:
    isolation = isolated()
    template = await warm(isolation)
    runs = [a_run("spin", suspect=True), a_run("family")]
    running = [asyncio.create_task(isolation.run(run)) for run in runs]
    started = int((await begun(runs[1])).partition("pid=")[2])
    await begun(runs[0])
    pids = [pid for pid in map(isolation.pid_of, runs) if pid is not None]
    os.kill(template, signal.SIGKILL)
    assert await asyncio.wait_for(asyncio.gather(*running), 20) == [Lost(crashed=False, spent=True)] * 2
    assert "ended with the template" in log_of(runs[0])
    eventually(lambda: not any(map(is_alive, [*pids, started])))
    assert await result(isolation, "parent") != template
    await closed(isolation)


async def test_a_child_that_crashes_is_to_blame_though_its_template_dies_next() -> None:
    isolation = isolated()
    assert await ran(isolation, "die", {"how": "killed"}) == Lost(crashed=True)
    os.kill(template_of(isolation), signal.SIGKILL)
    assert await ran(isolation, "die", {"how": "killed"}) == Lost(crashed=True)
    await closed(isolation)


async def test_a_template_that_keeps_dying_comes_back_after_longer_and_longer_pauses_and_jobs_run_meanwhile() -> None:
    isolation = isolated()
    template, pauses_s = await warm(isolation), []
    for _ in range(4):
        os.kill(template, signal.SIGKILL)
        killed_s = steady_s()
        await result(isolation, "pid", suspect=True)
        template = await warm(isolation, not_=template)
        pauses_s.append(steady_s() - killed_s)
    await closed(isolation)
    assert all(pause_s >= least_s for pause_s, least_s in zip(pauses_s, (0.1, 0.2, 0.4, 0.8), strict=True))


async def test_a_template_that_is_stopped_holds_up_no_job_for_ever() -> None:
    isolation = isolated()
    template = await warm(isolation)
    os.kill(template, signal.SIGSTOP)
    assert await asyncio.wait_for(result(isolation, "echo", 1), 30) == 1
    assert not is_alive(template)
    await closed(isolation)


# Its start. -------------------------------------------------------------------------------------------------------


async def test_a_run_told_to_stop_while_the_template_starts_ends_at_once() -> None:
    isolation = isolated(app="tests.worker.apps.sleepy:app")
    told, closing = a_run("spin"), a_run("spin")
    running = [asyncio.create_task(isolation.run(run)) for run in (told, closing)]
    await aeventually(lambda: asyncio.sleep(0, len(isolation._cells) == 2))
    watch = Stopwatch()
    told.tell_to_stop(Stop.CANCEL)
    isolation.kill(told)
    assert isinstance(await running[0], Cancelled)
    assert watch.free_s < 1
    await closed(isolation)
    assert await running[1] == Released()
    assert watch.free_s < 2


async def test_a_child_that_is_forked_too_late_never_begins_its_job() -> None:
    isolation = isolated()
    template = await warm(isolation)
    os.kill(template, signal.SIGSTOP)
    run = a_run("spin")
    running = asyncio.create_task(isolation.run(run))
    await aeventually(lambda: asyncio.sleep(0, run in isolation._held))
    run.tell_to_stop(Stop.CANCEL)
    isolation.kill(run)
    assert isinstance(await asyncio.wait_for(running, 20), Cancelled)
    os.kill(template, signal.SIGCONT)
    await aeventually(lambda: asyncio.sleep(0, not isolation._cells))
    assert run.log is None
    assert [each.pid for each in children()] == [template]
    await closed(isolation)


async def test_an_import_that_ends_the_process_costs_no_attempt_and_says_how(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("LEAVES", "nobody")
    isolation = isolated(app=LEAVING)
    outcome = await ran(isolation, "echo")
    await closed(isolation)
    assert outcome == Lost(crashed=False)
    assert "can be started; it goes back in 1 s: exited with code 3" in caplog.text


@pytest.mark.parametrize("what", ["thread", "signal", "socket", "pipe", "loop", "database"])
async def test_an_app_that_cannot_be_forked_has_children_started(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, what: str
) -> None:
    monkeypatch.setenv("LEAVES", what)
    monkeypatch.setenv("LEAVES_AT", str(tmp_path / "left"))
    isolation = isolated(spare=1, app=LEAVING)
    isolation.warm()
    spare: Any = await aeventually(lambda: asyncio.sleep(0, [cell.pid for cell in isolation._idle if cell.is_ready]))
    assert [await result(isolation, "pid")] == spare
    assert await result(isolation, "parent") == os.getpid()
    eventually(lambda: all("windlass.worker.child" in each.cmdline() for each in children()))
    assert isolation._forks.is_unfit
    await closed(isolation)


@pytest.mark.parametrize("what", ["log", "null"])
async def test_an_app_that_leaves_harmless_files_open_is_forked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, what: str
) -> None:
    monkeypatch.setenv("LEAVES", what)
    monkeypatch.setenv("LEAVES_AT", str(tmp_path / "left"))
    isolation = isolated(app=LEAVING)
    assert await result(isolation, "parent") == template_of(isolation)
    await closed(isolation)
