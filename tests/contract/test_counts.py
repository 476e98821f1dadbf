"""Counts are exact at every moment: before, during and after a fold, and for readers of an older moment."""

import asyncio
import random
from typing import cast

import asyncpg

from tests.factory import OnConnection, Rig
from windlass.lifecycle import Completed, Failed, Lost, Outcome, Released, Snoozed, settle
from windlass.model import Error, NewJob, Status
from windlass.store.postgres import Postgres
from windlass.store.store import Store
from windlass.store.views import Views

Sql = asyncpg.Connection
Counts = dict[tuple[str, str, Status], int]

_NO = Error("E", "m")
_OUTCOMES: list[Outcome] = [
    Completed(),
    Failed(_NO),
    Failed(_NO, final=True),
    Snoozed(9),
    Released(),
    Lost(crashed=True),
]


async def counted_rows(sql: Sql) -> Counts:
    rows = await sql.fetch(
        "select queue, type, status, count(*) as n from ("
        " select queue, type, 'scheduled' as status from windlass.scheduled"
        " union all select queue, type, 'held' from windlass.held"
        " union all select queue, type, 'ready' from windlass.ready"
        " union all select queue, type, 'running' from windlass.running"
        " union all select queue, type, status from windlass.outcome"
        ") every group by queue, type, status"
    )
    return {(row["queue"], row["type"], Status(row["status"])): row["n"] for row in rows}


async def mix(rig: Rig, draw: random.Random, jobs: int = 60) -> None:
    """A bit of everything that moves jobs."""
    store = rig.store
    new = [
        NewJob(draw.choice(["echo", "other"]), queue=draw.choice("abc"), delay_s=draw.choice([None, None, 60]))
        for _ in range(jobs)
    ]
    ids = [answer.id for answer in await store.intake.enqueue(new)]
    worker = await rig.worker(queues=["a", "b", "c"])
    leases = await worker.claim(1, budget=jobs // 2)
    settled = draw.sample(leases, len(leases) * 3 // 4)
    await worker.claims.settle([settle(lease, draw.choice(_OUTCOMES), jitter=0.5) for lease in settled])
    await store.intake.cancel_many(draw.sample(ids, 8))
    await store.intake.retry_many(draw.sample(ids, 20))
    await store.intake.run_now_many(draw.sample(ids, 8))


async def test_counts_are_those_of_the_rows_after_a_random_mix_and_folds(rig: Rig, store: Store, sql: Sql) -> None:
    draw = random.Random(11)
    for _ in range(5):
        await mix(rig, draw)
        truth = await counted_rows(sql)
        assert await store.views.counts() == truth
        assert await store.upkeep.fold_counts()
        assert await store.views.counts() == truth
    assert await sql.fetchval("select count(*) from windlass.counter") == 0
    assert await store.upkeep.fold_counts()
    assert await store.views.counts() == truth
    queues = {queue.name: queue for queue in await store.views.queues()}
    for name in "abc":
        of_queue = {s: sum(n for (q, _, st), n in truth.items() if (q, st) == (name, s)) for s in Status}
        assert queues[name].counts == {status: n for status, n in of_queue.items() if n}
        assert queues[name].depth == of_queue[Status.READY]


async def test_counts_of_jobs_that_are_all_gone_are_left_out(rig: Rig, store: Store) -> None:
    await rig.enqueue(2)
    await store.upkeep.fold_counts()
    worker = await rig.worker()
    await worker.claims.settle([settle(lease, Completed(), jitter=0) for lease in await worker.claim()])
    assert await store.views.counts() == {("default", "echo", Status.COMPLETED): 2}
    await store.upkeep.fold_counts()
    assert await store.views.counts() == {("default", "echo", Status.COMPLETED): 2}


async def test_a_fold_leaves_the_deltas_of_open_transactions_for_later(rig: Rig, store: Store, sql: Sql) -> None:
    await rig.enqueue(3)
    open_one = sql.transaction()
    await open_one.start()
    await store.intake.enqueue([NewJob("echo")] * 4, connection=sql)
    await rig.enqueue(5)
    assert await store.upkeep.fold_counts()
    assert await store.views.counts() == {("default", "echo", Status.READY): 8}
    await rig.enqueue(2)
    await open_one.commit()
    assert await store.views.counts() == {("default", "echo", Status.READY): 14}
    assert await store.upkeep.fold_counts()
    assert await store.views.counts() == {("default", "echo", Status.READY): 14}
    assert await sql.fetchval("select count(*) from windlass.counter") == 0


async def test_deltas_that_were_rolled_back_are_never_counted(rig: Rig, store: Store, sql: Sql) -> None:
    await rig.enqueue(3)
    open_one = sql.transaction()
    await open_one.start()
    await store.intake.enqueue([NewJob("echo")] * 4, connection=sql)
    await store.upkeep.fold_counts()
    await open_one.rollback()
    await store.upkeep.fold_counts()
    assert await store.views.counts() == {("default", "echo", Status.READY): 3}


async def test_a_reader_of_an_older_moment_sees_that_moment_across_folds(rig: Rig, store: Store, sql: Sql) -> None:
    draw = random.Random(5)
    await mix(rig, draw)
    await store.upkeep.fold_counts()
    await mix(rig, draw)
    reader = Views(cast("Postgres", OnConnection(store.postgres, sql)))
    async with sql.transaction(isolation="repeatable_read"):
        then = await reader.counts()
        assert then == await counted_rows(sql)
        for _ in range(2):
            assert await store.upkeep.fold_counts()
            assert await reader.counts() == then
            assert await store.views.counts() == then
        await mix(rig, draw)
        assert await store.upkeep.fold_counts()
        assert await reader.counts() == then
    assert await reader.counts() == await counted_rows(sql) != then


async def test_of_two_folders_at_once_one_folds(rig: Rig, store: Store) -> None:
    await rig.enqueue(5)
    async with store.postgres.transaction() as other:
        assert (await store.postgres.fetch("fold_lock", "windlass", connection=other))[0]["mine"]
        assert await store.upkeep.fold_counts() is False
    answers = await asyncio.gather(*(store.upkeep.fold_counts() for _ in range(6)))
    assert any(answers)
    assert await store.views.counts() == {("default", "echo", Status.READY): 5}


async def test_no_reader_sees_half_a_fold_or_half_a_move(rig: Rig, store: Store) -> None:
    ids = await rig.enqueue(400)
    worker = await rig.worker()
    busy = True

    async def move() -> None:
        nonlocal busy
        try:
            while leases := await worker.claim(1, budget=10):
                await worker.claims.settle([settle(lease, Completed(), jitter=0) for lease in leases])
        finally:
            busy = False

    async def fold() -> None:
        while busy:
            await store.upkeep.fold_counts()

    async def read() -> int:
        reads = 0
        while busy:
            assert sum((await store.views.counts()).values()) == len(ids)
            reads += 1
        return reads

    *_, reads = await asyncio.gather(move(), fold(), fold(), read(), read())
    assert reads
    assert await store.views.counts() == {("default", "echo", Status.COMPLETED): 400}
