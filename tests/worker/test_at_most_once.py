"""Jobs that are started once at most: their start is recorded before they begin, and nothing starts them again."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from tests.eventually import aeventually
from tests.factory import Rig
from tests.worker.placed import Placed, placed
from windlass import App, AsyncContext, Context, Retry, Snooze
from windlass.bus.protocol import NoWaker
from windlass.config import StoreConfig
from windlass.errors import InvalidJob, Misconfigured
from windlass.model import Decision, Job, Status, needs_decision, start_key
from windlass.store.store import Store
from windlass.worker.aftermath import End, see_off
from windlass.worker.slots import Begun, State

Sql = asyncpg.Connection

app = App("once", config=StoreConfig(database_url="postgresql://nobody@localhost:1/none"))
began: list[tuple[str, int]] = []
HOW: dict[str, Any] = {
    "raises": ValueError("no"),
    "retries": Retry(0),
    "snoozes": Snooze(0),
    "times out": TimeoutError("no answer"),
}


@app.job(at_most_once=True)
async def once(ctx: AsyncContext, how: str = "fine") -> str:
    began.append((how, ctx.attempt))
    if how == "hangs":
        await asyncio.sleep(60)
    if how in HOW:
        raise HOW[how]
    return "done"


@app.job(at_most_once=True)
def once_blocking(ctx: Context, how: str = "fine") -> str:
    began.append((how, ctx.attempt))
    if how in HOW:
        raise HOW[how]
    return "done"


@app.job(at_most_once=True)
async def once_with_effect(ctx: AsyncContext) -> str:
    async with ctx.effect("pay") as effect:
        if effect.needed:
            began.append(("pays", ctx.attempt))
            if ctx.attempt == 1:
                raise TimeoutError("no answer")
    return "done"


@app.job
async def ordinary() -> None: ...


@pytest.fixture
async def site(config: StoreConfig) -> AsyncIterator[Placed]:
    began.clear()
    async with placed(config, app.types) as one:
        yield one


def error_of(job: Job) -> str:
    assert job.error is not None, job
    return job.error.type


async def test_it_runs_and_only_its_start_is_recorded(site: Placed, sql: Sql) -> None:
    for handler in ("once", "once_blocking"):
        assert (await site.run(handler)).result == '"done"'
    await site.run("ordinary")
    assert [row["key"] for row in await sql.fetch("select key from windlass.effect")] == [start_key] * 2


@pytest.mark.parametrize("handler", ["once", "once_blocking"])
@pytest.mark.parametrize(
    ("how", "error"),
    [("raises", "ValueError"), ("retries", "Retry"), ("snoozes", "AtMostOnce"), ("times out", "TimeoutError")],
)
async def test_whatever_its_handler_says_it_is_not_started_again(
    site: Placed, handler: str, how: str, error: str
) -> None:
    job = await site.run(handler, {"how": how}, max_attempts=5)
    assert (job.status, job.attempt, error_of(job)) == (Status.FAILED, 1, error)
    assert began == [(how, 1)]


async def test_one_that_a_shutdown_stops_may_have_run(site: Placed) -> None:
    job_id = await site.enqueue("once", {"how": "hangs"})
    await aeventually(_has_begun)
    site.control.say("release")
    job = await site.reaches(job_id, Status.FAILED)
    assert error_of(job) == "MayHaveRun"


@pytest.mark.parametrize("handler", ["once", "once_blocking"])
async def test_one_whose_earlier_start_is_recorded_does_not_run_until_a_person_retries_it(
    site: Placed, sql: Sql, handler: str
) -> None:
    """As after a crash of the database, a lost lease or a dead machine: whatever became of that attempt."""
    (job,) = await site.store.intake.enqueue([_held_back(handler)])
    await sql.execute(
        "insert into windlass.effect (job_id, key, token, at, attempt, state, if_unknown)"
        " values ($1, $2, gen_random_uuid(), now(), 1, 'intended', 'ask')",
        job.id, start_key,
    )  # fmt: skip
    await site.store.intake.run_now(job.id)
    site.worker.hint()
    failed = await site.reaches(job.id, Status.FAILED)
    assert (error_of(failed), began) == ("MayHaveRun", [])
    await site.store.intake.retry(job.id)
    site.worker.hint()
    await site.reaches(job.id, Status.COMPLETED)
    assert began == [("fine", 2)]


@pytest.mark.parametrize(("decision", "payments"), [("done", 1), ("redo", 2)])
async def test_what_a_person_decides_about_its_effect_starts_it_again(
    site: Placed, sql: Sql, decision: Decision, payments: int
) -> None:
    """Else the decision would only lead to the dead letters, for it has been started."""
    job_id = await site.enqueue("once_with_effect")
    assert (await site.reaches(job_id, Status.HELD, Status.FAILED)).reason == needs_decision
    await site.store.intake.decide(job_id, decision)
    site.worker.hint()
    job = await site.reaches(job_id, Status.COMPLETED, Status.FAILED)
    assert (job.status, job.attempt, len(began)) == (Status.COMPLETED, 2, payments)
    assert await sql.fetchval("select attempt from windlass.effect where key = $1", start_key) == 2


async def test_one_that_goes_back_before_it_began_leaves_no_record(config: StoreConfig, sql: Sql) -> None:
    began.clear()
    async with placed(config, app.types, threads=1) as site:
        first = await site.enqueue("once", {"how": "hangs"})
        await aeventually(_has_begun)
        second = await site.enqueue("once")
        site.control.say("release")
        await site.reaches(first, Status.FAILED)
        assert (await site.reaches(second, Status.READY)).failures == 0
    assert await sql.fetchval("select count(*) from windlass.effect where job_id = $1", second) == 0


async def test_one_whose_worker_died_before_its_start_was_recorded_has_not_begun(rig: Rig, store: Store) -> None:
    """The worker has given it a thread, and waited for the database to record the start."""
    await store.upkeep.declare([app.types["once"].declared()])
    await rig.enqueue(2, type="once", max_attempts=1)
    worker = await rig.worker(types=["once"])
    leases = await worker.claim()
    await worker.claims.intend(leases[0], start_key, "ask")
    at_work = [Begun(n, lease.job_id, lease.attempt, 0.0, 60.0, State.BEGUN) for n, lease in enumerate(leases)]
    end = End(worker.id, crashed=True, begun=at_work)
    assert await see_off([end], store.upkeep, store.claims(), NoWaker())
    jobs = [await store.views.job(lease.job_id) for lease in leases]
    assert [(job.status, job.failures) for job in jobs] == [(Status.FAILED, 1), (Status.READY, 0)]


def test_more_than_one_attempt_is_refused_when_it_is_declared() -> None:
    with pytest.raises(Misconfigured, match="at_most_once"):
        App("x").job(at_most_once=True, max_attempts=2)(_nothing)
    assert App("x").job(at_most_once=True, max_attempts=1)(_nothing).max_attempts == 1
    declared = App("x").job(at_most_once=True)(_nothing).declared()
    assert (declared.max_attempts, declared.at_most_once) == (1, True)
    assert App("x").job(_nothing).declared().max_attempts == 3


def test_more_than_one_attempt_is_refused_where_a_job_says_so() -> None:
    with pytest.raises(InvalidJob, match="once_blocking is started once at most"):
        once_blocking.options(max_attempts=2)
    assert once_blocking.options(max_attempts=1, priority=3).options(tags=["a"]).job().max_attempts == 1
    with pytest.raises(InvalidJob, match="max_attempts"):
        once_blocking.options(priority=3).options(max_attempts=2)


async def _has_begun() -> bool:
    return bool(began)


def _nothing() -> None: ...


def _held_back(handler: str) -> Any:
    return app.types[handler].template._replace(payload={}, delay_s=3600.0)
