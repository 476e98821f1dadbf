"""Wake-ups between processes: sent after commits, coalesced, heard on a connection that is watched."""

import asyncio
import logging
from collections.abc import AsyncIterator, Collection, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import psycopg
import pytest

from tests.eventually import aeventually
from tests.factory import Rig
from windlass.bus.postgres import Listener, PostgresWaker
from windlass.bus.protocol import NoWaker, Waker
from windlass.bus.waking import Waking, wants_of
from windlass.config import StoreConfig
from windlass.errors import InvalidJob, Unavailable
from windlass.lifecycle import Completed
from windlass.model import Enqueued, NewJob, NewWorker, Status, Want
from windlass.store.postgres import Connection
from windlass.store.protocol import Hints, Intake, broadcast_channel, channel
from windlass.store.store import Store

JOB = NewJob("echo", {})


@dataclass
class Watched:
    """The store's hints, and how they were used; they fail on purpose while `broken` is set."""

    hints: Hints
    roused: list[list[Want]] = field(default_factory=list)
    named: list[set[UUID]] = field(default_factory=list)
    calls: int = 0
    nudged: list[set[UUID]] = field(default_factory=list)
    in_flight: int = 0
    most_in_flight: int = 0
    broken: Exception | None = None
    gate: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.gate.set()

    async def rest(self, worker_id: UUID, **said: Any) -> int:
        return await self.hints.rest(worker_id, **said)

    @property
    def outdated(self) -> bool:
        return self.hints.outdated

    async def leave(self, worker_id: UUID) -> None:
        await self.hints.leave(worker_id)

    async def rouse(self, wants: Iterable[Want]) -> list[UUID]:
        self.roused.append(list(wants))
        async with self._sending():
            return await self.hints.rouse(self.roused[-1])

    async def wake_workers(self, worker_ids: Collection[UUID]) -> list[UUID]:
        self.named.append(set(worker_ids))
        async with self._sending():
            return await self.hints.wake_workers(worker_ids)

    async def call_all(self, *, connection: Any = None) -> None:
        self.calls += 1
        async with self._sending():
            await self.hints.call_all(connection=connection)

    async def nudge(self, job_ids: Collection[UUID]) -> set[UUID]:
        self.nudged.append(set(job_ids))
        async with self._sending():
            return await self.hints.nudge(job_ids)

    @asynccontextmanager
    async def _sending(self) -> AsyncIterator[None]:
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            await self.gate.wait()
            if self.broken:
                raise self.broken
            yield
        finally:
            self.in_flight -= 1


@pytest.fixture
def watched(store: Store) -> Watched:
    return Watched(store.hints)


@pytest.fixture
async def waker(watched: Watched) -> AsyncIterator[PostgresWaker]:
    opened = PostgresWaker(watched)
    yield opened
    await opened.aclose()


@pytest.fixture
def intake(store: Store, waker: PostgresWaker, watched: Watched) -> Waking:
    return Waking(store.intake, waker, watched)


def test_the_parts_fit_their_protocols(intake: Waking, waker: PostgresWaker, store: Store) -> None:
    _intake: Intake = intake
    _wakers: list[Waker] = [waker, NoWaker()]
    _hints: Hints = store.hints


# Sending. -------------------------------------------------------------------------------------------------------------


async def test_wants_that_come_while_one_is_in_flight_go_together_in_the_next(
    waker: PostgresWaker, watched: Watched
) -> None:
    watched.gate.clear()
    waker.wake([Want("a", "echo")])
    await aeventually(lambda: _true(watched.in_flight == 1))
    for _ in range(10):
        waker.wake([Want("a", "echo", 1, 2), Want("b", "echo")])
    watched.gate.set()
    await waker.aclose()
    assert watched.roused == [[Want("a", "echo")], [Want("a", "echo", 1, 20), Want("b", "echo", 1, 10)]]
    assert watched.most_in_flight == 1


