"""The leader's chores cost a page each, not a backlog."""

import pytest

from tests.plans import fill
from tests.plans.conftest import Sample
from tests.plans.probe import Act, Probe
from windlass.store.store import Store

PAGE = 1_000
QUEUES = [*fill.QUEUES, "crowded"]


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


WIDE: dict[str, Act] = {
    "waiting_wide": lambda store: store.upkeep.waiting_wide(QUEUES, widest=8, waited_s=2, limit=100),
    "too_wide": lambda store: store.upkeep.too_wide(QUEUES, widest=4, waited_s=2, limit=100),
}


@pytest.mark.parametrize("name", WIDE)
async def test_wide_jobs_that_wait_are_found_at_the_heads_of_their_lines(pinned: Probe, name: str) -> None:
    lines = len(QUEUES) * 7
    seen = await pinned.best(WIDE[name], most_sorted=lines * 100)
    print(f"{name}, 100: {seen.buffers} buffers, {seen.visited} rows visited")
    assert seen.visited <= lines * 100 + 100  # the first 100 of each line, and the job rows of 100
    assert seen.buffers < lines * 150 + 10 * 100


@pytest.mark.parametrize("name", ["waiting_wide", "too_wide"])
async def test_a_whole_page_of_wide_jobs_is_found_without_sorting_the_lines(pinned: Probe, name: str) -> None:
    def act(store: Store) -> object:
        find = getattr(store.upkeep, name)
        return find(QUEUES, widest=8 if name == "waiting_wide" else 4, waited_s=2)

    seen = await pinned.best(act)  # type: ignore[arg-type]
    print(f"{name}, {PAGE}: {seen.buffers} buffers, {seen.visited} rows visited")
    assert seen.buffers < 40 * PAGE


@pytest.mark.parametrize("verb", ["narrow", "give_up"])
async def test_narrow_and_give_up(pinned: Probe, verb: str) -> None:
    async def act(store: Store) -> None:
        jobs = await store.upkeep.too_wide(["crowded"], widest=4, waited_s=2, limit=100)
        await (store.upkeep.narrow(jobs) if verb == "narrow" else store.upkeep.give_up(jobs, widest=4))

    seen = await pinned.best(act)
    assert seen.visited <= 400
    assert seen.buffers < 40 * 100


async def test_types_nobody_knows_are_found_in_the_counts(probe: Probe) -> None:
    seen = await probe.best(lambda store: store.upkeep.hold_unknown(after_s=60))
    assert seen.visited == 0
    assert seen.buffers < 100


async def test_admit_known_looks_for_what_is_known(probe: Probe) -> None:
    seen = await probe.best(lambda store: store.upkeep.admit_known())
    assert seen.visited == 0
    assert seen.buffers < 100
