"""Handlers that do not stop when told to: each is stopped all the same, and its threads come back.

One node serves all tests but the last: what one handler has done to it, the next ones must not feel.
"""

import asyncio
from collections import Counter
from collections.abc import Iterator
from uuid import UUID, uuid4

import asyncpg
import psutil
import pytest

from tests.conftest import database_url
from tests.eventually import aeventually
from tests.faults.ledger import Entry, entries
from tests.faults.node import Node, node
from tests.faults.poison_app import STUBBORN
from tests.pressure import Stopwatch
from windlass.embedded.postgres import EmbeddedPostgres
from windlass.model import FINISHED, Job, NewJob, RetryPolicy, Status, Worker
from windlass.store.store import Store

APP = "tests.faults.poison_app:app"
PROCESSES, THREADS = 2, 4
GRACE_S = 0.4
TIMEOUT_S = 0.3
LATE_S = 2.0
SETTINGS = {
    "app": APP, "processes": PROCESSES, "threads": THREADS, "stop_ask_s": 0.1, "stop_grace_s": GRACE_S,
    "lease_ttl_s": 3, "heartbeat_s": 0.3,
}  # fmt: skip


@pytest.fixture(scope="module")
def url(postgres_server: EmbeddedPostgres) -> str:
    """One database for all of them. It goes with the server."""
    name = f"test_{uuid4().hex[:12]}"

    async def make() -> None:
        admin = await asyncpg.connect(postgres_server.url)
        await admin.execute(f"create database {name} template windlass_template strategy wal_log")
        await admin.close()

    asyncio.run(make())
    return database_url(postgres_server.url, name)


