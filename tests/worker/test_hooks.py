"""Hooks and middleware of an app: what they are told, where they run, and that nothing they do harms a job."""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from tests.eventually import aeventually
from tests.worker.placed import placed
from tests.worker.supervised import supervised
from windlass import App, AsyncContext, Context, JobEvent
from windlass.config import StoreConfig
from windlass.errors import Cancel, Misconfigured
from windlass.lifecycle import crashes_max
from windlass.model import RetryPolicy, Status
from windlass.worker.hook_runner import HookRunner
from windlass.worker.loading import Apps

NOWHERE = StoreConfig(database_url="postgresql://nobody@localhost:1/none")
LATER = RetryPolicy(base_s=600, cap_s=600, jitter=0)
HOOKED = "tests.worker.apps.hooked:app"


def an_app() -> App:
    app = App("hooks", config=NOWHERE)

    @app.job(retry=LATER)
    async def acoroutine(fail: bool = False) -> int:
        if fail:
            raise ValueError("no")
        return 1

    @app.job(retry=LATER)
    def function(fail: bool = False) -> int:
        if fail:
            raise ValueError("no")
        return 1

    return app


class Heard:
    """Events in the order in which hooks heard of them, by the name of the hook."""

    def __init__(self, app: App, *, asynchronous: bool) -> None:
        self.events: list[tuple[str, JobEvent]] = []
        for name in ("on_start", "on_success", "on_failure", "on_dead"):
            getattr(app, name)(self._hook(name, asynchronous=asynchronous))

    def _hook(self, name: str, *, asynchronous: bool) -> Callable[[JobEvent], Any]:
        async def ahook(event: JobEvent) -> None:
            await asyncio.sleep(0)
            self.events.append((name, event))

        def hook(event: JobEvent) -> None:
            self.events.append((name, event))

        return ahook if asynchronous else hook

    async def of(self, job_id: UUID, *names: str) -> list[JobEvent]:
        """The events of a job, once these are there and no others."""

        async def there() -> list[JobEvent]:
            events = [(name, event) for name, event in self.events if event.id == job_id]
            return [event for _, event in events] if [name for name, _ in events] == list(names) else []

        return await aeventually(there)


@pytest.mark.parametrize("asynchronous", [True, False])
@pytest.mark.parametrize("handler", ["acoroutine", "function"])
async def test_hooks_hear_of_starts_and_of_each_kind_of_end(
    config: StoreConfig, handler: str, asynchronous: bool
) -> None:
    app = an_app()
    heard = Heard(app, asynchronous=asynchronous)
    async with placed(config, app.types) as worker:
        done = await worker.run(handler, tags=("a",))
        failed = await worker.enqueue(handler, {"fail": True}, retry=LATER)
        dead = await worker.enqueue(handler, {"fail": True}, max_attempts=1)
        _, success = await heard.of(done.id, "on_start", "on_success")
        _, failure = await heard.of(failed, "on_start", "on_failure")
        _, last, death = await heard.of(dead, "on_start", "on_failure", "on_dead")
    assert (success.type, success.queue, success.attempt, success.tags) == (handler, "default", 1, ("a",))
    assert (success.result, success.error, success.next_try_s, success.payload) == (1, None, None, None)
    assert success.duration_s is not None
    assert failure.error is not None
    assert (failure.error.type, failure.error.message, failure.next_try_s) == ("ValueError", "no", 600)
    assert (failure.failures, failure.max_attempts, failure.payload) == (1, 3, {"fail": True})
    assert isinstance(failure.exception, ValueError)
    assert failure.exception.__traceback__ is not None
    assert (last.next_try_s, death.next_try_s, death.failures) == (None, None, 1)


async def test_nobody_hears_of_a_job_that_was_cancelled(config: StoreConfig) -> None:
    app = an_app()

    @app.job
    async def gives_up() -> None:
        raise Cancel("enough")

    heard = Heard(app, asynchronous=True)
    async with placed(config, app.types) as worker:
        job = await worker.run("gives_up")
        other = await worker.run("acoroutine")
        await heard.of(other.id, "on_start", "on_success")
        await heard.of(job.id, "on_start")


