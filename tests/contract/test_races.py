"""The races that were reproduced against the design, each held open on real connections at its worst moment."""

import asyncio
import random
from uuid import uuid4

import pytest

from tests.contract.holding import held_claim, waits_for_lock
from tests.factory import Rig
from windlass.errors import KeyBusy, NotPossible, Unavailable
from windlass.leader.chores import reap
from windlass.lifecycle import Completed, Failed, Outcome, Released, error_document, settle
from windlass.model import Enqueued, Error, NewJob, RetryPolicy, Status
from windlass.store.postgres import Connection
from windlass.store.protocol import Settled
from windlass.store.store import Store

CANCELLED = error_document(Error("Cancelled", "on request"))


async def test_a_claim_that_commits_after_the_reap_is_reaped_by_the_next_tick(
    rig: Rig, store: Store, sql: Connection
) -> None:
    worker = await rig.worker()
    (job_id,) = await rig.enqueue()
    async with held_claim(sql, worker) as claimed:
        assert [row["job_id"] for row in claimed] == [job_id]
        await store.upkeep.bury([worker.id], "crashed")
        assert await reap(store.upkeep, store.claims(), random.random) == 0
    assert await rig.status(job_id) is Status.RUNNING
    assert await reap(store.upkeep, store.claims(), random.random) == 1
    assert await rig.status(job_id) is Status.READY


async def test_a_claim_whose_answer_was_lost_is_given_back_and_what_is_held_stays(rig: Rig, store: Store) -> None:
    worker = await rig.worker()
    lost, kept = await rig.enqueue(2)
    first = await worker.claim(free=1)
    second = await worker.claim(free=1)
    assert [lease.job_id for lease in (*first, *second)] == [lost, kept]
    assert await worker.give_back_strays([kept]) == [lost]
    assert await rig.status(lost) is Status.READY
    assert await rig.status(kept) is Status.RUNNING
    assert (await worker.settle(first[0], Completed())).of(lost) is Settled.REFUSED


async def test_a_young_claim_is_not_taken_for_a_stray(rig: Rig) -> None:
    worker = await rig.worker()
    await rig.enqueue()
    await worker.claim()
    assert await worker.give_back_strays(older_than_s=5) == []


async def test_a_cancel_during_a_claim_finds_the_job_on_its_other_side(rig: Rig, store: Store, sql: Connection) -> None:
    worker = await rig.worker()
    (job_id,) = await rig.enqueue()
    async with held_claim(sql, worker):
        cancel = asyncio.create_task(store.intake.cancel(job_id))
        await waits_for_lock(store)
    assert await cancel is Status.RUNNING
    assert list((await store.upkeep.cancels([worker.id]))[worker.id]) == [job_id]


async def test_a_claim_during_a_cancel_passes_the_job_by(rig: Rig, store: Store, sql: Connection) -> None:
    worker = await rig.worker()
    cancelled, other = await rig.enqueue(2)
    async with sql.transaction():
        await sql.fetch(store.postgres.sql["cancel"], [cancelled], CANCELLED, True)
        assert [lease.job_id for lease in await worker.claim()] == [other]
    assert await rig.status(cancelled) is Status.CANCELLED


async def test_of_two_retries_at_once_one_is_told_the_job_is_ready(rig: Rig, store: Store, sql: Connection) -> None:
    job_id = await rig.job(Status.FAILED)
    async with sql.transaction():
        await sql.fetch(store.postgres.sql["retry"], [job_id], 60.0, ["failed"])
        second = asyncio.create_task(store.intake.retry(job_id))
        await waits_for_lock(store)
    with pytest.raises(NotPossible, match="is ready"):
        await second
    assert len(await store.views.attempts(job_id)) == 1


async def test_many_retries_of_many_jobs_at_once_revive_each_once(rig: Rig, store: Store) -> None:
    worker = await rig.worker(threads=50)
    await rig.enqueue(50)
    leases = await worker.claim()
    await worker.claims.settle([settle(lease, Failed(Error("E", "m"), final=True), jitter=0) for lease in leases])
    ids = [lease.job_id for lease in leases]
    answers = await asyncio.gather(*(store.intake.retry_many(random.sample(ids, 50)) for _ in range(4)))
    for job_id in ids:
        assert sorted(isinstance(answer[job_id], Status) for answer in answers) == [False, False, False, True]


