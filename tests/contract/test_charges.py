"""What counts against a quota is what is unfinished, no more and no less."""

import asyncio

import asyncpg
import pytest

from tests.factory import Rig
from windlass.errors import UserNotFound
from windlass.lifecycle import Completed, Failed, Snoozed
from windlass.model import Error, NewJob, Owner
from windlass.quotas import Submitter, Use
from windlass.store.ids import Ids
from windlass.store.protocol import USER
from windlass.store.store import Store

Sql = asyncpg.Connection
SHOP = "key:shop"
OWNER = Owner(subject=SHOP)


async def charges(sql: Sql) -> int:
    count: int = await sql.fetchval("select count(*) from windlass.charge")
    return count


async def test_jobs_count_until_they_have_finished(rig: Rig, store: Store, sql: Sql) -> None:
    await rig.enqueue(2, owner=OWNER, thread_demand=3)
    await rig.enqueue(owner=OWNER, delay_s=3600)
    await rig.enqueue(5)  # nobody's
    await rig.enqueue(5, owner=Owner(subject="key:other"))
    assert await store.accounts.use(SHOP) == Use(waiting=3, threads=7)
    worker = await rig.worker(threads=8)
    leases = [lease for lease in await worker.claim() if lease.thread_demand == 3]
    assert await store.accounts.use(SHOP) == Use(waiting=1, threads=7)
    await worker.settle(leases[0], Completed())
    assert await store.accounts.use(SHOP) == Use(waiting=1, threads=4)
    await worker.settle(leases[1], Failed(Error("E", "no")))  # it backs off
    assert await store.accounts.use(SHOP) == Use(waiting=2, threads=4)
    assert await charges(sql) == 2 + 5


async def test_a_snoozed_job_counts_as_one_that_waits(rig: Rig, store: Store) -> None:
    await rig.enqueue(owner=OWNER)
    worker = await rig.worker()
    (lease,) = await worker.claim()
    await worker.settle(lease, Snoozed(3600))
    assert await store.accounts.use(SHOP) == Use(waiting=1, threads=1)


async def test_a_repeated_submission_counts_once(store: Store, sql: Sql) -> None:
    owner = Owner("shop", SHOP)
    (job_id,) = Ids(store.postgres.now_ms).make(1)
    batch = [NewJob("echo", idempotency_key="k", owner=owner), NewJob("echo", id=job_id, owner=owner)]
    for _ in range(3):
        await store.intake.enqueue(batch)
        await store.intake.enqueue_each(batch)
    assert await store.accounts.use(SHOP) == Use(waiting=2, threads=2)
    assert await charges(sql) == 2


async def test_what_is_not_stored_does_not_count(store: Store, sql: Sql) -> None:
    await store.intake.enqueue([NewJob("echo", 1, idempotency_key="k")])
    answers = await store.intake.enqueue_each(
        [NewJob("echo", 2, idempotency_key="k"), NewJob("echo", owner=OWNER), NewJob("echo", 1, idempotency_key="k")]
    )
    assert [type(one).__name__ for one in answers] == ["KeyReused", "Enqueued", "Enqueued"]
    assert await store.accounts.use(SHOP) == Use(1, 1)


async def test_counts_at_the_same_time_agree_and_do_not_stop_each_other(rig: Rig, store: Store, sql: Sql) -> None:
    ids = await rig.enqueue(300, owner=OWNER)
    await store.intake.cancel_many(ids[:200])
    counted = await asyncio.gather(*(store.accounts.use(SHOP) for _ in range(8)))
    assert set(counted) == {Use(100, 100)}
    await store.accounts.use(SHOP)
    assert await charges(sql) == 100


async def test_the_leader_forgets_the_finished_jobs_of_those_who_submit_no_more(
    rig: Rig, store: Store, sql: Sql
) -> None:
    for subject in ("key:a", "key:b", "key:c"):
        done, _ = await rig.enqueue(2, owner=Owner(subject=subject))
        await store.intake.cancel(done)
    await store.upkeep.sweep_charges()
    assert await charges(sql) == 3


async def test_quotas_and_a_namespace_are_kept_apart_from_each_other(store: Store) -> None:
    accounts = store.accounts
    await accounts.set_namespace(SHOP, "team")
    await accounts.set_quota(Submitter(SHOP, waiting_max=5, timeout_s_max=1.5))
    assert await accounts.submitters() == {SHOP: Submitter(SHOP, "team", waiting_max=5, timeout_s_max=1.5)}
    await accounts.set_quota(Submitter(SHOP, threads_max=2, thread_demand_max=1, submissions_per_s=0.5))
    await accounts.set_namespace(SHOP, None)
    assert await accounts.submitters() == {
        SHOP: Submitter(SHOP, threads_max=2, thread_demand_max=1, submissions_per_s=0.5)
    }
    await accounts.set_quota(Submitter(SHOP))
    assert await accounts.submitters() == {}


async def test_the_quotas_of_a_user_go_with_the_user(store: Store) -> None:
    subject = f"{USER}ann"
    await store.accounts.add_user("ann", "h", ["submit"], Submitter(subject, "team", waiting_max=1))
    await store.accounts.add_user("bob", "h", ["submit"])
    assert list(await store.accounts.submitters()) == [subject]
    with pytest.raises(UserNotFound):
        await store.accounts.remove_user("Ann")
    assert list(await store.accounts.submitters()) == [subject]
    await store.accounts.remove_user("ann")
    assert await store.accounts.submitters() == {}
