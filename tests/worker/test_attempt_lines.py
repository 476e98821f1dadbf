"""Log lines about attempts: one for each thing that happens to a job, with its facts, and none about what was not stored."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

import pytest

from tests.eventually import aeventually
from tests.unit.values import lease as make_lease
from tests.worker.apps.isolated import app as isolated_app
from tests.worker.isolating import APP as ISOLATED
from tests.worker.placed import SOON, placed, types_of
from windlass.attempt_report import JobsLogged, SuccessLines, jobs_logged
from windlass.bus.protocol import NoWaker
from windlass.config import Config, StoreConfig, WorkerConfig
from windlass.errors import Cancel, Fail, Snooze
from windlass.lifecycle import Completed, settle
from windlass.model import NewJob, NewWorker, RetryPolicy, Status
from windlass.store.protocol import Ask
from windlass.store.store import Store
from windlass.worker.aftermath import End, see_off
from windlass.worker.isolation import Isolation
from windlass.worker.registry import Defaults, JobType
from windlass.worker.slots import Begun, State

ALL = replace(SOON, log_jobs="all")
LATER = RetryPolicy(base_s=600, cap_s=600, jitter=0)


class Lines(logging.Handler):
    """What was logged about attempts."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    def of(self, job_id: UUID) -> list[dict[str, Any]]:
        found = [each.__dict__ for each in self.records if each.__dict__.get("job_id") == str(job_id)]
        return [{"event": each["msg"], "level": each["levelname"], **each} for each in found]

    async def one(self, job_id: UUID, event: str) -> dict[str, Any]:
        """The first line with this event, once it is there."""

        async def there() -> list[dict[str, Any]]:
            return [line for line in self.of(job_id) if line["event"] == event]

        return (await aeventually(there, 20))[0]


@pytest.fixture
def lines() -> Iterator[Lines]:
    handler, logger = Lines(), logging.getLogger("windlass.attempts")
    logger.addHandler(handler)
    before = logger.level
    logger.setLevel(logging.DEBUG)
    yield handler
    logger.setLevel(before)
    logger.removeHandler(handler)


async def acoroutine(fail: bool = False) -> int:
    if fail:
        raise ValueError("password=hunter2 is no number")
    return 1


def function(fail: bool = False) -> int:
    return int("no number") if fail else 1


@pytest.mark.parametrize("handler", [acoroutine, function])
async def test_an_attempt_has_a_line_when_it_starts_and_one_when_it_ends(
    config: StoreConfig, lines: Lines, handler: Callable[..., Any]
) -> None:
    async with placed(config, types_of(handler), worker=ALL) as worker:
        job = await worker.run(handler.__name__)
        ended = await lines.one(job.id, "job completed")
    started, _ = lines.of(job.id)
    assert (started["level"], started["event"], ended["level"]) == ("DEBUG", "job started", "INFO")
    assert (ended["type"], ended["queue"], ended["attempt"]) == (handler.__name__, "default", 1)
    assert 0 <= ended["duration_s"] < 10


@pytest.mark.parametrize("handler", [acoroutine, function])
async def test_a_failure_says_why_where_and_when_it_is_tried_again(
    config: StoreConfig, lines: Lines, handler: Callable[..., Any]
) -> None:
    async with placed(config, types_of(handler)) as worker:
        job_id = await worker.enqueue(handler.__name__, {"fail": True}, retry=LATER)
        line = await lines.one(job_id, "job failed")
    assert (line["level"], line["failures"], line["max_attempts"], line["attempt"]) == ("WARNING", 1, 3, 1)
    assert (line["next_try_s"], line["status"]) == (600, "scheduled")
    assert line["error"].startswith("ValueError: ")
    assert f"in {handler.__name__}" in line["exception"]
    assert "windlass/worker" not in line["exception"]
    assert "hunter2" not in line["error"] + line["exception"]


