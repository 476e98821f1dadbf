"""What supervisors ask every second, or at a death, costs what they get."""

from tests.plans import fill
from tests.plans.conftest import Sample
from tests.plans.probe import Probe


async def test_held_by_reads_the_rows_of_the_workers_asked_for(pinned: Probe, sample: Sample) -> None:
    mine = sample.workers[:2]
    held = await pinned.connection.fetchval("select count(*) from windlass.running where worker_id = any ($1)", mine)
    seen = await pinned.best(lambda store: store.upkeep.held_by(mine))
    print(f"held_by, {held} of {fill.RUNNING}: {seen.buffers} buffers, {seen.visited} rows visited")
    assert seen.visited <= 2 * held + 2 * len(mine)
    assert seen.buffers < 12 * held + 50


async def test_cancels_reads_nothing_but_requests(pinned: Probe, sample: Sample) -> None:
    asked = await pinned.connection.fetchval(
        "select count(*) from windlass.running where worker_id = any ($1) and cancel_requested is not null",
        sample.workers,
    )
    seen = await pinned.best(lambda store: store.upkeep.cancels(sample.workers))
    print(f"cancels, {asked} of {fill.RUNNING}: {seen.buffers} buffers, {seen.visited} rows visited")
    assert seen.visited <= asked + len(sample.workers)
    assert seen.buffers < 2 * asked + 10 * len(sample.workers)