@pytest.mark.parametrize("error", [ValueError("mine"), SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError()])
@pytest.mark.parametrize("asynchronous", [True, False])
async def test_a_hook_that_raises_is_logged_with_the_job_and_changes_nothing(
    config: StoreConfig, error: BaseException, asynchronous: bool, caplog: pytest.LogCaptureFixture
) -> None:
    app = an_app()

    async def araises(_event: JobEvent) -> None:
        raise error

    def raises(_event: JobEvent) -> None:
        raise error

    hook: Any = araises if asynchronous else raises
    app.on_start(hook)
    app.on_success(hook)
    heard = Heard(app, asynchronous=True)
    async with placed(config, app.types) as worker:
        for handler in ("acoroutine", "function"):
            job = await worker.run(handler)
            assert (job.status, job.result, job.attempt) == (Status.COMPLETED, "1", 1)
            await heard.of(job.id, "on_start", "on_success")
            said = [record for record in caplog.records if record.__dict__.get("job_id") == str(job.id)]
            assert ["failed" in record.getMessage() for record in said if record.levelno >= logging.ERROR] == [True] * 2


async def test_a_job_can_be_stopped_while_a_start_hook_runs(config: StoreConfig) -> None:
    app = an_app()
    waits = asyncio.Event()

    @app.on_start
    async def slow(_event: JobEvent) -> None:
        waits.set()
        await asyncio.sleep(60)

    async with placed(config, app.types) as worker:
        job_id = await worker.enqueue("acoroutine")
        await asyncio.wait_for(waits.wait(), 20)
        await worker.cancel(job_id)
        await worker.reaches(job_id, Status.CANCELLED)


async def test_a_worker_ends_only_when_its_hooks_are_done(config: StoreConfig) -> None:
    app = an_app()
    go, done = asyncio.Event(), list[UUID]()

    @app.on_success
    async def slow(event: JobEvent) -> None:
        await go.wait()
        done.append(event.id)

    async with placed(config, app.types) as worker:
        job = await worker.run("acoroutine")
        worker.control.say("drain")

        async def draining() -> bool:
            return worker.worker._claimer.draining

        await aeventually(draining)
        assert not worker.task.done()
        go.set()
        assert await asyncio.wait_for(worker.task, 20) == 0
        assert done == [job.id]