async def test_the_cause_of_an_error_and_what_a_group_holds_are_in_the_traceback(
    config: StoreConfig, lines: Lines
) -> None:
    async def grouped() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(acoroutine(fail=True))

    def caused() -> None:
        try:
            function(fail=True)
        except ValueError as error:
            raise RuntimeError("outer") from error

    async with placed(config, types_of(grouped, caused)) as worker:
        found = {}
        for name in ("grouped", "caused"):
            job_id = await worker.enqueue(name, max_attempts=1)
            found[name] = await lines.one(job_id, "job dead-lettered")
    assert "in acoroutine" in found["grouped"]["exception"]
    assert "invalid literal for int()" in found["caused"]["exception"]
    assert found["caused"]["error"] == "RuntimeError: outer"


async def test_what_else_a_handler_can_do_has_its_own_line(config: StoreConfig, lines: Lines) -> None:
    async def snoozes() -> None:
        raise Snooze(300)

    async def cancels() -> None:
        raise Cancel("not wanted")

    def fails() -> None:
        raise Fail("gone")

    def slow() -> None:
        while True:
            time.sleep(0.01)

    async def awaits() -> None:
        await asyncio.sleep(600)

    async with placed(config, types_of(snoozes, cancels, fails, slow, awaits), worker=ALL) as worker:
        snoozed = await lines.one(await worker.enqueue("snoozes"), "job snoozed")
        cancelled = await lines.one(await worker.enqueue("cancels"), "job cancelled")
        dead = await lines.one(await worker.enqueue("fails"), "job dead-lettered")
        late = await lines.one(await worker.enqueue("slow", timeout_s=0.1, retry=LATER), "job timed out")
        late_await = await lines.one(await worker.enqueue("awaits", timeout_s=0.1, retry=LATER), "job timed out")
    assert (snoozed["level"], snoozed["next_try_s"], "failures" in snoozed) == ("INFO", 300, False)
    assert (cancelled["level"], cancelled["error"]) == ("INFO", "Cancelled: not wanted")
    assert (dead["level"], dead["failures"], dead["status"]) == ("ERROR", 1, "failed")
    assert (late["level"], late["next_try_s"]) == ("WARNING", 600)
    assert "timeout of 0.1 s" in late["error"]
    assert "in slow" in late["exception"], "where it was when it was stopped"
    assert "asyncio.sleep(600)" in late_await["exception"]


async def test_a_failure_of_a_cancelled_job_is_reported_as_its_cancellation(config: StoreConfig, lines: Lines) -> None:
    async def stubborn() -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(60)
        raise ValueError("interrupted")

    async with placed(config, types_of(stubborn)) as worker:
        job_id = await worker.enqueue("stubborn")
        await lines.one(job_id, "job started")
        await worker.cancel(job_id)
        line = await lines.one(job_id, "job cancelled")
    assert (line["level"], line["status"]) == ("INFO", "cancelled")
    assert {each["event"] for each in lines.of(job_id)} == {"job started", "job cancelled"}


async def test_what_a_worker_without_the_lease_made_of_a_job_is_not_reported_as_done(
    config: StoreConfig, lines: Lines
) -> None:
    go = asyncio.Event()

    async def waits() -> None:
        await go.wait()

    async with placed(config, types_of(waits), worker=ALL) as worker:
        job_id = await worker.enqueue("waits")
        await lines.one(job_id, "job started")
        await worker.store.upkeep.bury([worker.worker_id], "left")
        (lost,) = await worker.store.upkeep.lost()
        await worker.store.claims().release([lost.lease])
        go.set()

        async def dropped() -> bool:
            return not worker.worker.desk.runs and not worker.worker._settler.backlog

        await aeventually(dropped)
    assert {each["event"] for each in lines.of(job_id)} == {"job started"}


async def test_only_failures_are_reported_unless_all_is_asked_for(config: StoreConfig, lines: Lines) -> None:
    async def snoozes() -> None:
        raise Snooze(300)

    async with placed(config, types_of(acoroutine, snoozes), worker=replace(SOON, log_jobs="failures")) as worker:
        done = await worker.run("acoroutine")
        later = await worker.enqueue("snoozes")
        await worker.reaches(later, Status.SCHEDULED)
        failed = await worker.enqueue("acoroutine", {"fail": True}, retry=LATER)
        await lines.one(failed, "job failed")
    assert {each["event"] for each in (*lines.of(done.id), *lines.of(later))} == {"job started"}


