"""A single job is handed to a worker that rests with all its threads free, by the commit that stores it."""

import asyncio
import random
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest

from tests.contract.test_hints import Ears
from tests.factory import Rig, WorkerRig
from windlass.leader.chores import reap
from windlass.lifecycle import Completed
from windlass.model import Lease, NewJob, Status
from windlass.placement import Reservation
from windlass.store.postgres import Connection
from windlass.store.protocol import Ear, Settled, channel
from windlass.store.protocol.hand_over import handed
from windlass.store.store import Store

KEY = uuid4()


@pytest.fixture
async def ears(url: str) -> AsyncIterator[Ears]:
    connection = await asyncpg.connect(url)
    ears = Ears(connection)
    await ears.present(KEY)
    yield ears
    await connection.close()


async def rest(
    store: Store, worker: WorkerRig, hand_key: UUID | None = KEY, ear: Ear = Ear.LISTENS, for_s: float = 60
) -> None:
    hints = store.hints.through(None, lambda: ear)
    await hints.rest(
        worker.id, queues=worker.queues, types=worker.types, free=worker.threads, hand_key=hand_key, hand_for_s=for_s
    )


async def hand_over(rig: Rig, ears: Ears, worker: WorkerRig, job: NewJob | None = None) -> Lease:
    """Have a job handed to this worker."""
    await rest(rig.store, worker)
    await ears.to(channel(KEY), channel(worker.id))
    (stored,) = await rig.store.intake.enqueue([job or NewJob("echo")])
    assert stored.woken
    ((name, said),) = await ears.all_heard()
    assert name == channel(KEY)
    lease = handed(said, worker.id)
    assert lease.job_id == stored.id
    return lease


# What is handed over. -------------------------------------------------------------------------------------------------


