"""drain: what is queued is run to its end by a real worker in the test's own process, and nobody waits."""

import threading
from datetime import UTC, date, datetime, timedelta

import pytest

from tests.testing import shop
from tests.testing.shop import Receipt
from windlass import App, JobFailed
from windlass.config import WorkerConfig
from windlass.errors import Misconfigured, WindlassError
from windlass.testing import (
    DatabaseServer,
    Drained,
    DrainFailed,
    EndlessDrain,
    adrain,
    drain,
    draining,
    temporary_database,
)


def test_jobs_and_what_they_enqueue_run_to_their_end(windlass_app: App) -> None:
    resized = shop.resize.enqueue("a.png")
    odd = shop.send.options(queue="nobody-declared-it").enqueue("ann", day=date(2026, 5, 6))
    alone, settled = shop.isolated.enqueue(), shop.settles.enqueue()
    drained = drain()
    assert (drained.runs, len(drained.completed), drained.waiting) == (5, 5, [])
    assert (resized.result(), odd.result()) == (1, Receipt(1, date(2026, 5, 6)))
    assert (alone.result(), settled.result()) == (4, 42)
    assert sorted(shop.ran) == [("resize", "a.png"), ("send", "a.png"), ("send", "ann")]


async def test_it_runs_on_the_loop_of_an_async_test(windlass_app: App) -> None:
    handle = await shop.send.aenqueue("ann")
    assert (await adrain()).runs == 1
    assert await handle.aresult() == Receipt(1, date(2026, 2, 3))
    with pytest.raises(RuntimeError, match=r"await adrain\(\)"):
        drain()


def test_jobs_run_one_at_a_time_the_most_urgent_first(windlass_app: App) -> None:
    calls = [shop.send.options(priority=priority).job(str(priority)) for priority in (0, -5, 10)]
    windlass_app.enqueue_many(calls)
    drain()
    assert shop.ran == [("send", "10"), ("send", "0"), ("send", "-5")]


def test_time_passes_for_delays_snoozes_and_back_offs_in_their_order(windlass_app: App) -> None:
    shop.send.options(delay_s=5000).enqueue("later")
    hourly = shop.poll.enqueue(2)  # again after 3,600 s
    shop.send.options(delay_s=3000).enqueue("sooner")
    drained = drain()
    assert hourly.result() == 2
    assert [name for name, *_ in shop.ran] == ["poll", "send", "poll", "send"]
    assert [ran[1] for ran in shop.ran if ran[0] == "send"] == ["sooner", "later"]
    assert 4900 < drained.passed_s <= 5000


def test_time_that_has_passed_counts_for_what_is_enqueued_after_it(windlass_app: App) -> None:
    shop.again.enqueue(1)  # and again every minute
    shop.send.options(delay_s=90).enqueue("between")
    drain(max_jobs=4)
    drained = drain(max_jobs=0)
    assert shop.ran == [("send", "between")]
    assert [job.type for job in drained.waiting] == ["again"]


def test_a_failing_job_is_tried_again_until_it_succeeds(windlass_app: App) -> None:
    handle = shop.flaky.enqueue(2)
    drained = drain()
    assert (drained.runs, handle.result(), drained.failed) == (3, "at last", [])


def test_a_dead_letter_raises_with_the_handlers_traceback(windlass_app: App) -> None:
    handle = shop.flaky.enqueue(5)
    with pytest.raises(DrainFailed) as caught:
        drain()
    assert "1 of the jobs that were run failed for good:\n- flaky {" in str(caught.value)
    assert "in flaky" in str(caught.value)
    assert "ValueError: no 3" in str(caught.value)
    assert caught.value.drained.runs == 3
    with pytest.raises(JobFailed, match="no 3"):
        handle.result()


def test_failures_can_be_had_without_an_exception(windlass_app: App) -> None:
    shop.slow.enqueue()
    (job,) = drain(raises=False).failed
    assert job.error is not None
    assert job.error.type == "TimedOut"


def _runner_threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name.startswith("windlass-lane")}


def test_a_drain_leaves_no_thread_behind(windlass_app: App) -> None:
    before = _runner_threads()  # of tests that ran in this process earlier
    windlass_app.enqueue_many([shop.resize.job("a.png"), shop.flaky.job(0)])
    drain()
    started = _runner_threads() - before
    for thread in started:
        thread.join(30)
    assert not any(thread.is_alive() for thread in started)