async def test_a_hook_that_never_returns_is_given_up(
    config: StoreConfig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    app = an_app()
    monkeypatch.setattr(
        "windlass.worker.worker.HookRunner", lambda width, drained: HookRunner(width, drained, limit_s=0.05)
    )

    @app.on_success
    async def hangs(_event: JobEvent) -> None:
        await asyncio.Event().wait()

    async with placed(config, app.types) as worker:
        await worker.run("acoroutine")
        assert await worker.drained() == 0
    assert "did not return within 0.05 s" in caplog.text


async def test_a_job_that_finishes_in_a_transaction_is_a_success_too(config: StoreConfig) -> None:
    app = an_app()

    @app.job
    async def pays(ctx: AsyncContext) -> None:
        async with ctx.transaction():
            ctx.finish(1)

    heard = Heard(app, asynchronous=False)
    async with placed(config, app.types) as worker:
        job = await worker.run("pays")
        await heard.of(job.id, "on_start", "on_success")


# Middleware. ------------------------------------------------------------------------------------------------------


def with_middleware(said: list[str]) -> App:
    """Two of each colour, which note when they begin and how they end."""
    app = an_app()
    for name in ("outer", "inner"):

        @app.middleware
        async def around(ctx: AsyncContext, call: Callable[[], Awaitable[Any]], name: str = name) -> Any:
            said.append(f"{name} {ctx.type}")
            try:
                return await call() + 1
            except ValueError as error:
                said.append(f"{name} saw {error}")
                raise

        @app.middleware
        def plain_around(ctx: Context, call: Callable[[], Any], name: str = name) -> Any:
            said.append(f"{name} {ctx.type}")
            try:
                return call() + 1
            except ValueError as error:
                said.append(f"{name} saw {error}")
                raise

    return app


@pytest.mark.parametrize("handler", ["acoroutine", "function"])
async def test_middleware_goes_around_the_handler_the_first_outermost(config: StoreConfig, handler: str) -> None:
    said: list[str] = []
    async with placed(config, with_middleware(said).types) as worker:
        job = await worker.run(handler)
        assert job.result == "3"
        failed = await worker.run(handler, {"fail": True}, max_attempts=1)
    assert said == [f"{name} {handler}" for name in ("outer", "inner") * 2] + ["inner saw no", "outer saw no"]
    assert failed.error is not None
    assert f"in {handler}" in failed.error.traceback
    assert "windlass/worker" not in failed.error.traceback


@pytest.mark.parametrize("handler", ["acoroutine", "function"])
async def test_middleware_that_raises_fails_the_attempt_like_the_handler(config: StoreConfig, handler: str) -> None:
    app = an_app()

    @app.middleware
    async def refuses(_ctx: AsyncContext, _call: Callable[[], Awaitable[Any]]) -> Any:
        raise LookupError("no session")

    @app.middleware
    def plain_refuses(_ctx: Context, _call: Callable[[], Any]) -> Any:
        raise LookupError("no session")

    async with placed(config, app.types) as worker:
        job_id = await worker.enqueue(handler)
        job = await worker.reaches(job_id, Status.SCHEDULED)
        (attempt,) = await worker.store.views.attempts(job_id)
    assert job.failures == 1
    assert attempt.error is not None
    assert (attempt.error.type, attempt.error.message) == ("LookupError", "no session")


def test_middleware_of_one_colour_is_refused_where_it_would_silently_be_left_out() -> None:
    app = an_app()

    @app.middleware
    async def session(_ctx: AsyncContext, call: Callable[[], Awaitable[Any]]) -> Any:
        return await call()

    with pytest.raises(Misconfigured, match=r"session is async def, and job 'function' is def: declare def middleware"):
        Apps({"it": app})

    @app.middleware
    def nothing(_ctx: Context, call: Callable[[], Any]) -> Any:
        return call()

    Apps({"it": app})


def test_what_could_not_be_called_is_refused_when_it_is_declared() -> None:
    app = an_app()

    async def two(_event: JobEvent, _more: int) -> None: ...

    def generates(_ctx: Any, call: Any) -> Any:
        yield call()

    wrong: list[tuple[Callable[[Any], object], Any]] = [
        (app.on_start, two),
        (app.on_dead, "text"),
        (app.middleware, JobEvent),
        (app.middleware, generates),
        (app.on_worker_start, two),
        (app.on_failure, lambda: None),
    ]
    for declare, hook in wrong:
        with pytest.raises(Misconfigured, match=r"on_|middleware"):
            declare(hook)
    assert not app.hooks.around
    assert not app.hooks.after


# In real processes. -----------------------------------------------------------------------------------------------


async def test_each_process_that_runs_jobs_is_told_to_start_and_to_stop(
    config: StoreConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes = tmp_path / "notes"
    monkeypatch.setenv("NOTES", str(notes))
    async with supervised(config, app=HOOKED) as running:
        (worker,) = await running.living()
        pid = running.pid_of(worker)
        for type_ in ("together", "alone"):
            job = await running.until(await running.enqueue(type_), Status.COMPLETED)
            assert job.result == "true", "the hook ran on the loop of the handlers"
        dead = await running.until(await running.enqueue("fails_alone", _max_attempts=1), Status.FAILED)
        assert dead.error is not None

        async def heard() -> bool:
            return f"dead fails_alone ValueError {pid}" in noted(notes)

        await aeventually(heard)
    lines = noted(notes)
    child = next(line for line in lines if line.startswith("start alone")).rpartition(" ")[2]
    assert int(child) not in {pid, os.getpid()}
    assert {f"worker-start {pid}", f"worker-start {child}", f"worker-stop {pid}", f"worker-stop {child}"} <= set(lines)
    assert {f"around alone {child}", f"around together {pid}", f"success alone True {pid}"} <= set(lines)
    assert f"failure fails_alone ValueError None {pid}" in lines
    assert lines.index(f"worker-start {child}") < lines.index(f"start alone {child}")


async def test_a_job_that_crashes_its_own_process_to_death_is_told_to_the_hooks_of_its_worker(
    config: StoreConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes = tmp_path / "notes"
    monkeypatch.setenv("NOTES", str(notes))
    async with supervised(config, app=HOOKED) as running:
        await running.enqueue("crashes", _max_attempts=10)

        async def heard() -> list[str]:
            await running.store.upkeep.promote()  # no leader does it here
            return [line for line in noted(notes) if line.startswith("dead crashes PoisonPill")]

        assert len(await aeventually(heard, 60)) == 1
    failures = [line for line in noted(notes) if line.startswith("failure crashes")]
    assert len(failures) == 1 + crashes_max, "the first made it a suspect, the others counted"


async def test_a_start_hook_that_fails_keeps_the_worker_from_starting_with_one_line(
    config: StoreConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NOTES", str(tmp_path / "notes"))
    monkeypatch.setenv("NOTES_FAIL", "1")
    async with supervised(config, app=HOOKED) as running:
        await asyncio.wait_for(running.running, 60)
    assert running.exit_code == 2
    problem = "the on_worker_start hook tests.worker.apps.hooked.open_up failed: OSError: no such host"
    assert f"windlass: {problem}\n" in capsys.readouterr().err


def noted(file: Path) -> list[str]:
    return file.read_text().splitlines() if file.exists() else []