async def test_a_lease_that_is_handed_over_says_what_one_that_is_claimed_would(rig: Rig, ears: Ears) -> None:
    job = NewJob(
        "echo", {"n": 1, "größe": '\\ "quoted" \u0001 \u2028 👍'}, name="nächtlich", priority=7, thread_demand=3,
        max_attempts=5, timeout_s=12.5, trace="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    )  # fmt: skip
    worker = await rig.worker(threads=8)
    ours = await hand_over(rig, ears, worker, job)
    await rig.store.intake.enqueue([job])
    (theirs,) = await worker.claim(5)
    own = {"job_id", "token", "rank", "waited_s"}
    said = [{name: value for name, value in lease._asdict().items() if name not in own} for lease in (ours, theirs)]
    assert said[0] == said[1]
    assert ours.rank < theirs.rank < ours.rank + 60_000_000


async def test_a_job_that_is_handed_over_runs_and_is_settled_by_its_token(rig: Rig, store: Store, ears: Ears) -> None:
    worker = await rig.worker()
    lease = await hand_over(rig, ears, worker)
    job = await store.views.job(lease.job_id)
    assert (job.status, job.attempt, job.failures, job.worker_id) == (Status.RUNNING, 1, 0, worker.id)
    assert await store.views.counts() == {("default", "echo", Status.RUNNING): 1}
    assert not await worker.claim()
    forged = lease._replace(token=uuid4())
    assert (await worker.settle(forged, Completed())).of(lease.job_id) is Settled.REFUSED
    assert (await worker.settle(lease, Completed())).of(lease.job_id) is Settled.ACCEPTED
    assert await store.views.counts() == {("default", "echo", Status.COMPLETED): 1}


@pytest.mark.usefixtures("ears")
async def test_each_worker_that_rests_is_handed_one_job_the_longest_first(rig: Rig, store: Store) -> None:
    workers = [await rig.worker() for _ in range(3)]
    for worker in workers:
        await rest(store, worker)
    ids = [(await store.intake.enqueue([NewJob("echo")]))[0].id for _ in range(4)]
    jobs = [await store.views.job(job_id) for job_id in ids]
    assert [job.worker_id for job in jobs] == [*(worker.id for worker in workers), None]
    assert [job.status for job in jobs] == [Status.RUNNING] * 3 + [Status.READY]


# What is not. ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reason", "woken"),
    {
        "no key": True, "long silent": True, "away": True, "too long": True, "paused": True, "pops": False, "polls": True, "reserved": False,
        "another's queue": False, "unknown type": False, "too wide": False, "draining": False, "dead": False,
        "lease over": False, "scheduled": False, "tagged": False, "keyed": False,
    }.items(),
)  # fmt: skip
async def test_a_job_that_may_not_be_handed_over_waits(
    rig: Rig, store: Store, sql: Connection, ears: Ears, reason: str, woken: bool
) -> None:
    worker = await rig.worker(threads=4, queues=["mine"], types=["echo"])
    fields: dict[str, dict[str, Any]] = {
        "another's queue": {"queue": "theirs"}, "unknown type": {"type": "strange"}, "too wide": {"thread_demand": 5},
        "too long": {"payload": {"text": "é" * 4_000}}, "scheduled": {"delay_s": 60}, "tagged": {"tags": ["a"]},
        "keyed": {"idempotency_key": "k"},
    }  # fmt: skip
    if reason == "reserved":
        (wide,) = await rig.enqueue(queue="mine", thread_demand=4)
        await store.upkeep.reserve([Reservation(worker.id, wide, 4)], ttl_s=60)
    await rest(
        store, worker, None if reason == "no key" else KEY,
        {"pops": Ear.POPS, "polls": Ear.POLLS}.get(reason, Ear.LISTENS), 0 if reason == "long silent" else 60,
    )  # fmt: skip
    await ears.to(channel(worker.id), channel(KEY))
    if reason == "paused":
        await store.intake.set_paused("mine", paused=True)
    elif reason == "away":
        await ears.absent(KEY)
    elif reason == "draining":
        await store.upkeep.drain([worker.id])
    elif reason == "dead":
        await store.upkeep.bury([worker.id], "crashed")
    elif reason == "lease over":
        await sql.execute("update windlass.worker set lease_until = now() - interval '1 s'")
    job = NewJob(**{"type": "echo", "queue": "mine", **fields.get(reason, {})})
    (stored,) = await store.intake.enqueue([job])
    assert stored.woken is woken
    assert await ears.all_heard() == ([(channel(worker.id), "")] if woken else [])
    assert (await store.views.job(stored.id)).status in (Status.READY, Status.SCHEDULED, Status.HELD)
    assert await sql.fetchval("select count(*) from windlass.running") == 0


async def test_a_repeated_id_is_handed_to_nobody(rig: Rig, store: Store, ears: Ears, sql: Connection) -> None:
    worker = await rig.worker()
    lease = await hand_over(rig, ears, worker)
    await rest(store, worker)
    (again,) = await store.intake.enqueue([NewJob("echo", id=lease.job_id)])
    assert (again.duplicate, again.woken) == (True, False)
    assert await sql.fetchval("select count(*) from windlass.running") == 1
    assert await sql.fetchval("select count(*) from windlass.idle") == 1