async def test_workers_named_while_one_call_is_in_flight_are_woken_together_in_the_next(
    waker: PostgresWaker, watched: Watched
) -> None:
    first, second, third = uuid4(), uuid4(), uuid4()
    watched.gate.clear()
    waker.wake_workers([first])
    await aeventually(lambda: _true(watched.in_flight == 1))
    waker.wake_workers([second])
    waker.wake_workers([second, third])
    watched.gate.set()
    await waker.aclose()
    assert watched.named == [{first}, {second, third}]


async def test_too_many_kinds_of_wants_at_once_wake_everyone(waker: PostgresWaker, watched: Watched) -> None:
    waker.wake(Want(f"q{n}", "echo") for n in range(1_000))
    await waker.aclose()
    assert (watched.roused, watched.calls) == ([], 1)


async def test_submitters_at_once_send_no_more_hints_than_commits_and_one_at_a_time(
    intake: Waking, waker: PostgresWaker, watched: Watched
) -> None:
    async def submit() -> None:
        for _ in range(20):
            await intake.enqueue([JOB])

    await asyncio.gather(*(submit() for _ in range(32)))
    await waker.aclose()
    assert sum(want.count for wants in watched.roused for want in wants) == 640
    assert len(watched.roused) < 640
    assert watched.most_in_flight == 1


@pytest.mark.parametrize("problem", [Unavailable("away"), ZeroDivisionError("a fault of ours")])
async def test_a_waker_that_cannot_send_says_so_once_and_submitters_do_not_notice(
    intake: Waking, waker: PostgresWaker, watched: Watched, caplog: pytest.LogCaptureFixture, problem: Exception
) -> None:
    caplog.set_level(logging.INFO, logger="windlass")
    for broken in (problem, problem, None, None):
        watched.broken = broken
        await intake.enqueue([JOB])
        await waker.aclose()
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
    assert (caplog.records[0].exc_info is not None) == isinstance(problem, ZeroDivisionError)


async def test_closing_gives_up_on_hints_that_cannot_be_sent_in_time(waker: PostgresWaker, watched: Watched) -> None:
    watched.gate.clear()
    waker.wake([Want("a", "echo")])
    async with asyncio.timeout(5):
        await waker.aclose(timeout_s=0.01)
    assert watched.in_flight == 0


@pytest.mark.parametrize("begun", [True, False])
async def test_what_a_cancelled_task_had_in_hand_is_sent_at_the_close(
    waker: PostgresWaker, watched: Watched, begun: bool
) -> None:
    watched.gate.clear()
    job_id = uuid4()
    waker.nudge([job_id])
    if begun:
        await aeventually(lambda: _true(watched.in_flight == 1))
    waker.wake([Want("a", "echo")])
    for task in asyncio.all_tasks():  # as the end of a loop does
        if task.get_name() == "windlass wake-ups":
            task.cancel()
    watched.gate.set()
    await waker.aclose()
    assert watched.nudged == [{job_id}] * (1 + begun)
    assert watched.roused == [[Want("a", "echo")]]


async def test_a_waker_sends_again_after_its_task_was_cancelled(waker: PostgresWaker, watched: Watched) -> None:
    waker.wake([Want("a", "echo")])
    for task in asyncio.all_tasks():
        if task.get_name() == "windlass wake-ups":
            task.cancel()
            await asyncio.wait([task])
    waker.wake([Want("a", "echo")])
    await aeventually(lambda: _true(watched.roused == [[Want("a", "echo", 1, 2)]]))


# What is hinted. ------------------------------------------------------------------------------------------------------