@pytest.fixture(scope="module")
def here(url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    with node(url, tmp_path_factory.mktemp("stubborn") / "ledger", **SETTINGS) as made:
        made.ready(PROCESSES)
        yield made


@pytest.mark.parametrize("handler", STUBBORN)
async def test_a_job_past_its_timeout_is_stopped_and_never_runs_twice_at_once(
    store: Store, here: Node, handler: str
) -> None:
    neighbours = await _neighbours(store)
    watch = Stopwatch()
    (made,) = await store.intake.enqueue(
        [NewJob(handler, timeout_s=TIMEOUT_S, max_attempts=2, retry=RetryPolicy(base_s=0.05))]
    )
    job = await _finishes(store, made.id)
    assert (job.status, job.failures) == (Status.FAILED, 2)
    assert job.error is not None
    assert job.error.type == "TimedOut"
    for attempt in await store.views.attempts(job.id):
        if attempt.status == "failed":
            assert attempt.started_at is not None
            took_s = (attempt.ended_at - attempt.started_at).total_seconds()
            assert TIMEOUT_S <= took_s <= TIMEOUT_S + GRACE_S + LATE_S + watch.waited_s
    await _threads_are_back(store, here, job, neighbours)


@pytest.mark.parametrize("handler", STUBBORN)
async def test_a_cancelled_job_is_stopped(store: Store, here: Node, handler: str) -> None:
    neighbours = await _neighbours(store)
    (made,) = await store.intake.enqueue([NewJob(handler)])
    await aeventually(lambda: _begun(here, made.id))
    watch = Stopwatch()
    await store.intake.cancel(made.id)
    await store.hints.nudge([made.id])
    job = await _finishes(store, made.id)
    assert watch.free_s <= GRACE_S + LATE_S
    assert (job.status, job.failures) == (Status.CANCELLED, 0)
    await _threads_are_back(store, here, job, neighbours)


async def test_threads_that_cannot_be_freed_are_shown_as_lost_until_the_neighbours_are_done(
    store: Store, here: Node
) -> None:
    neighbours = [one.id for one in await store.intake.enqueue([NewJob("toil", {"seconds": 3})] * 6)]
    (made,) = await store.intake.enqueue([NewJob("sleep_on", timeout_s=TIMEOUT_S, max_attempts=1)])

    async def lost() -> list[Worker]:
        return [worker for worker in await store.views.workers() if worker.alive and worker.lost_threads]

    (worker,) = await aeventually(lost)
    assert (worker.lost_threads, worker.draining or worker.jobs > 1) == (1, True)
    assert (await store.views.job(made.id)).status is Status.RUNNING  # not to be tried again while it may still run
    job = await _finishes(store, made.id)
    assert (job.status, job.failures) == (Status.FAILED, 1)
    # The worker it was in was let finish the others first.
    await _threads_are_back(store, here, job, neighbours)
    started = Counter(entry.job_id for entry in entries(here.ledger) if entry.what == "start")
    assert [started[one] for one in neighbours] == [1] * len(neighbours)
    assert worker.id not in {one.id for one in await store.views.workers() if one.alive}


async def test_a_handler_that_holds_the_interpreter_for_two_leases_costs_no_lease(store: Store, here: Node) -> None:
    await _whole(store)
    before = {worker.id for worker in await store.views.workers() if worker.alive}
    (made,) = await store.intake.enqueue([NewJob("hold_interpreter_for", {"seconds": 7})])
    job = await _finishes(store, made.id, 40)
    assert (job.status, job.attempt, job.failures) == (Status.COMPLETED, 1, 0)
    assert job.result is not None
    assert float(job.result) > 6, "it held the interpreter for less than two leases"
    assert [attempt.status for attempt in await store.views.attempts(job.id)] == ["completed"]
    assert {worker.id for worker in await store.views.workers() if worker.alive} == before


# What they share. -------------------------------------------------------------------------------------------------------


async def _neighbours(store: Store) -> list[UUID]:
    """Enough to be on both workers, before and after."""
    jobs = [NewJob(("work", "toil")[n % 2], {"seconds": 0.3}) for n in range(6)]
    return [one.id for one in await store.intake.enqueue(jobs)]


async def _begun(here: Node, job_id: UUID) -> bool:
    return any(entry.job_id == job_id for entry in entries(here.ledger))


async def _finishes(store: Store, job_id: UUID, timeout_s: float = 20) -> Job:
    async def finished() -> Job | None:
        job = await store.views.job(job_id)
        return job if job.status in FINISHED else None

    job = await aeventually(finished, timeout_s)
    assert job is not None
    return job


async def _whole(store: Store) -> None:
    """All threads are there and free."""

    async def whole() -> bool:
        living = [worker for worker in await store.views.workers() if worker.alive and not worker.draining]
        assert [worker.threads for worker in living] == [THREADS] * PROCESSES, living
        return not any(worker.lost_threads or worker.busy_threads for worker in living)

    await aeventually(whole, 20)


async def _threads_are_back(store: Store, here: Node, job: Job, neighbours: list[UUID]) -> None:
    """The neighbours felt nothing; the handler was let out, or its process was ended, which the log says; and the node
    is as before."""
    for one in neighbours:
        neighbour = await _finishes(store, one)
        assert neighbour.status is Status.COMPLETED
        assert (
            neighbour.failures <= 1
        )  # one that was claimed with the stubborn job has begun by then, and dies with its worker
    await _whole(store)
    ours = [entry for entry in entries(here.ledger) if entry.job_id == job.id]
    assert not [entry for entry in ours if entry.what == "overlap"]
    ended = {entry.attempt for entry in ours if entry.what == "end"}
    for entry in ours:
        if entry.what == "start" and entry.attempt not in ended:
            _was_given_up(here, entry)


def _was_given_up(here: Node, entry: Entry) -> None:
    log = here.log.read_text()
    lost = f"job {entry.job_id}" in log and "threads are lost until this worker is replaced" in log
    killed = f"job {entry.job_id} was to stop" in log
    assert lost or killed, log
    assert not psutil.pid_exists(entry.pid)
