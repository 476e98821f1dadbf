"""A worker that lives and renews its lease but gets no jobs says so, heals itself, or ends and is replaced."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeAlias
from uuid import UUID

import asyncpg
import pytest

from tests.eventually import aeventually
from tests.faults.node import Node, node
from windlass.model import Job, NewJob, Status
from windlass.store.store import Store
from windlass.worker.worker import EXIT_DEAF

APP = "tests.faults.poison_app:app"
DEAF = "deaf: alive, with room"
QUICK: dict[str, Any] = {
    "app": APP, "threads": 4, "deaf_s": 2, "poll_s": 0.2, "statement_timeout_s": 1, "lease_ttl_s": 3, "heartbeat_s": 0.5,
}  # fmt: skip
Sql: TypeAlias = "asyncpg.Connection[asyncpg.Record]"


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    return tmp_path / "ledger"


async def test_a_worker_whose_claims_hang_says_so_and_is_well_when_they_do_not(
    url: str, store: Store, sql: Sql, ledger: Path
) -> None:
    with node(url, ledger, **QUICK) as here:
        here.ready()
        (worker,) = here.workers
        job_id = await _enqueued_unseen(store)
        async with _locked(store, sql, "lock table windlass.ready in share row exclusive mode"):
            await _says(here, DEAF)
            # Its lease is renewed all the while: to everybody else it looks well.
            assert [one.alive for one in await store.views.workers()] == [True]
        job = await _completes(store, job_id)
        assert [one.pid for one in here.workers] == [worker.pid]
    assert (job.attempt, job.failures) == (1, 0)


async def test_a_worker_that_is_passed_over_a_job_says_so(url: str, store: Store, sql: Sql, ledger: Path) -> None:
    """Its claims are answered, and the answer is wrong."""
    with node(url, ledger, **QUICK) as here:
        here.ready()
        job_id = await _enqueued_unseen(store)
        async with _locked(store, sql, "select from windlass.ready for update"):
            await _says(here, DEAF)
        job = await _completes(store, job_id)
    assert (job.attempt, job.failures) == (1, 0)


async def test_a_worker_whose_claims_keep_failing_ends_non_zero_and_is_replaced(
    url: str, store: Store, sql: Sql, ledger: Path
) -> None:
    with node(url, ledger, **QUICK) as here:
        here.ready()
        (worker,) = here.workers
        busy = await store.intake.enqueue([NewJob("toil", {"seconds": 4})])
        await aeventually(lambda: _is(store, busy[0].id, Status.RUNNING))
        await sql.execute("alter function windlass.claim_v2 rename to claim_v0")
        (waiting,) = await store.intake.enqueue([NewJob("work")])
        await _says(here, "claiming fails, and is tried again.*claim_v2.* does not exist")
        await _says(here, DEAF)
        await _says(here, f"has ended with exit code {EXIT_DEAF}, with 0 jobs under way")
        here.ready(2)
        await sql.execute("alter function windlass.claim_v0 rename to claim_v2")
        jobs = [await _completes(store, one) for one in (busy[0].id, waiting.id)]
        assert here.process.poll() is None
        assert worker.pid not in {one.pid for one in here.workers}
    # What it was at when it went deaf was finished there: nothing was interrupted, and nothing burned.
    assert [(job.attempt, job.failures) for job in jobs] == [(1, 0), (1, 0)]


async def test_a_worker_that_is_fed_from_an_old_backlog_or_held_up_is_not_deaf(
    url: str, store: Store, ledger: Path
) -> None:
    made = await store.intake.enqueue([NewJob("toil", {"seconds": 0.01})] * 1200)
    with node(url, ledger, **QUICK | {"threads": 2, "deaf_s": 1}) as here:
        here.ready()
        jobs = [await _completes(store, made[-1].id, 30)]
        # All that while jobs were there that had waited for longer than it takes to be called deaf.
        assert jobs[0].queue_s is not None
        assert jobs[0].queue_s > 4
        held_up = await store.intake.enqueue([NewJob("hold_interpreter_for", {"seconds": 3})])
        await _completes(store, held_up[0].id, 20)
        (after,) = await store.intake.enqueue([NewJob("work")])
        await _completes(store, after.id)
        assert "deaf" not in here.log.read_text()
        assert len(here.workers) == 1


# What they share. -------------------------------------------------------------------------------------------------------


async def _enqueued_unseen(store: Store) -> UUID:
    """A job in a paused queue: there, and nobody looks at it before `_locked` has its hand on it."""
    await store.intake.set_paused("default", paused=True)
    (made,) = await store.intake.enqueue([NewJob("work")])
    return made.id


@asynccontextmanager
async def _locked(store: Store, sql: Sql, how: str) -> AsyncIterator[None]:
    async with sql.transaction():
        await sql.execute(how)
        await store.intake.set_paused("default", paused=False)
        yield


async def _says(here: Node, what: str) -> None:
    async def said() -> bool:
        return re.search(what, here.log.read_text()) is not None

    await aeventually(said, 20)


async def _is(store: Store, job_id: UUID, status: Status) -> Job | None:
    job = await store.views.job(job_id)
    return job if job.status is status else None


async def _completes(store: Store, job_id: UUID, timeout_s: float = 10) -> Job:
    job = await aeventually(lambda: _is(store, job_id, Status.COMPLETED), timeout_s)
    assert job is not None
    return job