def test_jobs_for_later_duplicates_and_errors_are_no_wants() -> None:
    now = datetime.now(UTC)
    jobs = [
        JOB,
        JOB._replace(delay_s=5),
        JOB._replace(delay_s=0),
        JOB._replace(scheduled_at=now + timedelta(hours=1)),
        JOB._replace(scheduled_at=now - timedelta(hours=1)),
        JOB,
        JOB,
        JOB._replace(thread_demand=2),
    ]
    answers: list[Enqueued | InvalidJob] = [Enqueued(uuid4(), duplicate=False) for _ in jobs]
    answers[5] = Enqueued(uuid4(), duplicate=True)
    answers[6] = InvalidJob("type", "wrong")
    assert wants_of(jobs, answers) == [Want("default", "echo", 1, 3), Want("default", "echo", 2, 1)]


async def test_an_enqueued_job_wakes_for_itself_and_a_repeated_one_does_not(
    intake: Waking, waker: PostgresWaker, watched: Watched
) -> None:
    keyed = JOB._replace(idempotency_key="once")
    await intake.enqueue([keyed])
    await intake.enqueue([keyed])
    await intake.enqueue_each([keyed, JOB._replace(queue="q"), JOB._replace(type="")])
    await waker.aclose()
    assert watched.roused == [[Want("default", "echo")], [Want("q", "echo")]]


async def test_in_a_callers_transaction_every_worker_is_called_when_it_commits(
    intake: Waking, waker: PostgresWaker, watched: Watched, sql: Connection, url: str
) -> None:
    listening = await asyncpg.connect(url)
    heard: list[str] = []
    await listening.add_listener(broadcast_channel("windlass"), lambda *said: heard.append(str(said[2])))
    async with sql.transaction():
        await intake.enqueue([JOB], connection=sql)
        await intake.enqueue([JOB, JOB], connection=sql)
        await listening.execute("select")
        assert heard == []
    await aeventually(lambda: _true(heard))
    assert heard == ["windlass_all"]
    await waker.aclose()
    assert watched.roused == []
    await listening.close()


async def test_a_callers_psycopg_transaction_carries_the_hint_too(intake: Waking, url: str) -> None:
    listening = await asyncpg.connect(url)
    heard: list[str] = []
    await listening.add_listener(broadcast_channel("windlass"), lambda *said: heard.append(str(said[2])))
    async with await psycopg.AsyncConnection.connect(url) as connection, connection.transaction():
        await intake.enqueue([JOB], connection=connection)
    await aeventually(lambda: _true(heard == ["windlass_all"]))
    await listening.close()


async def test_only_cancels_of_running_jobs_are_passed_on(
    intake: Waking, waker: PostgresWaker, watched: Watched, rig: Rig
) -> None:
    running = [await rig.job(Status.RUNNING) for _ in range(2)]
    await intake.cancel(await rig.job(Status.READY))
    await intake.cancel(running[0])
    await intake.cancel_many([*running, await rig.job(Status.READY)])
    await waker.aclose()
    assert set().union(*watched.nudged) == set(running)


async def test_what_is_made_ready_by_a_person_calls_everyone(
    intake: Waking, waker: PostgresWaker, watched: Watched, rig: Rig
) -> None:
    finished, later = await rig.job(Status.FAILED), await rig.job(Status.SCHEDULED)
    actions: list[Any] = [
        lambda: intake.retry(finished),
        lambda: intake.run_now(later),
        lambda: intake.set_paused("default", paused=False),
    ]
    for n, act in enumerate(actions, start=1):
        await act()
        await waker.aclose()
        assert watched.calls == n
    await intake.set_paused("default", paused=True)
    await intake.retry_many([uuid4()])
    await intake.run_now_many([uuid4()])
    await waker.aclose()
    assert watched.calls == 3


# Hearing. -------------------------------------------------------------------------------------------------------------