async def test_a_job_in_a_process_of_its_own_has_the_same_lines(config: StoreConfig, lines: Lines) -> None:
    fns = {name: isolated_app.types[name].fn for name in ("add", "ask", "die")}
    types = {name: JobType(fn, name, Defaults(isolation="process")) for name, fn in fns.items()}
    children = Isolation(ISOLATED, Config(store=config, worker=WorkerConfig(threads=2)))
    try:
        async with placed(config, types, worker=ALL, children=children) as worker:
            done = await worker.run("add", {"a": 1, "b": 2})
            await lines.one(done.id, "job completed")
            failed = await lines.one(await worker.enqueue("ask", {"how": "fail"}, retry=LATER), "job failed")
            crashed = await lines.one(await worker.enqueue("die", {"how": "killed"}), "job lost")
            await lines.one(UUID(crashed["job_id"]), "job crashed its process")
    finally:
        await children.aclose()
    assert [line["event"] for line in lines.of(done.id)] == ["job started", "job completed"]
    assert "in ask" in failed["exception"]
    assert crashed["level"] == "WARNING"


async def test_jobs_of_a_dead_worker_are_reported_by_the_one_who_settles_them(
    config: StoreConfig, store: Store, lines: Lines
) -> None:
    worker_id = uuid4()
    await store.upkeep.register(NewWorker(worker_id, "host-1", 8, ["default"], ["t"]), lease_ttl_s=60)
    await store.intake.enqueue([NewJob("t") for _ in range(3)])
    leases = await store.claims().claim(Ask(worker_id, ["default"], ["t"], free=8))
    begun = [Begun(0, leases[0].job_id, 1, 0.0, 60.0, State.BEGUN)]
    begun.append(Begun(1, leases[1].job_id, 1, 0.0, 60.0, State.STUCK_BY_TIMEOUT))
    end = End(worker_id, crashed=True, begun=begun, name="host-1")
    assert await see_off([end], store.upkeep, store.claims(), NoWaker())
    (lost,), (late,), nothing = (lines.of(lease.job_id) for lease in leases)
    assert (lost["event"], lost["level"], lost["worker"]) == ("job lost", "WARNING", "host-1")
    assert (late["event"], late["failures"], late["max_attempts"]) == ("job timed out", 1, 3)
    assert nothing == []


# Which successes. -------------------------------------------------------------------------------------------------


class Terminal:
    def __init__(self, *, is_one: bool) -> None:
        self._is_one = is_one

    def isatty(self) -> bool:
        return self._is_one


def test_without_a_wish_a_terminal_shows_all_jobs_and_anything_else_failures() -> None:
    screen: Any = Terminal(is_one=True)
    file: Any = Terminal(is_one=False)
    assert jobs_logged("auto", screen) is JobsLogged.SAMPLED
    assert jobs_logged("auto", file) is JobsLogged.FAILURES
    assert [jobs_logged(wish, file) for wish in ("all", "failures")] == [JobsLogged.ALL, JobsLogged.FAILURES]


@pytest.mark.parametrize(("which", "listed"), [(JobsLogged.SAMPLED, 100), (JobsLogged.ALL, 1000)])
def test_of_a_flood_of_successes_a_terminal_shows_the_first_and_counts_the_rest(
    lines: Lines, which: JobsLogged, listed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("windlass.attempt_report.steady_s", lambda: 10.0)
    later: list[Callable[[], None]] = []
    held = make_lease()
    done = settle(held, Completed(), jitter=0, execution_s=0.1)
    successes = SuccessLines(which, lambda _s, act: later.append(act))
    successes.report([(held, done, Status.COMPLETED)] * 1000)
    assert len(lines.records) == listed
    for act in later:
        act()
    counted = [record.getMessage() for record in lines.records[listed:]]
    assert counted == (["900 more jobs completed: 900 t"] if which is JobsLogged.SAMPLED else [])
