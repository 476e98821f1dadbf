"""What the testing kit asks of the store."""

from tests.factory import Rig
from windlass.model import Status
from windlass.store.store import Store
from windlass.store.testing import pass_time, stored_jobs, stored_jobs_seen_by


async def test_time_passes_until_the_next_job_is_due_and_all_keep_their_distance(store: Store, rig: Rig) -> None:
    (late,) = await rig.enqueue(delay_s=7200)
    (soon,) = await rig.enqueue(delay_s=3600)
    assert await pass_time(store.postgres, 3500) is None
    passed_s = await pass_time(store.postgres, 3601)
    assert passed_s is not None
    assert 3590 < passed_s <= 3600
    await store.upkeep.promote()
    assert (await rig.status(soon), await rig.status(late)) == (Status.READY, Status.SCHEDULED)
    again_s = await pass_time(store.postgres, 3601)
    assert again_s is not None
    assert 3590 < again_s <= 3600
    assert (await store.views.check()).clean


async def test_with_nothing_scheduled_no_time_passes(store: Store) -> None:
    assert await pass_time(store.postgres, 1e9) is None


async def test_every_job_that_was_enqueued_is_listed_in_order(store: Store, rig: Rig) -> None:
    first = await rig.enqueue(2, tags=["a"], payload={"n": 1})
    second = await rig.enqueue(delay_s=60)
    rows = await stored_jobs(store.postgres)
    assert {row["id"] for row in rows[:2]} == set(first)
    assert [row["id"] for row in rows[2:]] == second
    assert (rows[0]["payload"], rows[0]["tags"]) == ('{"n":1}', ["a"])
    async with store.postgres.transaction() as connection:
        assert len(await stored_jobs_seen_by(connection)) == 3
