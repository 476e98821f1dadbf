"""What the API asks for costs the same at any number of jobs: explanations, watching, bulk actions, dead letters, who."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from tests.plans import fill
from tests.plans.conftest import Sample
from tests.plans.plan import faults
from tests.plans.probe import Probe
from windlass.explanation import ahead_max
from windlass.model import PENDING, Declared, Status
from windlass.store.listing import SCAN, ids_max
from windlass.store.protocol import JobQuery
from windlass.store.store import Store

MOST_MS = 50
LATER = datetime.now(UTC) + timedelta(hours=1)


# Explanations. --------------------------------------------------------------------------------------------------------


async def test_a_job_at_the_end_of_the_longest_line_is_explained_by_a_look_at_its_head(pinned: Probe) -> None:
    last: UUID = await pinned.connection.fetchval(
        "select job_id from windlass.ready where queue = 'crowded' order by rank desc, job_id desc limit 1"
    )
    seen = await pinned.best(lambda store: store.views.explain(last), most_sorted=fill.RUNNING)
    print(f"explain, behind {fill.WIDE}: {seen.buffers} buffers, {seen.visited} rows visited")
    assert seen.visited <= 2 * ahead_max + fill.RUNNING + 50
    assert await pinned.quickest_ms(lambda store: store.views.explain(last)) < MOST_MS
    assert (await pinned.store.views.explain(last)).ahead == ahead_max


@pytest.mark.parametrize("where", ["ready", "scheduled", "held", "finished", "kept"])
async def test_a_job_is_explained_wherever_it_is(pinned: Probe, sample: Sample, where: str) -> None:
    job_id = getattr(sample, where)[0]
    seen = await pinned.best(lambda store: store.views.explain(job_id), most_sorted=fill.RUNNING)
    widths = 8 if where == "ready" else 0
    assert seen.visited <= widths * (ahead_max + 2) + fill.RUNNING + 50
    assert await pinned.quickest_ms(lambda store: store.views.explain(job_id)) < MOST_MS


# Many at once. --------------------------------------------------------------------------------------------------------


async def test_a_thousand_places_are_looked_up_by_key(pinned: Probe, sample: Sample) -> None:
    ids = [*sample.ready, *sample.scheduled, *sample.held, *sample.finished, *sample.kept][:1_000]
    seen = await pinned.best(lambda store: store.views.places(ids))
    print(f"{len(ids)} places: {seen.buffers} buffers, {seen.visited} rows visited")
    assert seen.visited <= 2 * len(ids)
    assert seen.buffers < 30 * len(ids)
    assert await pinned.quickest_ms(lambda store: store.views.places(ids)) < MOST_MS


QUERIES = {
    "all": JobQuery(),
    "pending": JobQuery(tuple(PENDING)),
    "ready": JobQuery([Status.READY], queue="bulk"),
    "failed": JobQuery([Status.FAILED]),
    "failed, of a type": JobQuery([Status.FAILED], "email"),
    "failed, rare": JobQuery([Status.FAILED], "rare", "lonely"),
    "completed": JobQuery([Status.COMPLETED]),
    "tagged": JobQuery(tag="nightly"),
}


@pytest.mark.parametrize("name", QUERIES)
async def test_ten_thousand_ids_cost_no_more_than_the_walk_a_list_allows_itself(probe: Probe, name: str) -> None:
    query = QUERIES[name]
    seen = await probe.best(lambda store: store.views.ids(query), runs=3, most_sorted=10 * ids_max)
    took_ms = await probe.quickest_ms(lambda store: store.views.ids(query), runs=3)
    print(f"ids, {name}: {took_ms:.0f} ms, {seen.buffers} buffers, {seen.visited} rows visited")
    assert seen.visited <= 6 * SCAN
    assert took_ms < 4 * MOST_MS  # an action on ten thousand jobs takes a hundred times as long


# Dead letters. --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("type_", "queue"), [(None, None), ("email", None), (None, "mail"), ("email", "mail"), ("rare", "lonely")]
)
async def test_dead_letters_are_grouped_without_reading_their_errors(
    pinned: Probe, type_: str | None, queue: str | None
) -> None:
    async def act(store: Store) -> None:
        await store.views.dead_letter_groups(type=type_, queue=queue)

    seen = await pinned.see(act)
    assert not any(plan.scanned() for plan in seen), seen.show()
    took_ms = await pinned.quickest_ms(act, runs=5)
    print(f"groups of {type_}, {queue}: {took_ms:.0f} ms, {seen.buffers} buffers, {seen.visited} rows visited")
    assert seen.visited <= 2 * 10_001 + 1_000, seen.show()
    assert took_ms < MOST_MS


@pytest.mark.parametrize(("type_", "queue"), [(None, None), ("email", None), ("rare", "lonely")])
@pytest.mark.parametrize("mark", ["c4ca4238a0b92382", "unheard of"])
async def test_a_list_of_one_kind_of_error_is_a_page_of_its_index(
    probe: Probe, type_: str | None, queue: str | None, mark: str
) -> None:
    query = JobQuery([Status.FAILED], type_, queue, fingerprint=mark)
    seen = await probe.see(lambda store: store.views.jobs(query))
    assert not faults(seen)
    print(f"{mark} of {type_}, {queue}: {seen.buffers} buffers, {seen.visited} rows visited")
    assert seen.visited <= 3_000
    assert await probe.quickest_ms(lambda store: store.views.jobs(query)) < MOST_MS


async def test_the_size_and_the_age_of_dead_letters_cost_the_same_however_many_there_are(pinned: Probe) -> None:
    async def act(store: Store) -> None:
        await store.views.dead_letter_size()

    seen = await pinned.see(act)
    assert not any(plan.scanned() for plan in seen), seen.show()
    print(f"size of dead letters: {seen.buffers} buffers, {seen.visited} rows visited")
    assert seen.visited <= 2_000, seen.show()
    assert await pinned.quickest_ms(act, runs=5) < MOST_MS


# Who. -----------------------------------------------------------------------------------------------------------------


async def test_who_comes_in_is_looked_up_by_key(probe: Probe) -> None:
    digest = await probe.connection.fetchval("select digest from windlass.api_key order by digest limit 1")
    for act in (
        lambda store: store.accounts.user("user 77"),
        lambda store: store.accounts.set_password("user 77", "h"),
        lambda store: store.accounts.key(digest),
        lambda store: store.accounts.spend("new", LATER),
        lambda store: store.accounts.audit(),
        lambda store: store.accounts.audit(before=1_000, limit=200),
    ):
        seen = await probe.best(act)
        assert seen.visited <= 200
        assert seen.buffers < 100


async def test_tokens_are_swept_by_their_age(pinned: Probe) -> None:
    seen = await pinned.see(lambda store: store.upkeep.sweep_tokens(limit=1_000))
    assert not faults(seen)
    assert max(plan.visited for plan in seen) <= 2_000 + 10


# Types. ---------------------------------------------------------------------------------------------------------------


async def test_the_catalogue_is_read_in_milliseconds(probe: Probe) -> None:
    assert await probe.quickest_ms(lambda store: store.views.types()) < MOST_MS / 2


async def test_types_declared_again_are_looked_up_and_left_alone(probe: Probe) -> None:
    known = [one.declared for one in await probe.store.views.types()][:50]
    assert await probe.store.upkeep.declare(known) == 0
    seen = await probe.best(lambda store: store.upkeep.declare([*known, Declared("new")]))
    assert seen.buffers < 1_000
