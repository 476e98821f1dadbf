"""Enqueueing from programs: from threads and loops, with options, in bulk, by name, in the caller's transaction."""

import asyncio
import multiprocessing
import os
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, date, datetime, timedelta
from typing import Any
from uuid import UUID

import asyncpg
import psycopg
import pytest
from sqlalchemy import create_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

import windlass
from tests.addresses import sqlalchemy_url
from tests.eventually import aeventually
from tests.factory import Rig
from windlass import App, Handle, JobCancelled, JobFailed, ResultMismatch, ResultNotStored, RetryPolicy
from windlass.config import StoreConfig
from windlass.errors import (
    InvalidId,
    InvalidJob,
    InvalidPayload,
    JobNotFound,
    Misconfigured,
    RequestError,
    WindlassError,
)
from windlass.lifecycle import Completed, Failed
from windlass.model import Error, Status
from windlass.store.store import Store

Sql = asyncpg.Connection


@pytest.fixture
async def app(config: StoreConfig) -> AsyncIterator[App]:
    made = App("shop", config=config)

    @made.job(queue="mail", max_attempts=5, timeout=timedelta(seconds=20), tags=("mail",))
    async def send(to: str, copies: int = 1, day: date | None = None) -> dict[str, date] | None: ...

    @made.job
    def tidy() -> None: ...

    yield made
    await made.aclose()
    await asyncio.to_thread(made.close)


def send_of(app: App) -> Any:
    return app.types["send"]


async def test_a_blocking_and_an_awaited_enqueue_store_the_same_job(app: App, store: Store) -> None:
    send = send_of(app)
    one = await asyncio.to_thread(send.enqueue, "ann", day=date(2026, 2, 3))
    two = await send.aenqueue("ann", day=date(2026, 2, 3))
    jobs = [await store.views.job(handle.id) for handle in (one, two)]
    for job in jobs:
        assert (job.type, job.queue, job.max_attempts, job.timeout_s, job.tags) == ("send", "mail", 5, 20.0, ("mail",))
        assert job.payload == '{"to":"ann","day":"2026-02-03"}'
    assert await two.astatus() is Status.READY
    assert await asyncio.to_thread(one.status) is Status.READY


async def test_a_blocking_enqueue_on_a_thread_with_a_loop_does_not_deadlock(app: App, store: Store) -> None:
    handle = app.types["tidy"].enqueue()  # type: ignore[attr-defined]
    assert (await store.views.job(handle.id)).payload == "{}"


async def test_a_call_that_does_not_fit_stores_nothing(app: App, sql: Sql) -> None:
    with pytest.raises(InvalidPayload, match=r"payload.copies: expected int, got str"):
        await send_of(app).aenqueue("ann", copies="2")
    assert await sql.fetchval("select count(*) from windlass.job") == 0


async def test_options_hold_for_one_job_and_are_checked_where_they_are_said(app: App, store: Store) -> None:
    send = send_of(app)
    due = datetime.now(UTC) + timedelta(hours=2)
    options = {"priority": 7, "threads": 3, "scheduled_at": due, "timeout": timedelta(minutes=1), "name": "first"}
    handle = await send.options(**options).options(retry=RetryPolicy(base_s=9)).aenqueue("ann")
    job = await store.views.job(handle.id)
    assert (job.queue, job.priority, job.thread_demand, job.timeout_s, job.name) == ("mail", 7, 3, 60.0, "first")
    assert (job.status, job.scheduled_at, job.retry) == (Status.SCHEDULED, due, RetryPolicy(base_s=9))
    assert send.job("ann").priority == 0
    with pytest.raises(InvalidJob, match="priority: must be"):
        send.options(priority=1000)
    with pytest.raises(TypeError, match="there is no option colour"):
        send.options(colour="red")


async def test_an_idempotency_key_gives_the_first_job(app: App) -> None:
    keyed = send_of(app).options(idempotency_key="order-1")
    first, again = await keyed.aenqueue("ann"), await keyed.aenqueue("ann")
    assert (first.duplicate, again.duplicate, again.id) == (False, True, first.id)


async def test_many_are_stored_together_or_not_at_all(app: App, store: Store, sql: Sql) -> None:
    send, tidy = send_of(app), app.types["tidy"]
    made = await app.aenqueue_many([send.job("a"), tidy.job(), send.options(priority=2).job("b")])  # type: ignore[attr-defined]
    assert [(await store.views.job(each.id)).type for each in made] == ["send", "tidy", "send"]
    with pytest.raises(InvalidJob, match="queue"):
        await asyncio.to_thread(app.enqueue_many, [send.job("c"), send.job("d")._replace(queue="no no")])
    assert await sql.fetchval("select count(*) from windlass.job") == 3


