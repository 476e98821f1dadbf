"""One worker: outcomes of handlers, stopping them, giving jobs back, buffers and order."""

import asyncio
import contextvars
import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from uuid import uuid4

import pytest

from tests.eventually import aeventually
from tests.worker.placed import placed, types_of
from windlass import telemetry
from windlass.config import LeaseConfig, StoreConfig, WorkerConfig
from windlass.errors import Cancel, Fail, Retry, Snooze
from windlass.model import Lease, NewJob, RetryPolicy, Status
from windlass.store.protocol import Ask
from windlass.store.store import Store
from windlass.worker.context import AsyncContext, Context
from windlass.worker.run import Stopped
from windlass.worker.slots import State


async def aadd(a: int, b: int) -> int:
    return a + b


def add(a: int, b: int) -> int:
    return a + b


async def awaits(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return "slept"


@pytest.mark.parametrize("handler", [aadd, add])
async def test_what_a_handler_returns_is_the_jobs_result(config: StoreConfig, handler: Any) -> None:
    async with placed(config, types_of(handler)) as worker:
        job = await worker.run(handler.__name__, {"a": 2, "b": 3})
    assert (job.status, job.result, job.attempt, job.worker_id) == (Status.COMPLETED, "5", 1, worker.worker_id)
    assert job.execution_s is not None
    assert job.execution_s < 10


async def test_a_thousand_jobs_of_all_kinds_finish_once_each(config: StoreConfig) -> None:
    ran: list[int] = []

    async def quick(n: int) -> None:
        ran.append(n)

    async def slow(n: int) -> None:
        await asyncio.sleep(0.001)
        ran.append(n)

    def plain(n: int) -> None:
        ran.append(n)

    async with placed(config, types_of(quick, slow, plain), threads=8) as worker:
        kinds = ("quick", "slow", "plain")
        jobs = [NewJob(kinds[n % 3], {"n": n}, thread_demand=1 + n % 3) for n in range(1000)]
        await worker.store.intake.enqueue(jobs)

        async def all_done() -> bool:
            counts = await worker.store.views.counts()
            return sum(counts.get(("default", kind, Status.COMPLETED), 0) for kind in kinds) == 1000

        await aeventually(all_done, 30)
        assert worker.worker.desk.busy == 0
        assert worker.slots.begun() == []
    assert sorted(ran) == list(range(1000))


class Mute(Exception):
    """Cannot be described."""

    def __str__(self) -> str:
        raise SystemExit(3)


@pytest.mark.parametrize("asynchronous", [True, False])
@pytest.mark.parametrize(
    ("error", "status", "failures"),
    [
        (lambda: ValueError("no"), Status.SCHEDULED, 1),
        (lambda: Retry(3600), Status.SCHEDULED, 1),
        (lambda: Snooze(3600), Status.SCHEDULED, 0),
        (lambda: Cancel("enough"), Status.CANCELLED, 0),
        (lambda: Fail("never"), Status.FAILED, 1),
        (lambda: SystemExit(3), Status.SCHEDULED, 1),
        (KeyboardInterrupt, Status.SCHEDULED, 1),
        (asyncio.CancelledError, Status.SCHEDULED, 1),
        (Stopped, Status.SCHEDULED, 1),
        (Mute, Status.SCHEDULED, 1),
    ],
    ids=["error", "retry", "snooze", "cancel", "fail", "exit", "interrupt", "cancelled", "stopped", "mute"],
)
async def test_what_a_handler_raises_decides_what_becomes_of_its_job(
    config: StoreConfig, error: Callable[[], BaseException], status: Status, failures: int, asynchronous: bool
) -> None:
    async def acoroutine() -> None:
        raise error()

    def function() -> None:
        raise error()

    handler = acoroutine if asynchronous else function
    async with placed(config, types_of(handler)) as worker:
        job_id = await worker.enqueue(handler.__name__, retry=RetryPolicy(base_s=3600, cap_s=3600))
        job = await worker.reaches(job_id, Status.SCHEDULED, Status.CANCELLED, Status.FAILED)
        assert (job.status, job.failures) == (status, failures)
        (attempt,) = [*await worker.store.views.attempts(job_id), None][:1]
        if failures:
            assert attempt is not None
            assert attempt.error is not None
            assert type(error()).__name__ in attempt.error.type
            assert "in acoroutine" in attempt.error.traceback or "in function" in attempt.error.traceback
            assert "windlass/worker" not in attempt.error.traceback


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize("asynchronous", [True, False])
async def test_an_error_that_cannot_be_shown_is_an_error_all_the_same(config: StoreConfig, asynchronous: bool) -> None:
    async def acoroutine() -> None:
        raise Unspeakable

    def function() -> None:
        raise Unspeakable

    handler = acoroutine if asynchronous else function
    async with placed(config, types_of(handler)) as worker:
        job = await worker.run(handler.__name__, max_attempts=1)
    assert job.error is not None
    assert "Unspeakable" in job.error.type


async def test_a_payload_that_does_not_fit_the_handler_goes_to_the_dead_letters_at_once(config: StoreConfig) -> None:
    async with placed(config, types_of(aadd)) as worker:
        job = await worker.run("aadd", {"a": 1, "b": "two"})
    assert job.status is Status.FAILED
    assert job.error is not None
    assert "payload.b" in job.error.message


# Stopping. --------------------------------------------------------------------------------------------------------------


async def sleeps_for_ever() -> None:
    await asyncio.sleep(1e6)


def spins() -> None:
    while True:
        pass


def heeds(ctx: Context) -> str:
    while not ctx.cancelled:
        time.sleep(0.005)
    return "heeded"


@pytest.mark.parametrize("handler", [sleeps_for_ever, spins])
async def test_a_timeout_frees_the_threads_and_counts_as_a_failure(config: StoreConfig, handler: Any) -> None:
    async with placed(config, types_of(handler, aadd)) as worker:
        job = await worker.run(handler.__name__, timeout_s=0.2, max_attempts=1)
        assert job.status is Status.FAILED
        assert job.error is not None
        assert job.error.type == "TimedOut"
        assert job.execution_s is not None
        assert job.execution_s < 10
        await aeventually(lambda: _busy(worker, 0))
        assert (await worker.run("aadd", {"a": 1, "b": 1})).result == "2"


@pytest.mark.parametrize("handler", [sleeps_for_ever, spins])
async def test_a_cancel_frees_the_threads(config: StoreConfig, handler: Any) -> None:
    async with placed(config, types_of(handler, add)) as worker:
        job_id = await worker.enqueue(handler.__name__)
        await worker.reaches(job_id, Status.RUNNING)
        await aeventually(lambda: _begun(worker, 1))
        await worker.cancel(job_id)
        job = await worker.reaches(job_id, Status.CANCELLED)
        assert job.error is not None
        assert job.error.type == "Cancelled"
        assert (await worker.run("add", {"a": 1, "b": 1})).result == "2"


async def test_a_handler_that_heeds_its_request_to_stop_keeps_its_result(config: StoreConfig) -> None:
    async with placed(config, types_of(heeds)) as worker:
        job = await worker.run("heeds", timeout_s=0.1)
    assert (job.status, job.result) == (Status.COMPLETED, '"heeded"')


async def test_an_exception_thrown_into_one_job_never_hits_the_next_on_its_thread(config: StoreConfig) -> None:
    """Jobs end at about the moment they are thrown at, over and over, on one thread."""
    hits: list[str] = []

    def ends_about_then() -> None:
        until = time.monotonic() + 0.055
        while time.monotonic() < until:
            pass

    def innocent(n: int) -> int:
        try:
            return sum(range(n))
        except BaseException as error:
            hits.append(repr(error))
            raise

    soon = WorkerConfig(poll_s=0.02, stop_ask_s=0.0, stop_grace_s=5)
    async with placed(config, types_of(ends_about_then, innocent), threads=1, worker=soon) as worker:
        jobs: list[NewJob] = []
        for n in range(30):
            jobs += [
                NewJob("ends_about_then", timeout_s=0.001 + n * 0.002, max_attempts=1),
                NewJob("innocent", {"n": 20_000}),
            ]
        ids = [each.id for each in await worker.store.intake.enqueue(jobs)]
        for job_id in ids:
            await worker.reaches(job_id, Status.COMPLETED, Status.FAILED, timeout_s=30)
        done = [(await worker.store.views.job(job_id)).status for job_id in ids[1::2]]
    assert hits == []
    assert set(done) == {Status.COMPLETED}


async def test_a_thread_that_cannot_be_freed_is_lost_and_the_worker_asks_to_be_replaced(
    config: StoreConfig, caplog: pytest.LogCaptureFixture
) -> None:
    let_go = threading.Event()

    def blocks() -> None:
        while not let_go.is_set():
            with suppress(BaseException):
                let_go.wait(20)

    async with placed(config, types_of(blocks, awaits)) as worker:
        neighbour = await worker.enqueue("awaits", {"seconds": 1.0})
        job_id = await worker.enqueue("blocks", timeout_s=0.1)
        await aeventually(lambda: _said(worker, "stuck"))
        assert [each.state for each in worker.slots.begun() if each.job_id == job_id] == [State.STUCK_BY_TIMEOUT]
        await aeventually(lambda: _lost(worker, 1))
        (said,) = [line for line in caplog.records if line.name == "windlass.worker.watch"]
        assert "let_go.wait(20)" in said.__dict__["exception"], "the line shows where the handler is"
        assert "lanes.py" not in said.__dict__["exception"]
        await worker.run("awaits", {"seconds": 0})  # on the threads that are left
        worker.control.say("drain")
        assert not await _said(worker, "spent")
        await worker.reaches(neighbour, Status.COMPLETED)
        await aeventually(lambda: _said(worker, "spent"))
        later = await worker.enqueue("awaits", {"seconds": 0})
        assert (await worker.store.views.job(job_id)).status is Status.RUNNING
        assert (await worker.store.views.job(later)).status is Status.READY
        let_go.set()


async def test_a_cancel_stops_every_chunk_of_a_job(config: StoreConfig) -> None:
    ended: list[int] = []

    def crunches(ctx: Context) -> None:
        def part(chunk: range) -> None:
            try:
                while True:
                    pass
            finally:
                ended.append(chunk[0])

        ctx.map_chunks(part, range(3))

    async with placed(config, types_of(crunches)) as worker:
        job_id = await worker.enqueue("crunches", thread_demand=3)
        await aeventually(lambda: _begun(worker, 1))
        await worker.cancel(job_id)
        await worker.reaches(job_id, Status.CANCELLED)
    assert sorted(ended) == [0, 1, 2]


async def test_a_handler_that_cancels_its_own_task_hurts_nobody_else(config: StoreConfig) -> None:
    async def cancels_itself() -> str:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        return "and goes on"

    async with placed(config, types_of(cancels_itself, aadd), threads=1) as worker:
        for _ in range(3):
            assert (await worker.run("cancels_itself")).status is Status.COMPLETED
            assert (await worker.run("aadd", {"a": 1, "b": 1})).result == "2"


async def test_a_function_that_returns_a_coroutine_has_not_done_its_work(config: StoreConfig) -> None:
    def hides() -> Any:
        return aadd(1, 2)

    async with placed(config, types_of(hides)) as worker:
        job = await worker.run("hides", max_attempts=1)
    assert job.status is Status.FAILED
    assert job.error is not None
    assert "coroutine" in job.error.message


@pytest.mark.parametrize("note", ["\x00", "caf\udce9"])
async def test_a_note_that_cannot_be_stored_costs_nothing(config: StoreConfig, note: str) -> None:
    async def notes(ctx: AsyncContext) -> None:
        ctx.progress(0.5, note)
        await asyncio.sleep(1.5)

    async with placed(config, types_of(notes)) as worker:
        assert (await worker.run("notes")).attempt == 1
        assert not worker.task.done()


async def test_a_cancel_that_overtakes_the_answer_to_the_claim_is_heeded(config: StoreConfig) -> None:
    async with placed(config, types_of(sleeps_for_ever, aadd), threads=1) as worker:
        first = await worker.enqueue("sleeps_for_ever")
        await aeventually(lambda: _begun(worker, 1))
        (lease,) = worker.worker.desk.held()
        early = lease._replace(job_id=uuid4(), token=uuid4())
        worker.worker._cancel(early.job_id, early.token)
        assert worker.worker._early_cancels
        await worker.cancel(first)
        await worker.reaches(first, Status.CANCELLED)
        assert (await worker.run("aadd", {"a": 1, "b": 1})).result == "2"
        assert not worker.worker._early_cancels, "what came with the claim is compared, then forgotten"


async def test_one_row_held_by_an_open_transaction_keeps_no_other_from_being_settled(
    config: StoreConfig, sql: Any
) -> None:
    go = asyncio.Event()

    async def waits() -> None:
        await go.wait()

    async with placed(config, types_of(waits), threads=4) as worker:
        ids = [await worker.enqueue("waits") for _ in range(4)]
        await aeventually(lambda: _begun(worker, 4))
        async with sql.transaction():
            await sql.execute("select from windlass.running where job_id = $1 for update", ids[1])
            go.set()
            for job_id in (ids[0], ids[2], ids[3]):
                await worker.reaches(job_id, Status.COMPLETED, timeout_s=20)
        await worker.reaches(ids[1], Status.COMPLETED)


async def test_errors_of_the_handler_inside_its_transaction_stay_its_own(config: StoreConfig) -> None:
    async def opens(ctx: AsyncContext) -> None:
        async with ctx.transaction():
            raise FileNotFoundError("nowhere")

    async with placed(config, types_of(opens)) as worker:
        job = await worker.run("opens", max_attempts=1)
    assert job.error is not None
    assert job.error.type == "FileNotFoundError"


@pytest.mark.parametrize("asynchronous", [True, False])
async def test_no_chunk_outlives_its_attempt(config: StoreConfig, asynchronous: bool) -> None:
    """Though the exception strikes more than once, and the first chunk ends early."""
    threads: list[threading.Thread] = []

    def part(chunk: range) -> None:
        if chunk[0]:
            threads.append(threading.current_thread())
        until = time.monotonic() + 0.9
        while chunk[0] and time.monotonic() < until:
            with suppress(BaseException):
                time.sleep(0.3)

    async def acrunches(ctx: AsyncContext) -> None:
        await ctx.map_chunks(part, range(3))

    def crunches(ctx: Context) -> None:
        ctx.map_chunks(part, range(3))

    handler = acrunches if asynchronous else crunches
    patient = WorkerConfig(poll_s=0.05, stop_ask_s=0.0, stop_grace_s=10)
    async with placed(config, types_of(handler), worker=patient) as worker:
        job_id = await worker.enqueue(handler.__name__, thread_demand=3, timeout_s=0.05)
        await worker.reaches(job_id, Status.SCHEDULED, timeout_s=20)
        assert not any(thread.is_alive() for thread in threads)


# Giving back. -----------------------------------------------------------------------------------------------------------


async def test_a_drain_gives_back_what_has_not_begun_and_finishes_what_runs(config: StoreConfig) -> None:
    ahead = WorkerConfig(poll_s=0.05, buffer_s=1.0)
    async with placed(config, types_of(awaits), threads=2, worker=ahead) as worker:
        ids = [await worker.enqueue("awaits", {"seconds": 0.3}) for _ in range(8)]
        await aeventually(lambda: _begun(worker, 2))
        assert await worker.drained() == 0
        jobs = [await worker.store.views.job(job_id) for job_id in ids]
        assert {job.status for job in jobs} == {Status.COMPLETED, Status.READY}
        assert all(job.failures == 0 for job in jobs)
        assert worker.said[-1]["say"] == "bye"


async def test_a_release_gives_running_jobs_back_unburned(config: StoreConfig) -> None:
    async with placed(config, types_of(sleeps_for_ever, spins)) as worker:
        ids = [await worker.enqueue("sleeps_for_ever"), await worker.enqueue("spins")]
        await aeventually(lambda: _begun(worker, 2))
        worker.control.say("release")
        assert await asyncio.wait_for(worker.task, 20) == 0
        jobs = [await worker.store.views.job(job_id) for job_id in ids]
        assert [(job.status, job.failures) for job in jobs] == [(Status.READY, 0)] * 2


async def test_jobs_claimed_ahead_go_back_when_those_before_them_take_long(config: StoreConfig) -> None:
    async with placed(config, types_of(awaits), threads=1, worker=WorkerConfig(poll_s=0.05, buffer_s=1.0)) as worker:
        await worker.store.intake.enqueue([NewJob("awaits", {"seconds": 0.001})] * 100)
        await worker.store.intake.enqueue([NewJob("awaits", {"seconds": 3})] * 5)
        worker.worker.hint()

        async def given_back() -> bool:
            counts = await worker.store.views.counts()
            running, ready = (counts.get(("default", "awaits", each), 0) for each in (Status.RUNNING, Status.READY))
            return counts.get(("default", "awaits", Status.COMPLETED), 0) == 100 and (running, ready) == (1, 4)

        await aeventually(given_back, 10)


async def test_a_worker_whose_lease_ends_stops_by_itself(config: StoreConfig) -> None:
    async with placed(config, types_of(sleeps_for_ever)) as worker:
        await worker.enqueue("sleeps_for_ever")
        await aeventually(lambda: _begun(worker, 1))
        worker.slots.lease_until_s = 1.0
        assert await asyncio.wait_for(worker.task, 20) == 75


@pytest.mark.parametrize("handler", [sleeps_for_ever, spins])
async def test_a_job_whose_claim_the_database_forgot_stops_running_here(
    config: StoreConfig, sql: Any, handler: Any
) -> None:
    """As after a crash that lost the claim's commit, when somebody else has claimed the job since."""
    async with placed(config, types_of(handler), lease=LeaseConfig(heartbeat_s=0.1)) as worker:
        job_id = await worker.enqueue(handler.__name__)
        await aeventually(lambda: _begun(worker, 1))
        await sql.execute(
            "update windlass.running set worker_id = gen_random_uuid(), token = gen_random_uuid() where job_id = $1",
            job_id,
        )
        await aeventually(lambda: _begun(worker, 0))
        assert (await worker.store.views.job(job_id)).status is Status.RUNNING, "by whoever has it now"


async def test_a_claim_whose_answer_is_late_is_not_taken_for_a_stray(config: StoreConfig) -> None:
    async with placed(config, types_of(aadd)) as worker:
        claims, slow, answered = worker.worker._claims, asyncio.Event(), asyncio.Event()
        claim = claims.claim

        async def late(ask: Ask) -> list[Lease]:
            leases = await claim(ask)
            if leases:
                slow.set()
                await answered.wait()
            return leases

        claims.claim = late  # type: ignore[method-assign]
        job_id = await worker.enqueue("aadd", {"a": 1, "b": 1})
        await asyncio.wait_for(slow.wait(), 5)
        await worker.worker._claimer.give_back_strays(older_than_s=1e-9)
        assert (await worker.store.views.job(job_id)).status is Status.RUNNING
        answered.set()
        assert (await worker.reaches(job_id, Status.COMPLETED)).attempt == 1


# Order. -----------------------------------------------------------------------------------------------------------------


async def test_with_one_thread_a_thousand_jobs_of_mixed_priority_run_in_order(
    config: StoreConfig, store: Store
) -> None:
    ran: list[int] = []

    async def ranked(n: int) -> None:
        ran.append(n)

    priorities = [(n * 37) % 11 - 5 for n in range(1000)]
    await store.intake.enqueue([NewJob("ranked", {"n": n}, priority=p) for n, p in enumerate(priorities)])
    async with placed(config, types_of(ranked), threads=1):
        await aeventually(lambda: _length(ran, 1000), 30)
    assert ran == sorted(range(1000), key=lambda n: (-priorities[n], n))


async def test_queues_are_served_by_their_weights(config: StoreConfig, store: Store) -> None:
    ran: list[str] = []

    async def counted(ctx: AsyncContext) -> None:
        ran.append(ctx.queue)

    await store.intake.enqueue([NewJob("counted", queue=queue) for queue in ("a", "b") for _ in range(400)])
    still = WorkerConfig(poll_s=0.05, buffer_s=0)
    async with placed(config, types_of(counted), threads=1, queues={"a": 1, "b": 3}, worker=still):
        await aeventually(lambda: _length(ran, 800), 30)
    assert 280 <= ran[:400].count("b") <= 320


# Contexts. --------------------------------------------------------------------------------------------------------------


async def test_what_one_job_leaves_in_its_context_does_not_reach_the_next(config: StoreConfig) -> None:
    left = contextvars.ContextVar("left", default="clean")

    async def leaves() -> str:
        before = left.get()
        left.set("dirty")
        return before

    def leaves_too() -> str:
        before = left.get()
        left.set("dirty")
        return before

    async with placed(config, types_of(leaves, leaves_too), threads=1) as worker:
        for name in ("leaves", "leaves_too") * 3:
            assert (await worker.run(name)).result == '"clean"'


async def test_a_step_is_done_once_however_often_its_job_is_tried(config: StoreConfig) -> None:
    done: list[str] = []

    async def charge(amount: int) -> dict[str, int]:
        done.append("charged")
        return {"charged": amount}

    async def pays(ctx: AsyncContext) -> dict[str, int]:
        receipt = await ctx.once("charge", charge, 42)
        if ctx.attempt == 1:
            raise Retry(0)
        return receipt

    def notes(ctx: Context) -> Any:
        receipt = ctx.once("note", lambda: done.append("noted"))
        if ctx.attempt == 1:
            raise Retry(0)
        return receipt

    async with placed(config, types_of(pays, notes)) as worker:
        for name in ("pays", "notes"):
            job_id = await worker.enqueue(name)
            await worker.reaches(job_id, Status.SCHEDULED)
            await worker.store.upkeep.promote()
            worker.worker.hint()
            await worker.reaches(job_id, Status.COMPLETED)
    assert done == ["charged", "noted"]


async def test_a_job_finishes_inside_its_handlers_transaction_or_not_at_all(config: StoreConfig, sql: Any) -> None:
    await sql.execute("create table paid (job uuid)")

    async def pays(ctx: AsyncContext, fails: bool) -> str:
        async with ctx.transaction() as tx:
            await tx.execute("insert into paid values ($1)", ctx.id)
            ctx.finish({"paid": True})
            if fails:
                raise Fail("changed my mind")
        return "not what is kept"

    async with placed(config, types_of(pays)) as worker:
        kept = await worker.run("pays", {"fails": False})
        undone = await worker.run("pays", {"fails": True})
    assert (kept.status, kept.result, undone.status) == (Status.COMPLETED, '{"paid":true}', Status.FAILED)
    assert [row["job"] for row in await sql.fetch("select job from paid")] == [kept.id]


async def test_a_transaction_of_an_attempt_that_lost_its_lease_is_undone(config: StoreConfig, sql: Any) -> None:
    await sql.execute("create table paid (job uuid)")
    go = asyncio.Event()
    problems: list[str] = []

    async def pays(ctx: AsyncContext) -> None:
        await go.wait()
        try:
            async with ctx.transaction() as tx:
                await tx.execute("insert into paid values ($1)", ctx.id)
        except Exception as error:
            problems.append(type(error).__name__)
            raise

    async with placed(config, types_of(pays)) as worker:
        job_id = await worker.enqueue("pays")
        await aeventually(lambda: _begun(worker, 1))
        await sql.execute("update windlass.running set token = gen_random_uuid() where job_id = $1", job_id)
        go.set()
        await aeventually(lambda: _length(problems, 1))
        await sql.execute("update windlass.running set token = gen_random_uuid() where job_id = $1", job_id)
    assert problems == ["LeaseLost"]
    assert await sql.fetchval("select count(*) from paid") == 0


async def test_progress_is_shown_while_it_runs(config: StoreConfig) -> None:
    go = asyncio.Event()

    async def climbs(ctx: AsyncContext) -> None:
        ctx.progress(0.25, "a quarter")
        await go.wait()

    async with placed(config, types_of(climbs)) as worker:
        job_id = await worker.enqueue("climbs")

        async def shown() -> bool:
            job = await worker.store.views.job(job_id)
            return (job.progress, job.progress_note) == (0.25, "a quarter")

        await aeventually(shown)
        go.set()
        await worker.reaches(job_id, Status.COMPLETED)


async def test_what_a_handler_logs_is_kept_with_its_attempt(config: StoreConfig) -> None:
    telemetry.configure("info", "json")

    async def speaks(ctx: AsyncContext) -> None:
        ctx.log.info("from the context", size=3)
        logging.getLogger("somewhere").warning("from the standard library")
        raise Fail("done")

    async with placed(config, types_of(speaks)) as worker:
        job = await worker.run("speaks")
        (attempt,) = await worker.store.views.attempts(job.id)
    assert attempt.log is not None
    assert "from the context" in attempt.log
    assert "size=3" in attempt.log
    assert "from the standard library" in attempt.log


async def test_chunks_run_on_the_threads_granted_and_come_back_in_order(config: StoreConfig) -> None:
    seen: set[int] = set()
    together = threading.Barrier(3, timeout=5)

    def sums(ctx: Context, upto: int) -> int:
        def part(chunk: range) -> int:
            together.wait()
            seen.add(threading.get_ident())
            return sum(chunk)

        total: int = ctx.map_chunks(part, range(upto), sum)
        return total

    async with placed(config, types_of(sums)) as worker:
        job = await worker.run("sums", {"upto": 1000}, thread_demand=3)
    assert (job.result, len(seen)) == ("499500", 3)


async def _begun(worker: Any, count: int) -> bool:
    return len(worker.slots.begun()) == count


async def _said(worker: Any, word: str) -> bool:
    return any(message["say"] == word for message in worker.said)


async def _length(items: list[Any], count: int) -> bool:
    return len(items) >= count


async def _busy(worker: Any, count: int) -> bool:
    return bool(worker.worker.desk.busy == count)


async def _lost(worker: Any, count: int) -> bool:
    return bool(worker.slots.lost_threads == count)