# Its thread ends after the loop that it would tell.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_handler_that_cannot_be_stopped_ends_the_drain(windlass_app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draining, "WORKER", WorkerConfig(stop_ask_s=0.01, stop_grace_s=0.2))
    before = _runner_threads()
    handle = shop.stuck.enqueue()
    try:
        with pytest.raises(
            WindlassError, match=rf"job {handle.id} \(stuck\): a handler does not stop, although its time"
        ):
            drain()
    finally:
        shop.let_go.set()
        for thread in _runner_threads() - before:
            thread.join(30)


@pytest.mark.parametrize(
    "until", [timedelta(minutes=90), datetime.now(UTC) + timedelta(minutes=90)], ids=["span", "moment"]
)
def test_what_is_due_after_the_bound_stays(windlass_app: App, until: timedelta | datetime) -> None:
    handle = shop.poll.enqueue(10)
    drained = drain(until=until)
    assert drained.runs == 2
    assert [job.id for job in drained.waiting] == [handle.id]
    assert drain(until=timedelta(0)).runs == 0


def test_so_many_attempts_and_no_more(windlass_app: App) -> None:
    windlass_app.enqueue_many([shop.send.job(str(n)) for n in range(3)])
    drained = drain(max_jobs=2)
    assert (drained.runs, len(drained.waiting)) == (2, 1)


def test_a_moment_without_a_time_zone_is_refused(windlass_app: App) -> None:
    with pytest.raises(ValueError, match="needs its time zone"):
        drain(until=datetime(2026, 2, 3))  # noqa: DTZ001


def test_a_job_that_snoozes_for_ever_is_named(windlass_app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draining, "STARTS_MAX", 5)
    handle = shop.poll.enqueue(1_000)
    with pytest.raises(EndlessDrain, match=rf"job {handle.id} \(poll\) was started 5 times in one drain"):
        drain()


def test_a_job_that_enqueues_itself_for_ever_is_named(windlass_app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draining, "RUNS_MAX", 5)
    shop.again.enqueue(1)
    with pytest.raises(EndlessDrain, match=r"5 attempts in one drain, and jobs are still left \(5 of again\)"):
        drain()


def test_jobs_that_no_app_here_knows_wait(windlass_app: App) -> None:
    windlass_app.enqueue_named("elsewhere", {"a": 1})
    drained = drain()
    assert (drained.runs, [job.type for job in drained.waiting]) == (0, ["elsewhere"])


def test_what_a_job_logs_is_kept_with_its_attempt(windlass_app: App) -> None:
    shop.resize.enqueue("a.png")
    assert isinstance(drain(), Drained)
    from windlass.store.store import slices
    from windlass.testing.database import current_database

    async def attempts(postgres: object) -> list[str | None]:
        views = slices(postgres).views  # type: ignore[arg-type]
        (job,) = [each for each in (await views.jobs()).jobs if each.type == "resize"]
        return [attempt.log for attempt in await views.attempts(job.id)]

    (log,) = current_database().ask(attempts)
    assert "resizing path=a.png" in log


def test_the_hooks_of_an_app_are_called(windlass_server: DatabaseServer) -> None:
    app, called = App("hooked"), []

    @app.job
    def work() -> None:
        called.append("work")

    app.on_worker_start(lambda: called.append("start"))
    app.on_worker_stop(lambda: called.append("stop"))

    @app.on_success
    def succeeded(_event: object) -> None:
        called.append("success")

    with temporary_database(app, server=windlass_server):
        work.enqueue()
        drain()
    assert called == ["start", "work", "success", "stop"]


def test_without_a_database_there_is_nothing_to_drain() -> None:
    with pytest.raises(
        Misconfigured, match=r"ask for the fixture windlass_app, or use `with temporary_database\(app\)`"
    ):
        drain()


def test_databases_are_apart_and_the_innermost_counts(windlass_app: App, windlass_server: DatabaseServer) -> None:
    shop.send.enqueue("outer")
    other = App("other")

    @other.job
    def tidy() -> None: ...

    with temporary_database(other, server=windlass_server):
        tidy.enqueue()
        assert drain().runs == 1
    assert drain().runs == 1