async def test_what_is_no_job_or_no_id_is_named(app: App) -> None:
    wrong: Any = [send_of(app).job("a"), send_of(app)]
    with pytest.raises(InvalidJob, match=r"jobs\[1\]: must be made by \.job\(…\), not AppJob"):
        await app.aenqueue_many(wrong)
    wrong = [3]
    with pytest.raises(InvalidJob, match=r"jobs\[0\]: must be made by"):
        app.enqueue_many(wrong)
    wrong = "01900000-0000-7000-8000-000000000000"
    with pytest.raises(InvalidId, match="id: must be a UUID, not a str"):
        app.handle(wrong)


async def test_a_type_of_another_program_is_enqueued_by_its_name(app: App, store: Store) -> None:
    handle = await app.aenqueue_named("report.make", {"year": 2026}, queue="slow", threads=2)
    job = await store.views.job(handle.id)
    assert (job.type, job.queue, job.thread_demand, job.payload) == ("report.make", "slow", 2, '{"year":2026}')
    other = await asyncio.to_thread(lambda: app.enqueue_named("report.make", [1]))
    assert (await store.views.job(other.id)).payload == "[1]"


async def test_a_handle_waits_for_the_result(app: App, rig: Rig) -> None:
    worker = await rig.worker(types=["send"])
    done, failed = await app.aenqueue_many([send_of(app).options(queue="default").job(to) for to in ("a", "b")])
    waiting = asyncio.create_task(done.aresult(timeout_s=20))
    blocking = asyncio.create_task(asyncio.to_thread(failed.result, 20))
    one, two = await worker.claim()
    await worker.settle(one, Completed({"sent": "2026-02-03"}))
    await worker.settle(two, Failed(Error("SMTPError", "mailbox full"), final=True))
    assert await waiting == {"sent": date(2026, 2, 3)}
    assert await send_of(app).handle(done.id).aresult() == {"sent": date(2026, 2, 3)}
    assert await app.handle(done.id).aresult() == {"sent": "2026-02-03"}
    with pytest.raises(JobFailed, match="failed: SMTPError: mailbox full") as caught:
        await blocking
    assert caught.value.error.type == "SMTPError"


async def test_a_completed_job_without_its_result_says_so(app: App, rig: Rig) -> None:
    worker = await rig.worker(types=["send"])
    call = send_of(app).options(queue="default")
    lost, other, none = [await call.aenqueue(to) for to in "abc"]
    one, two, three = await worker.claim()
    await worker.settle(one, Completed(object()))
    await worker.settle(two, Completed({"sent": "soon"}))
    await worker.settle(three, Completed(None))
    with pytest.raises(
        ResultNotStored, match=r"was done, but its result was not stored: result: is a object"
    ) as caught:
        await lost.aresult()
    assert caught.value.error.type == "ResultNotStored"
    with pytest.raises(ResultMismatch, match=r"not what its handler's signature says: result\[\.\.\.\]: invalid"):
        await other.aresult()
    assert await none.aresult() is None


async def test_a_handle_says_what_did_not_happen(app: App) -> None:
    handle = await send_of(app).aenqueue("ann")
    with pytest.raises(TimeoutError, match=r"is ready after 0.05 s"):
        await handle.aresult(timeout_s=0.05)
    assert await handle.acancel("not needed") is Status.CANCELLED
    with pytest.raises(JobCancelled, match="was cancelled: not needed"):
        await app.handle(handle.id).aresult()
    with pytest.raises(JobNotFound):
        await app.handle(UUID("01900000-0000-7000-8000-000000000000")).astatus()


async def test_a_new_job_wakes_a_resting_worker(app: App, store: Store, rig: Rig, sql: Sql) -> None:
    worker = await rig.worker()
    await store.hints.rest(worker.id, queues=["mail"], types=["send"], free=1)
    await send_of(app).aenqueue("ann")

    async def nobody_rests() -> bool:
        return bool(await sql.fetchval("select count(*) = 0 from windlass.idle"))

    assert await aeventually(nobody_rests)


_ENDS_AT_ONCE = {
    "blocking": "app.enqueue_named('tidy')",
    "a blocking block": "with app:\n    app.enqueue_named('tidy')",
    "async": "asyncio.run(app.aenqueue_named('tidy'))",
    "an async block": """
async def main():
    async with app:
        await app.aenqueue_named('tidy')
asyncio.run(main())
""",
}


