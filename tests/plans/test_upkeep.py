"""The leader's chores cost a page each, not a backlog."""

import pytest

from tests.plans import fill
from tests.plans.conftest import Sample
from tests.plans.probe import Probe
from windlass.store.store import Store

PAGE = 1_000
QUEUES = [*fill.QUEUES, "crowded"]
LINES = {(queue, type_): 8 for queue in QUEUES for type_ in fill.TYPES}
WIDEST = {(queue, type_): 4 for queue in QUEUES for type_ in fill.TYPES}


async def test_promote(pinned: Probe) -> None:
    seen = await pinned.best(lambda store: store.upkeep.promote())
    print(f"promote of {PAGE}: {seen.buffers / PAGE:.1f} buffers per job")
    assert seen.visited <= 2 * PAGE
    assert seen.buffers < 40 * PAGE


async def test_lost_reads_the_rows_of_the_dead_and_steps_over_the_living(pinned: Probe) -> None:
    of_the_dead = fill.RUNNING // (fill.LIVING + fill.DEAD) * fill.DEAD
    seen = await pinned.best(lambda store: store.upkeep.lost())
    print(f"lost, {of_the_dead} of {fill.RUNNING}: {seen.buffers} buffers, {seen.visited} rows visited")
    assert seen.visited <= 2 * of_the_dead + 2 * (fill.LIVING + fill.DEAD + 1)
    assert seen.buffers < 8 * of_the_dead


async def test_renew(probe: Probe, sample: Sample) -> None:
    seen = await probe.best(lambda store: store.upkeep.renew(sample.workers, lease_ttl_s=15))
    assert seen.buffers < 20 * len(sample.workers)


async def test_bury_expired_and_forget_workers(probe: Probe) -> None:
    assert (await probe.best(lambda store: store.upkeep.bury_expired())).buffers < 50
    assert (await probe.best(lambda store: store.upkeep.forget_workers(older_than_s=0))).buffers < 100


async def test_expire_keys(pinned: Probe) -> None:
    old = await pinned.connection.fetchval(
        "select count(*) from windlass.idempotency where created_at < now() - interval '1 day'"
    )
    seen = await pinned.best(lambda store: store.upkeep.expire_keys())  # page by page, all of them
    print(f"expire {old} keys: {seen.visited / old:.1f} rows visited per key, {seen.buffers} buffers in the worst page")
    assert seen.visited <= 5 * old
    assert seen.buffers < 40 * PAGE


async def test_wide_jobs_that_wait_are_found_at_the_heads_of_their_lines(pinned: Probe, sample: Sample) -> None:
    lines = len(QUEUES) * 7
    find = pinned.store.upkeep.waiting_wide
    known = sample.ready[:100]
    seen = await pinned.best(lambda _: find(LINES, waited_s=2, known=known, limit=100), most_sorted=lines * 100 + 100)
    print(f"waiting_wide, 100 of each line: {seen.buffers} buffers, {seen.visited} rows visited")
    assert seen.visited <= lines * 101 + 2 * len(known)
    assert seen.buffers < lines * 150 + 10 * len(known)


async def test_wide_jobs_of_a_type_at_the_end_of_a_long_line_cost_a_thousand_rows_to_miss(pinned: Probe) -> None:
    find = pinned.store.upkeep.waiting_wide
    seen = await pinned.best(lambda _: find({("crowded", "rarest"): 8}, waited_s=2))
    print(f"waiting_wide, none in a line of {fill.WIDE}: {seen.buffers} buffers, {seen.visited} rows visited")
    assert seen.visited <= PAGE + 10
    assert seen.buffers < 2 * PAGE


async def test_too_wide_jobs_are_found_within_the_first_thousand_of_each_line(pinned: Probe) -> None:
    most = len(QUEUES) * PAGE
    seen = await pinned.best(lambda store: store.upkeep.too_wide(WIDEST, waited_s=0, limit=PAGE), most_sorted=most)
    print(f"too_wide, {PAGE}: {seen.buffers} buffers, {seen.visited} rows visited")
    assert seen.visited <= 2 * most + 2 * len(QUEUES)  # and their job rows; and one more each, which may rank the same
    assert seen.buffers < 10 * most


async def test_too_wide_jobs_of_a_type_at_the_end_of_a_long_line_cost_a_thousand_rows_a_look(pinned: Probe) -> None:
    find = pinned.store.upkeep.too_wide
    for _ in range(3):  # each look begins where the last one ended
        seen = await pinned.see(lambda _: find({("crowded", "rarest"): 4}, waited_s=0, limit=PAGE))
        print(f"too_wide, none in a line of {fill.WIDE}: {seen.buffers} buffers, {seen.visited} rows visited")
        assert seen.visited <= PAGE + 2
        assert seen.buffers < 2 * PAGE


async def test_where_there_is_room_is_found_by_one_probe_per_living_worker(pinned: Probe) -> None:
    seen = await pinned.best(lambda store: store.upkeep.rooms(), most_sorted=fill.RUNNING)
    print(f"rooms, {fill.LIVING}: {seen.buffers} buffers, {seen.visited} rows visited")
    assert seen.visited <= fill.RUNNING // (fill.LIVING + fill.DEAD) * fill.LIVING + fill.LIVING


@pytest.mark.parametrize("verb", ["narrow", "give_up"])
async def test_narrow_and_give_up(pinned: Probe, verb: str) -> None:
    async def act(store: Store) -> None:
        jobs = await store.upkeep.too_wide({("crowded", type_): 4 for type_ in fill.TYPES}, waited_s=2, limit=100)
        await (store.upkeep.narrow(jobs) if verb == "narrow" else store.upkeep.give_up(jobs, widest=4))

    seen = await pinned.best(act)
    assert seen.visited <= 2 * PAGE + 300  # the head of the line with its job rows, and the 100
    assert seen.buffers < 10 * PAGE


async def test_types_nobody_knows_are_found_in_the_counts(probe: Probe) -> None:
    seen = await probe.best(lambda store: store.upkeep.hold_unknown(after_s=60))
    assert seen.visited == 0
    assert seen.buffers < 100


async def test_admit_known_looks_for_what_is_known(probe: Probe) -> None:
    seen = await probe.best(lambda store: store.upkeep.admit_known())
    assert seen.visited == 0
    assert seen.buffers < 100


async def test_dead_letters_expire_a_page_at_a_time_by_their_age(pinned: Probe) -> None:
    kept_s = 29 * 86_400.0  # the kept ones are older, those in partitions are not
    gone: list[int] = []

    async def act(store: Store) -> None:
        page = await store.postgres.pinned("old_dead_letters", kept_s, 200)
        ids = sorted(row["job_id"] for row in page)
        gone.append(len(await store.postgres.pinned("expire_dead_letters", ids, kept_s)))

    seen = await pinned.see(act)
    assert gone == [200]
    print(f"expire 200 dead letters: {seen.buffers} buffers, {seen.visited} rows visited")
    assert not any(plan.scanned() for plan in seen), seen.show()
    assert seen.visited <= 40 * 200, seen.show()
