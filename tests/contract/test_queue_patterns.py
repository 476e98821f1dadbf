"""Workers that serve queues by pattern: `tenant-*`, and `*` for all there are and all that come."""

from collections import Counter
from uuid import UUID, uuid4

import asyncpg
import pytest

from tests.factory import Rig, present
from windlass.config import PlacementConfig
from windlass.errors import InvalidJob
from windlass.leader.chores import Reserve, TooWide
from windlass.lifecycle import Completed, settle
from windlass.model import Declared, NewJob, Want
from windlass.placement import Reservation
from windlass.store.claims import _PAGES
from windlass.store.lines import BEFORE_ALL, page_of_lines, page_steps
from windlass.store.protocol import Ask
from windlass.store.store import Store

Sql = asyncpg.Connection


async def enqueue_in(store: Store, *queues: str, **fields: object) -> list[UUID]:
    jobs = [NewJob("echo", {}, queue=queue, **fields) for queue in queues]  # type: ignore[arg-type]
    return [one.id for one in await store.intake.enqueue(jobs)]


# What is claimed. -----------------------------------------------------------------------------------------------------


async def test_a_star_claims_from_every_queue_in_rank_order(rig: Rig, store: Store) -> None:
    worker = await rig.worker(queues=["*"])
    ids = await enqueue_in(store, "b", "tenant-7", "a", "b")
    (urgent,) = await enqueue_in(store, "new", priority=5)
    assert [lease.job_id for lease in await worker.claim()] == [urgent, *ids]


async def test_a_prefix_claims_from_the_queues_that_begin_so_and_from_no_other(rig: Rig, store: Store) -> None:
    worker = await rig.worker(queues=["tenant-*", "mail"])
    await enqueue_in(store, "tenant-2", "tenant", "tenantx", "Tenant-1", "mail", "mailbox", "tenant-1", "a", "z")
    assert sorted(lease.queue for lease in await worker.claim()) == ["mail", "tenant-1", "tenant-2"]


async def test_a_queue_that_comes_later_is_served_by_the_next_full_look(rig: Rig, store: Store) -> None:
    worker = await rig.worker(queues=["tenant-*"])
    assert await worker.claim() == []
    ids = await enqueue_in(store, "tenant-new")
    assert [lease.job_id for lease in await worker.claim()] == ids


async def test_floors_are_kept_for_lines_that_were_found_by_pattern(rig: Rig, store: Store) -> None:
    worker = await rig.worker(threads=2, queues=["*"])
    await enqueue_in(store, *["a", "b"] * 10)
    ask = Ask(worker.id, ["*"], worker.types, free=2, budget=4)
    got = [lease.queue for _ in range(5) for lease in await worker.claims.claim(ask)]
    assert Counter(got) == {"a": 10, "b": 10}


async def test_jobs_wider_than_the_free_threads_are_left_to_others(rig: Rig, store: Store) -> None:
    worker = await rig.worker(threads=8, queues=["*"])
    await enqueue_in(store, "a", thread_demand=4)
    narrow = await enqueue_in(store, "a", "b", thread_demand=2)
    assert [lease.job_id for lease in await worker.claim(free=3, budget=4)] == narrow


async def test_a_paused_queue_is_not_served_by_pattern_either(rig: Rig, store: Store) -> None:
    worker = await rig.worker(queues=["*"])
    await store.intake.set_paused("a", paused=True)
    ids = await enqueue_in(store, "a", "b")
    assert [lease.job_id for lease in await worker.claim()] == [ids[1]]


# Many queues. ---------------------------------------------------------------------------------------------------------


async def test_of_many_queues_each_is_looked_at_within_the_bound(rig: Rig, store: Store) -> None:
    """The bound that docs/workers.md states: lines / page_steps claims."""
    lines = 3 * page_steps - 10
    await enqueue_in(store, *(f"tenant-{n}" for _ in range(3) for n in range(lines)))
    worker = await rig.worker(queues=["*"])
    served: Counter[str] = Counter()
    for _ in range(3):
        leases = await worker.claim(budget=page_steps, most=page_steps)
        assert len(leases) == page_steps
        served.update(lease.queue for lease in leases)
    assert len(served) == lines
    while leases := await worker.claim(budget=1_000, most=1_000):
        served.update(lease.queue for lease in leases)
    assert set(served.values()) == {3}