async def test_settling_against_bulk_cancel_loses_nothing_and_wedges_nothing(rig: Rig, store: Store) -> None:
    worker = await rig.worker(threads=400)
    ids = await rig.enqueue(400)
    leases = await worker.claim()
    assert len(leases) == 400
    shuffled = random.Random(7).sample(leases, 400)
    outcomes: list[Outcome] = [Completed(), Failed(Error("E", "m")), Released()]
    settlements = [settle(lease, outcomes[n % 3], jitter=0.5) for n, lease in enumerate(shuffled)]
    batches = [settlements[n::8] for n in range(8)]
    receipts, cancels = await asyncio.gather(
        asyncio.gather(*(store.claims().settle(batch) for batch in batches)),
        asyncio.gather(*(store.intake.cancel_many(random.Random(n).sample(ids, 400)) for n in range(4))),
    )
    assert sum(len(receipt.moved) for receipt in receipts) == 400
    statuses = {await rig.status(job_id) for job_id in ids}
    assert statuses <= {Status.COMPLETED, Status.CANCELLED}
    for answers in cancels:
        assert set(answers) == set(ids)


async def test_two_reapers_and_a_late_settle_finish_a_job_once(rig: Rig, store: Store) -> None:
    worker = await rig.worker(threads=100)
    await rig.enqueue(100)
    leases = await worker.claim()
    await store.upkeep.bury([worker.id], "crashed")
    late = worker.claims.settle([settle(lease, Completed(), jitter=0) for lease in leases])
    first, second, receipt = await asyncio.gather(
        reap(store.upkeep, store.claims(), random.random), reap(store.upkeep, store.claims(), random.random), late
    )
    assert first + second + len(receipt.moved) == 100
    assert len(receipt.refused) == first + second


async def test_a_promotion_during_a_cancel_leaves_the_job_cancelled(rig: Rig, store: Store, sql: Connection) -> None:
    job_id = await rig.job(Status.SCHEDULED)
    await sql.execute("update windlass.scheduled set ready_at = now() - interval '1 s'")
    async with sql.transaction():
        await sql.fetch(store.postgres.sql["cancel"], [job_id], CANCELLED, True)
        assert await store.upkeep.promote() == []
    assert await rig.status(job_id) is Status.CANCELLED


async def test_a_cancel_during_a_promotion_finds_the_job_ready(rig: Rig, store: Store, sql: Connection) -> None:
    job_id = await rig.job(Status.SCHEDULED)
    async with sql.transaction():
        await sql.fetch(store.postgres.sql["run_now"], [job_id])
        cancel = asyncio.create_task(store.intake.cancel(job_id))
        await waits_for_lock(store)
    assert await cancel is Status.CANCELLED


async def test_a_settle_during_a_reap_is_refused_and_the_job_runs_again(
    rig: Rig, store: Store, sql: Connection
) -> None:
    worker = await rig.worker()
    await rig.enqueue()
    (lease,) = await worker.claim()
    columns = zip(settle(lease, Released(), jitter=0), strict=True)
    async with sql.transaction():
        await sql.fetch(store.postgres.sql["settle"], *columns)
        late = asyncio.create_task(worker.settle(lease, Completed()))
        await waits_for_lock(store)
    assert (await late).of(lease.job_id) is Settled.REFUSED
    assert await rig.status(lease.job_id) is Status.READY


async def test_a_keyed_batch_beside_a_transaction_that_holds_one_key_stores_the_others(
    rig: Rig, store: Store, sql: Connection
) -> None:
    jobs = [NewJob("echo", {"n": n}, idempotency_key=f"key-{n}") for n in range(5)]
    async with sql.transaction():
        await store.intake.enqueue([jobs[2]], connection=sql)
        answers = await store.intake.enqueue_each(jobs)
        assert [isinstance(answer, KeyBusy) for answer in answers] == [False, False, True, False, False]
    again = await store.intake.enqueue(jobs)
    assert all(answer.duplicate for answer in again)
    assert len({answer.id for answer in again}) == 5


async def test_a_dead_worker_claims_nothing_even_with_a_token_of_its_own(rig: Rig, store: Store) -> None:
    worker = await rig.worker()
    await rig.enqueue()
    await store.upkeep.bury([worker.id], "left")
    assert await worker.claim() == []
    stranger = await rig.worker()
    object.__setattr__(stranger, "id", uuid4())
    assert await stranger.claim() == []


