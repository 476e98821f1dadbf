"""Charts cost their own steps, whatever else the rollups hold, and a fold costs a page."""

import json

import pytest

from tests.plans import fill
from tests.plans.probe import Probe, Seen
from windlass.store.store import Store

DAY_S = 86_400
MOST_MS = 300
PAGE = 1_000


def visited(seen: Seen, table: str = "rollup") -> int:
    return max(plan.visited_of(table) for plan in seen)


@pytest.mark.parametrize(("span_s", "rows"), [(3_600, 60), (2 * DAY_S, fill.MINUTES), (60 * DAY_S, fill.HOURS)])
async def test_a_chart_of_everything_reads_one_row_for_each_step(probe: Probe, span_s: int, rows: int) -> None:
    seen = await probe.best(lambda store: store.views.series(span_s=span_s))
    took_ms = await probe.quickest_ms(lambda store: store.views.series(span_s=span_s))
    print(f"series of {span_s} s: {took_ms:.1f} ms, {seen.buffers} buffers, {visited(seen)} rows visited")
    assert 0 < visited(seen) <= rows + 1
    assert took_ms < MOST_MS


@pytest.mark.parametrize("of", [{"queue": "queue 1"}, {"type_": "type 7"}, {"queue": "queue 2", "type_": "type 7"}])
async def test_a_chart_of_a_queue_or_a_type_reads_its_own_rows(probe: Probe, of: dict[str, str]) -> None:
    seen = await probe.best(lambda store: store.views.series(span_s=2 * DAY_S, **of))
    took_ms = await probe.quickest_ms(lambda store: store.views.series(span_s=2 * DAY_S, **of))
    print(f"series of {of}: {took_ms:.1f} ms, {seen.buffers} buffers, {visited(seen)} rows visited")
    pairs = 1 if "type_" in of else fill.PAIRS // 5
    assert 0 < visited(seen) <= (fill.MINUTES + 1) * pairs
    assert took_ms < MOST_MS


@pytest.mark.parametrize("by", ["queue", "type"])
async def test_small_charts_read_the_rows_of_their_hour(probe: Probe, by: str) -> None:
    most = 61 * (fill.PAIRS + 1)
    seen = await probe.best(lambda store: store.views.series(span_s=3_600, by=by), most_sorted=most)
    assert 0 < visited(seen) <= most
    assert await probe.quickest_ms(lambda store: store.views.series(span_s=3_600, by=by)) < MOST_MS


async def test_a_fold_costs_a_page_however_many_wait(probe: Probe) -> None:
    histogram = json.dumps([1] * 32).replace("[", "{").replace("]", "}")

    async def act(store: Store) -> None:
        async with store.postgres.connection() as connection:
            await connection.execute(
                "insert into windlass.rollup_delta (queue, type, retried, waited, ran) "
                f"select 'queue ' || n % 40, 'type ' || n % 40, 1, '{histogram}', '{histogram}' "
                f"from generate_series(1, {20 * PAGE}) n"
            )
        probe._plans.clear()
        assert await store.upkeep.fold_rollups(limit=PAGE)

    seen = await probe.see(act)
    took_ms = await probe.quickest_ms(act, runs=3)
    print(f"fold of {PAGE} of {20 * PAGE}: {took_ms:.1f} ms, {seen.buffers} buffers, {visited(seen)} rows visited")
    assert 0 < visited(seen, "rollup_delta") <= 2 * PAGE  # found, then deleted
    assert visited(seen) <= 10 * PAGE
    assert seen.buffers < 10 * PAGE
    assert took_ms < MOST_MS


async def test_expiring_reads_what_is_old(probe: Probe) -> None:
    seen = await probe.see(lambda store: store.upkeep.expire_rollups())
    print(f"expire: {seen.buffers} buffers, {visited(seen)} rows visited")
    assert visited(seen) <= 10 * (fill.PAIRS + 1)  # those that have grown old since the fill
