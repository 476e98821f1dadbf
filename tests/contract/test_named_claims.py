"""The job that a wake-up has named is claimed alone, by the same rules as any other; if it cannot be, the claim is as usual."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, cast

import asyncpg
import pytest

from tests.factory import OnConnection, Rig, WorkerRig
from windlass.lifecycle import Completed
from windlass.model import Lease, NewJob, Status
from windlass.placement import Reservation
from windlass.store.claims import Claims
from windlass.store.postgres import Postgres
from windlass.store.protocol import Ask, Settled
from windlass.store.store import Store

Sql = asyncpg.Connection
Claiming = Callable[..., Awaitable[tuple[list[Lease], list[str]]]]


@pytest.fixture
async def claiming(rig: Rig, sql: Sql) -> AsyncIterator[Claiming]:
    """Claims, and the statements it took. In one transaction, whose time stands still: every job is young, however slow the
    machine; after its commit one can look at what was written."""
    transaction = sql.transaction()
    await transaction.start()
    await sql.fetch("select now()")

    async def claim(worker: WorkerRig, **over: Any) -> tuple[list[Lease], list[str]]:
        ours = OnConnection(rig.store.postgres, sql)
        ask = Ask(worker.id, worker.queues, worker.types, **{"free": worker.threads, **over})
        return await Claims(cast("Postgres", ours)).claim(ask), ours.sent

    yield claim
    await transaction.commit()


async def test_a_named_job_is_claimed_alone_though_others_wait(rig: Rig, claiming: Claiming) -> None:
    worker = await rig.worker(threads=8)
    *_, named = await rig.enqueue(3)
    leases, sent = await claiming(worker, named=named)
    assert [lease.job_id for lease in leases] == [named]
    assert sent == ["claim_named"]


async def test_a_lease_of_a_named_job_says_what_a_lease_of_the_usual_claim_would(rig: Rig, claiming: Claiming) -> None:
    job = NewJob("echo", {"n": 1}, name="nightly", priority=7, thread_demand=3, max_attempts=5, timeout_s=12.5)
    (named,), (usual,) = await rig.store.intake.enqueue([job]), await rig.store.intake.enqueue([job])
    worker = await rig.worker(threads=8)
    (ours,), _ = await claiming(worker, named=named.id)
    (theirs,), sent = await claiming(worker)
    assert sent == ["claim"]
    own = {"job_id", "token", "rank", "waited_s"}
    said = [{name: value for name, value in lease._asdict().items() if name not in own} for lease in (ours, theirs)]
    assert said[0] == said[1]
    assert theirs.job_id == usual.id


@pytest.mark.parametrize(
    "bad",
    [
        "paused",
        "reserved",
        "another's queue",
        "unknown type",
        "too wide",
        "beyond the budget",
        "old",
        "gone",
        "draining",
    ],
)
async def test_a_named_job_that_may_not_be_taken_is_left_to_the_usual_claim(
    rig: Rig, store: Store, sql: Sql, claiming: Claiming, bad: str
) -> None:
    worker = await rig.worker(threads=4, queues=["mine"], types=["echo"])
    fields: dict[str, dict[str, Any]] = {
        "another's queue": {"queue": "theirs"}, "unknown type": {"type": "strange"}, "too wide": {"thread_demand": 5},
        "beyond the budget": {"thread_demand": 3},
    }  # fmt: skip
    (named,) = await rig.enqueue(**{"queue": "mine", **fields.get(bad, {})})
    if bad == "paused":
        await store.intake.set_paused("mine", paused=True)
    elif bad == "reserved":
        (wide,) = await rig.enqueue(queue="mine", thread_demand=4)
        await store.upkeep.reserve([Reservation(worker.id, wide, 4)], ttl_s=60)
    elif bad == "old":
        await sql.execute("update windlass.ready set ready_at = now() - interval '1 s' where job_id = $1", named)
    elif bad == "crashed":  # the usual claim counts how often
        await sql.execute("update windlass.ready set crashed_at = array[now()] where job_id = $1", named)
    elif bad == "gone":
        await store.intake.cancel(named)
    elif bad == "draining":
        await store.upkeep.drain([worker.id])
    leases, sent = await claiming(worker, named=named, **({"budget": 2} if bad == "beyond the budget" else {}))
    assert sent == ["claim_named", "claim"]
    expected = {"reserved": lambda: [wide], "old": lambda: [named], "crashed": lambda: [named]}
    assert [lease.job_id for lease in leases] == expected.get(bad, list)()


async def test_a_named_job_is_counted_as_running_and_settled_by_its_token(rig: Rig, store: Store) -> None:
    worker = await rig.worker()
    (named,) = await rig.enqueue()
    (lease,) = await worker.claim(named=named)
    assert (await store.views.job(named)).status is Status.RUNNING
    assert await store.views.counts() == {("default", "echo", Status.RUNNING): 1}
    assert (await worker.settle(lease, Completed())).of(named) is Settled.ACCEPTED
    assert not await worker.claim(named=named)


async def test_a_named_job_that_somebody_has_locked_is_not_waited_for(rig: Rig, sql: Sql) -> None:
    worker = await rig.worker()
    (named,) = await rig.enqueue()
    async with sql.transaction():
        await sql.execute("select from windlass.ready for update")
        assert await asyncio.wait_for(worker.claim(named=named), 10) == []


async def test_of_two_who_were_told_of_one_job_one_gets_it(rig: Rig) -> None:
    (named,) = await rig.enqueue()
    first, second = await rig.worker(), await rig.worker()
    assert [len(await worker.claim(named=named)) for worker in (first, second)] == [1, 0]