async def test_a_worker_at_rest_hears_of_a_job_and_its_supervisor_of_a_cancel(
    config: StoreConfig, intake: Waking, rig: Rig
) -> None:
    supervisor = uuid4()
    worker = await rig.worker()
    new = NewWorker(uuid4(), "supervised", 1, ["supervised"], ["echo"], supervisor)
    await rig.store.upkeep.register(new, lease_ttl_s=60)
    heard: list[tuple[str, str]] = []
    channels = [channel(worker.id), channel(supervisor)]
    async with Listener(config, channels, lambda *hint: heard.append(hint)) as listener:
        assert listener.listening
        await rig.store.hints.rest(worker.id, queues=worker.queues, types=worker.types, free=8)
        await intake.enqueue([JOB])
        await aeventually(lambda: _true(heard == [(channel(worker.id), "")]))
        (job_id,) = await rig.enqueue(queue="supervised")
        supervised = replace(worker, id=new.id, queues=["supervised"], claims=rig.store.claims())
        (lease,) = await supervised.claim(1)
        await intake.cancel(job_id)
        await aeventually(lambda: _true(heard[1:] == [(channel(supervisor), "cancel")]))
        await supervised.settle(lease, Completed())
    assert not listener.listening


async def test_a_listener_whose_connection_is_ended_says_so_comes_back_and_tells(
    config: StoreConfig, store: Store, sql: Connection, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="windlass")
    heard: list[tuple[str, str]] = []
    async with Listener(config, ["windlass_all", "other"], lambda *hint: heard.append(hint)) as listener:
        for n in range(1, 4):
            await sql.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity where query ilike '%pg_notify($1%' and pid <> pg_backend_pid()"
            )
            back = [("windlass_all", "reconnected"), ("other", "reconnected")] * n
            await aeventually(lambda back=back: _true(heard == back and listener.listening))  # type: ignore[misc]
        heard.clear()
        await store.hints.call_all()
        await aeventually(lambda: _true(heard == [("windlass_all", "")]))
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"] * 3


async def test_a_listener_that_finds_no_server_lets_its_owner_start_and_goes_on_trying(
    caplog: pytest.LogCaptureFixture,
) -> None:
    nowhere = StoreConfig(database_url="postgresql://nobody@127.0.0.1:1/none")
    async with asyncio.timeout(5), Listener(nowhere, ["a"], lambda *_: None) as listener:
        assert not listener.listening
    assert len(caplog.records) == 1


async def test_a_listener_that_is_cancelled_as_it_begins_leaves_no_task() -> None:
    async def swallow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async with await asyncio.start_server(swallow, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        silent = StoreConfig(database_url=f"postgresql://nobody@127.0.0.1:{port}/none")
        entering = asyncio.create_task(Listener(silent, ["a"], lambda *_: None).__aenter__())
        await aeventually(lambda: _true("windlass listener" in _tasks()))
        entering.cancel()
        await asyncio.wait([entering])
        assert entering.cancelled()
        assert "windlass listener" not in _tasks()


@pytest.mark.parametrize("turns", range(4))
async def test_a_listener_whose_connection_is_lost_as_its_block_ends_ends_too(config: StoreConfig, turns: int) -> None:
    async with asyncio.timeout(10):
        async with Listener(config, ["a"], lambda *_: None) as listener:
            assert listener.listening
            await asyncio.sleep(0)  # it waits for the next probe now
            listener._lose(None)
            for _ in range(turns):  # of the loop, between the loss and the end
                await asyncio.sleep(0)


async def test_a_hint_that_cannot_be_followed_is_logged_and_costs_nothing(
    config: StoreConfig, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    heard: list[str] = []

    def stumble(_channel: str, payload: str) -> None:
        heard.append(payload)
        raise ZeroDivisionError

    async with Listener(config, ["windlass_all"], stumble) as listener:
        for n in (1, 2):
            await store.hints.call_all()
            await aeventually(lambda n=n: _true(len(heard) == n))  # type: ignore[misc]
        assert listener.listening
    assert len(caplog.records) == 2


async def _true(value: object) -> bool:
    return bool(value)


def _tasks() -> set[str]:
    return {task.get_name() for task in asyncio.all_tasks()}