async def test_one_settlement_that_cannot_be_stored_costs_its_neighbours_nothing(rig: Rig, store: Store) -> None:
    worker = await rig.worker()
    await rig.enqueue(3)
    leases = await worker.claim()
    good, bad, other = (settle(lease, Completed({"n": 1}), jitter=0) for lease in leases)
    receipt = await worker.claims.settle([good, bad._replace(result="{not json", execution_s=float("nan")), other])
    assert set(receipt.moved.values()) == {Status.COMPLETED}
    assert len(receipt.moved) == 3
    job = await store.views.job(bad.job_id)
    assert job.error is not None
    assert (job.result, job.error.type) == (None, "NotStored")
    assert (await store.views.job(other.job_id)).result == '{"n":1}'


async def test_a_second_outcome_is_refused_and_logged_and_costs_its_neighbours_nothing(
    rig: Rig, store: Store, sql: Connection, caplog: pytest.LogCaptureFixture
) -> None:
    worker = await rig.worker()
    doubled, innocent = await rig.enqueue(2)
    leases = await worker.claim()
    await sql.execute(
        "insert into windlass.outcome (job_id, ready_at, finished_at, attempt, failures, status, queue, type)"
        " values ($1, now(), now(), 1, 0, 'completed', 'default', 'echo')",
        doubled,
    )
    receipt = await worker.claims.settle([settle(lease, Completed(), jitter=0) for lease in leases])
    assert (list(receipt.moved), set(receipt.refused)) == ([innocent], {doubled})
    assert str(doubled) in caplog.text
    # The row planted above was not counted; the running one was, and went without a move.
    await sql.execute(
        "insert into windlass.counter (status, queue, type, n)"
        " values ('completed', 'default', 'echo', 1), ('running', 'default', 'echo', -1)"
    )


async def test_a_ready_key_of_a_running_job_does_not_wedge_the_queue(rig: Rig, sql: Connection) -> None:
    worker = await rig.worker()
    await rig.enqueue(2)
    (first,) = await worker.claim(free=1)
    await sql.execute(
        "insert into windlass.ready select job_id, 0, ready_at, attempt, failures, thread_demand, suspect, queue, type"
        " from windlass.running"
    )
    (second,) = await worker.claim(free=1)
    assert second.job_id != first.job_id
    await worker.claims.settle([settle(lease, Completed(), jitter=0) for lease in (first, second)])


async def test_a_settle_that_is_cancelled_keeps_the_result_for_the_next_try(
    rig: Rig, store: Store, sql: Connection
) -> None:
    worker = await rig.worker()
    await rig.enqueue()
    (lease,) = await worker.claim()
    async with sql.transaction():
        await sql.execute("update windlass.running set rank = rank")  # stands in the way
        settling = asyncio.create_task(worker.settle(lease, Completed({"n": 1})))
        await waits_for_lock(store)
        await sql.execute(
            "select pg_cancel_backend(pid) from pg_stat_activity"
            " where datname = current_database() and wait_event_type = 'Lock'"
        )
        with pytest.raises(Unavailable):
            await settling
    await worker.settle(lease, Completed({"n": 1}))
    assert (await store.views.job(lease.job_id)).result == '{"n":1}'


async def test_batches_larger_than_a_message_may_be_are_written_in_parts(
    rig: Rig, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("windlass.store.claims._BATCH_CHARS_MAX", 1_000)
    monkeypatch.setattr("windlass.store.rows._PAGE_CHARS", 1_000)
    worker = await rig.worker(threads=20)
    ids = await rig.enqueue(20, payload="x" * 300)
    leases = await worker.claim()
    assert [lease.job_id for lease in leases] == ids
    receipt = await worker.claims.settle([settle(lease, Completed("y" * 300), jitter=0) for lease in leases])
    assert len(receipt.moved) == 20


async def test_the_same_body_in_other_words_is_the_same(store: Store) -> None:
    job = NewJob("echo", {"a": 1, "b": 2}, idempotency_key="k", timeout_s=60, retry=RetryPolicy(base_s=1))
    (first,) = await store.intake.enqueue([job])
    other = job._replace(payload={"b": 2, "a": 1}, timeout_s=60.0, retry=RetryPolicy(base_s=1.0))
    assert await store.intake.enqueue([other]) == [Enqueued(first.id, duplicate=True)]
    named = other._replace(idempotency_key=None, id=first.id)
    assert await store.intake.enqueue([named]) == [Enqueued(first.id, duplicate=True)]
