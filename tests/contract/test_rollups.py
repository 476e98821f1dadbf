"""What charts show: every end is counted once, in its minute and its hour, by queue and type and in total."""

import pytest

from tests.factory import Rig
from windlass.errors import InvalidQuery
from windlass.lifecycle import Completed, Failed
from windlass.model import Error, Status
from windlass.rollups import Recorder
from windlass.store.postgres import Connection
from windlass.store.series import PAIRS_MAX


async def folded(rig: Rig) -> None:
    assert await rig.store.upkeep.fold_counts()
    while await rig.store.upkeep.fold_rollups():
        pass


async def test_every_way_to_end_is_counted_once_in_total_and_by_queue(rig: Rig, sql: Connection) -> None:
    for status in (Status.COMPLETED, Status.FAILED, Status.CANCELLED, Status.READY):
        await rig.job(status, queue="a" if status is Status.READY else "b")
    await folded(rig)
    await folded(rig)
    data = await rig.store.views.series(span_s=3_600)
    (points,) = data.points.values()
    assert (sum(points.completed), sum(points.failed), sum(points.cancelled)) == (1, 1, 1)
    assert (data.step_s, len(points.completed)) == (60, 60)
    by_queue = (await rig.store.views.series(span_s=3_600, by="queue")).points
    assert set(by_queue) == {"b"}
    assert await sql.fetchval("select count(*) from windlass.rollup_delta") == 0
    assert {row["step_s"] for row in await sql.fetch("select step_s from windlass.rollup")} == {60, 3600}


async def test_a_retry_by_hand_takes_nothing_back_from_what_has_happened(rig: Rig) -> None:
    job_id = await rig.job(Status.FAILED)
    await folded(rig)
    await rig.store.intake.retry(job_id)
    await folded(rig)
    (points,) = (await rig.store.views.series(span_s=3_600)).points.values()
    assert sum(points.failed) == 1


async def test_durations_of_several_workers_add_up(rig: Rig) -> None:
    first, second = await rig.worker(), await rig.worker()
    for worker, ran_s in ((first, 0.01), (second, 1.0), (second, 1.0)):
        recorder = Recorder()
        recorder.ended("default", "echo", 0.001, ran_s, retried=ran_s > 0.5)
        await worker.claims.record_rollups(recorder.take())
        await folded(rig)
    for wanted in ({}, {"queue": "default"}, {"type_": "echo"}):
        (points,) = (await rig.store.views.series(span_s=3_600, **wanted)).points.values()
        assert sum(map(sum, points.ran)) == 3
        assert sum(map(sum, points.waited)) == 3
        assert sum(points.retried) == 2
    (nothing,) = (await rig.store.views.series(span_s=3_600, queue="other")).points.values()
    assert sum(map(sum, nothing.ran)) == 0


async def test_a_step_keeps_so_many_pairs_and_the_rest_in_the_total(rig: Rig, sql: Connection) -> None:
    await rig.enqueue(1)
    worker = await rig.worker()
    for _ in range(2):
        recorder = Recorder()
        for n in range(90):
            recorder.ended(f"queue-{n}", "t", 0.1, 0.1, retried=True)
        await worker.claims.record_rollups(recorder.take())
        recorder.ended("late", "t", 0.1, 0.1, retried=True)
        for n in range(50):
            recorder.ended(f"other-{n}", "t", 0.1, 0.1, retried=True)
        await worker.claims.record_rollups(recorder.take())
        await folded(rig)
    steps = await sql.fetch("select count(*) as n from windlass.rollup group by step_s, at")
    assert max(row["n"] for row in steps) == PAIRS_MAX + 1
    (points,) = (await rig.store.views.series(span_s=3_600)).points.values()
    assert sum(points.retried) == 2 * 141


async def test_a_backlog_is_folded_page_by_page_into_its_own_minutes(rig: Rig, sql: Connection) -> None:
    """The leader was away: minutes and hours of then, each with no more pairs than a step keeps."""
    await sql.execute(
        "insert into windlass.rollup_delta (at, queue, type, retried, waited, ran) "
        "select date_trunc('hour', now()) - interval '1 hour' + make_interval(mins => n % 5), 'queue-' || n % 150, 't', 1, "
        "array[1, 2], array[0, 1] from generate_series(1, 2500) n"
    )
    pages = 1
    while await rig.store.upkeep.fold_rollups(limit=1_000):
        pages += 1
    assert pages == 3
    steps = await sql.fetch("select step_s, count(*) as n from windlass.rollup group by step_s, at order by step_s")
    assert [row["step_s"] for row in steps] == [60] * 5 + [3600]
    assert max(row["n"] for row in steps) == PAIRS_MAX + 1
    for step_s in (60, 3600):
        total = await sql.fetch("select * from windlass.rollup where step_s = $1 and queue = ''", step_s)
        assert sum(row["retried"] for row in total) == 2_500
        assert [sum(row["waited"][i] for row in total) for i in range(2)] == [2_500, 5_000]
        assert sum(row["ran"][1] for row in total) == 2_500


async def test_what_a_worker_counted_in_the_total_alone_is_there_once(rig: Rig) -> None:
    recorder = Recorder()
    for n in range(150):
        recorder.ended(f"queue-{n}", "t", 0.1, 0.1, retried=True)
    await (await rig.worker()).claims.record_rollups(recorder.take())
    await folded(rig)
    (points,) = (await rig.store.views.series(span_s=3_600)).points.values()
    assert (sum(points.retried), sum(map(sum, points.ran))) == (150, 150)


async def test_old_minutes_and_hours_are_forgotten(rig: Rig, sql: Connection) -> None:
    await rig.job(Status.COMPLETED)
    await folded(rig)
    for step_s, age in ((60, "3 days"), (3600, "3 days"), (3600, "61 days")):
        await sql.execute(
            "insert into windlass.rollup (step_s, at, queue, type, completed, failed, cancelled, retried) "
            f"values ($1, now() - interval '{age}', '', '', 1, 0, 0, 0)",
            step_s,
        )
    assert await rig.store.upkeep.expire_rollups() == 2
    assert sum((await rig.store.views.series(span_s=7 * 86_400)).points[None].completed) == 2


async def test_spans_have_limits(rig: Rig) -> None:
    for span_s in (1, 61 * 86_400):
        with pytest.raises(InvalidQuery, match="seconds"):
            await rig.store.views.series(span_s=span_s)


async def test_a_worker_records_what_it_settled(rig: Rig) -> None:
    await rig.enqueue(2)
    worker = await rig.worker()
    done, failed = await worker.claim()
    await worker.settle(done, Completed())
    await worker.settle(failed, Failed(Error("E", "m")))
    await folded(rig)
    (points,) = (await rig.store.views.series(span_s=3_600)).points.values()
    assert (sum(points.completed), sum(points.failed)) == (1, 0)