@pytest.mark.parametrize("way", _ENDS_AT_ONCE)
async def test_a_program_that_ends_right_after_an_enqueue_has_woken_a_worker(
    way: str, url: str, store: Store, rig: Rig, sql: Sql
) -> None:
    worker = await rig.worker()
    await store.hints.rest(worker.id, queues=["default"], types=["tidy"], free=1)
    program = f"import asyncio\nfrom windlass import App\napp = App()\n{_ENDS_AT_ONCE[way]}"
    environ = {**os.environ, "WINDLASS_DATABASE_URL": url}
    ended = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, env=environ, stderr=asyncio.subprocess.PIPE
    )
    _, complaints = await ended.communicate()
    assert (ended.returncode, complaints) == (0, b"")
    assert await sql.fetchval("select count(*) from windlass.idle") == 0


# The caller's transaction. --------------------------------------------------------------------------------------------


async def test_a_blocking_enqueue_joins_the_callers_psycopg_transaction(app: App, url: str, sql: Sql) -> None:
    def call() -> list[Handle[Any]]:
        with psycopg.connect(url) as connection:
            kept = send_of(app).options(connection=connection).enqueue("ann")
            connection.commit()
            undone = send_of(app).enqueue("bob", connection=connection)
            connection.rollback()
        return [kept, undone]

    kept, undone = await asyncio.to_thread(call)
    assert await kept.astatus() is Status.READY
    with pytest.raises(JobNotFound):
        await undone.astatus()


async def test_a_blocking_enqueue_joins_the_callers_session(app: App, url: str, sql: Sql) -> None:
    engine = create_engine(sqlalchemy_url(url, "psycopg"), poolclass=NullPool)

    def call() -> None:
        with Session(engine) as session, session.begin():
            app.enqueue_many([send_of(app).job("ann"), send_of(app).job("bob")], connection=session)

    await asyncio.to_thread(call)
    assert await sql.fetchval("select count(*) from windlass.ready") == 2


async def test_an_awaited_enqueue_joins_the_callers_asyncpg_transaction(app: App, sql: Sql) -> None:
    async with sql.transaction():
        handle = await send_of(app).aenqueue("ann", connection=sql)
    assert await handle.astatus() is Status.READY
    async with sql.transaction():
        with pytest.raises(RequestError, match="await aenqueue"):
            send_of(app).enqueue("ann", connection=sql)


async def test_a_blocking_connection_is_no_use_to_an_awaited_enqueue(app: App, url: str) -> None:
    engine = create_engine(sqlalchemy_url(url, "psycopg"), poolclass=NullPool)
    with psycopg.connect(url) as connection, Session(engine) as session:
        for blocking in (connection, session):
            with pytest.raises(RequestError, match=r"is a blocking one; call enqueue\(…\)"):
                await send_of(app).aenqueue("ann", connection=blocking)


async def test_a_callers_read_only_transaction_is_the_callers_to_change(app: App, url: str, sql: Sql) -> None:
    def call() -> None:
        with psycopg.connect(url) as connection:
            connection.read_only = True
            send_of(app).enqueue("ann", connection=connection)

    with pytest.raises(RequestError, match="its transaction is read-only"):
        await asyncio.to_thread(call)
    async with sql.transaction(readonly=True):
        with pytest.raises(RequestError, match="its transaction is read-only"):
            await send_of(app).aenqueue("ann", connection=sql)


# Loops, threads, processes. -------------------------------------------------------------------------------------------


async def test_threads_share_one_portal(app: App, sql: Sql) -> None:
    tidy: Any = app.types["tidy"]
    await asyncio.gather(*(asyncio.to_thread(tidy.enqueue) for _ in range(20)))
    assert await sql.fetchval("select count(*) from windlass.job") == 20
    assert sum(each.name == "windlass calls" for each in threading.enumerate()) == 1


_WITHOUT_DESCRIPTORS = """
import resource
from windlass import App
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
with App() as app:
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        app.enqueue_named("tidy")
    except OSError as error:
        print(error.strerror)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    print(app.enqueue_named("tidy").status())
"""


def test_a_program_out_of_file_descriptors_is_told_so_and_goes_on_later(url: str) -> None:
    environ = {**os.environ, "WINDLASS_DATABASE_URL": url}
    command = [sys.executable, "-c", _WITHOUT_DESCRIPTORS]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines() == ["Too many open files", "ready"]


async def test_each_loop_has_a_store_that_ends_with_it(app: App, sql: Sql) -> None:
    async def in_another_loop() -> None:
        await asyncio.gather(*(send_of(app).aenqueue("x") for _ in range(5)))

    def runs() -> None:
        for _ in range(3):
            asyncio.run(in_another_loop())

    await asyncio.to_thread(runs)
    assert await sql.fetchval("select count(*) from windlass.job") == 15
    gone = (
        "select count(*) = 0 from pg_stat_activity where application_name = 'windlass' and datname = current_database()"
    )

    async def all_closed() -> bool:
        return bool(await sql.fetchval(gone))

    assert await aeventually(all_closed)