async def test_a_long_queue_is_not_slowed_down_by_hundreds_that_give_nothing(rig: Rig, store: Store) -> None:
    worker = await rig.worker(threads=100, queues=["*"])
    await store.intake.enqueue([NewJob("of-others", {}, queue=f"other-{n}") for n in range(page_steps - 10)])
    await enqueue_in(store, *["long"] * 100)
    ask = Ask(worker.id, ["*"], worker.types, free=100, most=50)
    for _ in range(2):
        assert len(await worker.claims.claim(ask)) == 50


async def test_a_claim_goes_on_to_the_next_page_while_it_has_room_up_to_a_bound(
    rig: Rig, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("windlass.store.claims._PAGES", 4)
    strange = [NewJob("strange", {}, queue=f"a-{n:04}") for n in range(5 * page_steps)]
    await store.intake.enqueue(strange)
    ids = await enqueue_in(store, "z")
    worker = await rig.worker(queues=["*"])
    assert await worker.claim() == [], "four pages of queues that hold nothing for it are one claim's share"
    assert [lease.job_id for lease in await worker.claim()] == ids
    assert _PAGES * page_steps >= 4_096


async def test_a_page_takes_as_many_steps_as_there_are_lines_and_goes_round(rig: Rig, store: Store) -> None:
    await enqueue_in(store, "a", "b", "c", "tenant-1", "tenant-2")
    await enqueue_in(store, "tenant-1", thread_demand=3)
    find = store.postgres
    whole = await page_of_lines(find, ["tenant-"])
    assert [*whole.lowest] == [("tenant-1", 1), ("tenant-1", 3), ("tenant-2", 1)]
    assert whole.end == BEFORE_ALL
    narrow = await page_of_lines(find, ["tenant-"], widest=2)
    assert [*narrow.lowest] == [("tenant-1", 1), ("tenant-2", 1)]
    first = await page_of_lines(find, ["tenant-"], steps=4)
    assert ([*first.lowest], first.end) == ([("tenant-1", 1)], ("tenant-1", 1))
    second = await page_of_lines(find, ["tenant-"], first.end, steps=4)
    assert ([*second.lowest], second.end) == ([("tenant-1", 3), ("tenant-2", 1)], BEFORE_ALL)


# Wake-ups and hand-overs. ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 3])
async def test_workers_that_serve_by_pattern_are_woken_for_their_queues_alone(
    rig: Rig, store: Store, count: int
) -> None:
    by_star, by_prefix = await rig.worker(queues=["*"]), await rig.worker(queues=["tenant-*"])
    for worker in (by_prefix, by_star):
        await store.hints.rest(worker.id, queues=worker.queues, types=worker.types, free=8)
    assert await store.hints.rouse([Want("other", "echo", 1, count)]) == [by_star.id]
    assert await store.hints.rouse([Want("other", "echo", 1, count)]) == []
    assert await store.hints.rouse([Want("tenant-1", "echo", 1, count)]) == [by_prefix.id]


async def test_a_job_is_handed_over_to_a_worker_that_serves_its_queue_by_pattern(
    rig: Rig, store: Store, sql: Sql
) -> None:
    worker, key = await rig.worker(queues=["tenant-*"]), uuid4()
    await present(sql, key)
    said = {"queues": worker.queues, "types": worker.types, "free": 8, "hand_key": key, "hand_for_s": 60}
    await store.hints.rest(worker.id, **said)  # type: ignore[arg-type]
    (other,) = await store.intake.enqueue([NewJob("echo", {}, queue="other")])
    assert not other.woken
    (handed,) = await store.intake.enqueue([NewJob("echo", {}, queue="tenant-1")])
    assert handed.woken
    assert {job_id for job_id, _ in await worker.claims.held(worker.id)} == {handed.id}
    strays = await worker.claims.strays(worker.id, [], older_than_s=0)
    await worker.claims.settle([settle(lease, Completed(), jitter=0) for lease in strays])


# Wide jobs. -----------------------------------------------------------------------------------------------------------


async def test_a_worker_takes_a_reserved_job_from_a_queue_it_serves_by_pattern(rig: Rig, store: Store) -> None:
    worker = await rig.worker(threads=8, queues=["tenant-*"])
    await enqueue_in(store, *["tenant-1"] * 8)
    (wide,) = await enqueue_in(store, "tenant-2", thread_demand=8)
    await store.upkeep.reserve([Reservation(worker.id, wide, 8)], ttl_s=60)
    assert [lease.job_id for lease in await worker.claim()] == [wide]


async def test_the_leader_reserves_threads_for_a_wide_job_that_only_a_pattern_serves(rig: Rig, store: Store) -> None:
    busy = await rig.worker(threads=4, queues=["tenant-*"])
    (wide,) = await enqueue_in(store, "tenant-1", thread_demand=4)
    await enqueue_in(store, "tenant-2")
    await busy.claim(free=1)
    await Reserve(store.upkeep, PlacementConfig(reserve_after_s=0))()
    assert await store.upkeep.reservations() == [Reservation(busy.id, wide, 4)]


async def test_a_job_too_wide_for_all_that_serve_its_queue_by_pattern_is_narrowed(rig: Rig, store: Store) -> None:
    await rig.worker(threads=2, queues=["tenant-*"])
    wide = await rig.worker(threads=8, queues=["*"])
    (job_id,) = await enqueue_in(store, "tenant-1", thread_demand=8)
    (elsewhere,) = await enqueue_in(store, "other", thread_demand=16)
    chore = TooWide(store.upkeep, PlacementConfig(too_wide_grace_s=0))
    await chore()
    assert [(lease.job_id, lease.threads) for lease in await wide.claim(free=1)] == [(elsewhere, 1)]
    await store.upkeep.bury([wide.id], "left")
    await chore()
    narrow = await rig.worker(threads=2, queues=["tenant-*"])
    assert [(lease.job_id, lease.threads) for lease in await narrow.claim()] == [(job_id, 1)]


# What people see. -----------------------------------------------------------------------------------------------------


async def test_a_type_says_how_many_living_workers_know_it_and_serve_its_queue(rig: Rig, store: Store) -> None:
    types = [Declared("mail", queue="mail"), Declared("bill", queue="tenant-1"), Declared("old")]
    await store.upkeep.declare(types)
    await rig.worker(queues=["default"], types=["mail", "bill"])
    await rig.worker(queues=["tenant-*"], types=["mail", "bill"])
    await rig.worker(queues=["*"], types=["mail"])
    leaving = await rig.worker(queues=["*"], types=["mail", "bill"])
    await store.upkeep.drain([leaving.id])
    seen = {known.declared.name: (known.alive, known.served_by) for known in await store.views.types()}
    assert seen == {"mail": (True, 1), "bill": (True, 1), "old": (False, 0)}


async def test_a_queue_says_how_many_living_workers_serve_it(rig: Rig, store: Store) -> None:
    for queues in (["*"], ["tenant-*", "mail"], ["mail"]):
        await rig.worker(queues=queues)
    await enqueue_in(store, "mail", "tenant-1", "other")
    assert {queue.name: queue.served_by for queue in await store.views.queues()} == {
        "mail": 3,
        "tenant-1": 2,
        "other": 1,
    }


async def test_an_explanation_counts_workers_that_serve_by_pattern(rig: Rig, store: Store) -> None:
    (job_id,) = await enqueue_in(store, "tenant-1")
    await rig.worker(queues=["mail-*"])
    assert [each.code for each in (await store.views.explain(job_id)).obstacles] == ["queue_unserved"]
    await rig.worker(queues=["tenant-*"])
    assert (await store.views.explain(job_id)).workers_free == 1


async def test_a_worker_with_a_long_unclaimed_job_in_a_queue_it_serves_by_pattern_has_overlooked_it(
    rig: Rig, store: Store
) -> None:
    await enqueue_in(store, "tenant-1")
    worker = await rig.worker(queues=["tenant-*"])
    assert await worker.claims.overlooked(Ask(worker.id, ["tenant-*"], worker.types, free=8), waited_s=0)
    assert not await worker.claims.overlooked(Ask(worker.id, ["mail-*"], worker.types, free=8), waited_s=0)


@pytest.mark.parametrize("queue", ["a*b", "**", "-*", "", "a" * 100 + "*", "a b*"])
async def test_a_pattern_has_one_star_and_at_its_end(rig: Rig, queue: str) -> None:
    with pytest.raises(InvalidJob, match="queues"):
        await rig.worker(queues=[queue])