@pytest.mark.usefixtures("ears")
@pytest.mark.parametrize("length", [7_000, 7_400, 7_600, 7_800, 8_000, 9_000])
@pytest.mark.parametrize("letter", ["a", "é", "👍", '\\"'])
async def test_a_job_of_any_length_is_stored_and_handed_over_only_if_a_notification_can_tell_it(
    rig: Rig, store: Store, letter: str, length: int
) -> None:
    worker = await rig.worker()
    await rest(store, worker)
    text = letter * (length // len(letter.encode()))
    (stored,) = await store.intake.enqueue([NewJob("echo", text)])
    job = await store.views.job(stored.id)
    assert job.status is (Status.RUNNING if length <= 7_400 and letter != '\\"' else job.status)
    assert job.status is (Status.READY if length >= 8_000 else job.status)


# What goes wrong. -----------------------------------------------------------------------------------------------------


async def test_a_hand_over_that_was_not_told_is_a_stray_that_goes_back(rig: Rig, store: Store, ears: Ears) -> None:
    worker = await rig.worker()
    lease = await hand_over(rig, ears, worker)
    assert await worker.give_back_strays(older_than_s=60) == []
    assert await worker.give_back_strays([lease.job_id]) == []
    assert await worker.give_back_strays() == [lease.job_id]
    (again,) = await worker.claim()
    assert (again.job_id, again.rank, again.failures) == (lease.job_id, lease.rank, 0)
    assert again.token != lease.token
    assert (await worker.settle(lease, Completed())).of(lease.job_id) is Settled.REFUSED


async def test_a_worker_that_rests_is_told_how_many_jobs_it_has_had_for_a_while(
    rig: Rig, store: Store, ears: Ears, sql: Connection
) -> None:
    worker = await rig.worker()
    await hand_over(rig, ears, worker)
    said: dict[str, Any] = {"queues": worker.queues, "types": worker.types, "free": worker.threads}
    assert await store.hints.rest(worker.id, **said) == 0, "it may be on its way"
    await sql.execute("update windlass.running set claimed_at = now() - interval '1 s'")
    assert await store.hints.rest(worker.id, **said) == 1
    assert await store.hints.rest((await rig.worker()).id, **said) == 0


async def test_a_job_handed_to_one_who_dies_goes_back_and_has_burned_nothing(
    rig: Rig, store: Store, ears: Ears
) -> None:
    lease = await hand_over(rig, ears, await rig.worker())
    await store.upkeep.bury([lease.worker_id], "crashed")
    assert await reap(store.upkeep, store.claims(), random.random) == 1
    job = await store.views.job(lease.job_id)
    assert (job.status, job.failures) == (Status.READY, 0)


async def test_a_hand_over_that_commits_after_its_worker_has_expired_is_found(
    rig: Rig, store: Store, sql: Connection, ears: Ears
) -> None:
    """The worker lives when the statement looks, and is dead when it commits: who looks for its jobs in between sees none."""
    worker = await rig.worker()
    await rest(store, worker)
    (job_id,) = store.intake._ids.make(1)
    async with sql.transaction():
        (stored,) = await store.postgres.fetch(
            "enqueue_one", job_id, "echo", None, "default", 0, 1, "{}", 3, 60.0, None, "narrow", None, 1.0, 1, uuid4(),
            connection=sql,
        )  # fmt: skip
        assert stored["woken"]
        await ears.execute("update windlass.worker set lease_until = now() - interval '1 s'")
        assert await reap(store.upkeep, store.claims(), random.random) == 0
    assert (await store.views.job(job_id)).status is Status.RUNNING
    assert await reap(store.upkeep, store.claims(), random.random) == 1
    assert (await store.views.job(job_id)).status is Status.READY


# A worker that has found work by itself is handed none. ---------------------------------------------------------------


async def in_line(sql: Connection) -> list[UUID]:
    return [row["worker_id"] for row in await sql.fetch("select worker_id from windlass.idle order by since")]


async def test_a_worker_that_claims_something_leaves_the_line_and_one_that_claims_nothing_stays(
    rig: Rig, store: Store, sql: Connection
) -> None:
    worker, other = await rig.worker(), await rig.worker(queues=["other"])
    await rest(store, worker)
    await rest(store, other)
    assert await worker.claim(in_line=True) == []
    assert await in_line(sql) == [worker.id, other.id]
    await rig.enqueue(3)
    assert len(await worker.claim(in_line=True)) == 3
    assert await in_line(sql) == [other.id]


async def test_a_claim_does_not_wait_for_who_takes_its_worker_out_of_the_line(
    rig: Rig, store: Store, sql: Connection
) -> None:
    worker = await rig.worker()
    await rest(store, worker)
    await rig.enqueue(2)
    async with sql.transaction():
        await sql.execute("select from windlass.idle for update")
        assert len(await asyncio.wait_for(worker.claim(in_line=True), 10)) == 2