async def test_loops_that_come_and_go_in_many_threads_do_not_trip_over_each_other(app: App) -> None:
    tidy: Any = app.types["tidy"]

    async def ask() -> Status:
        handle: Handle[None] = await tidy.aenqueue()
        return await handle.astatus()

    def runs() -> list[Status]:
        return [asyncio.run(ask()) for _ in range(3)]

    often_s, before_s = 1e-6, sys.getswitchinterval()
    sys.setswitchinterval(often_s)
    try:
        seen = await asyncio.gather(*(asyncio.to_thread(runs) for _ in range(6)))
    finally:
        sys.setswitchinterval(before_s)
    assert seen == [[Status.READY] * 3] * 6


async def test_a_closed_app_opens_again(app: App, store: Store) -> None:
    tidy: Any = app.types["tidy"]
    await asyncio.to_thread(tidy.enqueue)
    await asyncio.to_thread(app.close)
    await tidy.aenqueue()
    await app.aclose()
    handle = await asyncio.to_thread(tidy.enqueue)
    again = await tidy.aenqueue()
    assert {(await store.views.job(each.id)).status for each in (handle, again)} == {Status.READY}


async def test_a_worker_lends_its_store(config: StoreConfig, store: Store) -> None:
    lonely = App(config=StoreConfig(database_url="postgresql://nobody@localhost:1/none"))

    @lonely.job
    def tidy() -> None: ...

    lonely.attach(store.intake, store.views)
    handles = [await tidy.aenqueue(), await asyncio.to_thread(tidy.enqueue)]
    assert [await handle.astatus() for handle in handles] == [Status.READY] * 2
    lonely.detach()
    with pytest.raises(WindlassError):
        await tidy.aenqueue()
    await lonely.aclose()


def _enqueue_in_child(app: App, said: Any) -> None:
    tidy: Any = app.types["tidy"]
    said.put(str(tidy.enqueue().id))
    app.close()


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
async def test_a_forked_child_makes_its_own_connections(app: App, store: Store) -> None:
    tidy: Any = app.types["tidy"]
    await asyncio.to_thread(tidy.enqueue)
    forking = multiprocessing.get_context("fork")
    said = forking.SimpleQueue()
    child = forking.Process(target=_enqueue_in_child, args=(app, said))
    child.start()
    job_id = await asyncio.to_thread(said.get)
    await asyncio.to_thread(child.join, 20)
    assert child.exitcode == 0
    assert (await store.views.job(UUID(job_id))).status is Status.READY
    assert (await asyncio.to_thread(tidy.enqueue)).id != UUID(job_id)


# Configuration and declaration. ---------------------------------------------------------------------------------------


async def test_without_a_database_the_first_call_says_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("WINDLASS_DATABASE_URL", "DATABASE_URL"):
        monkeypatch.delenv(name, raising=False)
    app = App()

    @app.job
    def tidy() -> None: ...

    with pytest.raises(Misconfigured, match="set WINDLASS_DATABASE_URL"):
        await tidy.aenqueue()


async def test_the_database_is_the_environments(monkeypatch: pytest.MonkeyPatch, url: str, store: Store) -> None:
    monkeypatch.setenv("WINDLASS_DATABASE_URL", url)
    async with App() as app:
        handle = await app.aenqueue_named("tidy")
        assert (await store.views.job(handle.id)).type == "tidy"


def test_a_declared_job_is_still_the_function() -> None:
    app = App()

    @app.job(threads=2)
    def double(n: int) -> int:
        """Twice as much."""
        return 2 * n

    assert (double(4), double.__name__, double.__doc__) == (8, "double", "Twice as much.")
    assert app.types["double"] is double
    with pytest.raises(Misconfigured, match="two jobs are named 'double'"):
        app.job(double.fn)
    with pytest.raises(Misconfigured, match="cannot be named connection"):

        @app.job
        def copy(connection: str) -> None: ...


def test_every_public_name_is_there() -> None:
    assert {*windlass.__all__, "__version__"} == set(dir(windlass))
    assert set(windlass.__all__) == set(windlass._HOMES)
    for name in windlass.__all__:
        assert getattr(windlass, name).__name__ == name
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        _ = windlass.Nothing


@pytest.fixture(autouse=True)
def _no_portal_is_left() -> Iterator[None]:
    yield
    assert not [each for each in threading.enumerate() if each.name == "windlass calls"]
