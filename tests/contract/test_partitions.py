"""Partitions come before they are needed and go when all in them is old; what still matters outlives its partition."""

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from tests.factory import Rig
from windlass.config import StoreConfig
from windlass.lifecycle import Completed, Failed, Outcome, settle
from windlass.model import Enqueued, Error, NewJob, Status
from windlass.store.ids import Ids
from windlass.store.partitions import Bounds, wanted
from windlass.store.partitions import _create as create_partition
from windlass.store.protocol import JobQuery
from windlass.store.store import Store, open_store

Sql = asyncpg.Connection
TABLES = ("job", "tag", "outcome", "attempt")
AGE = timedelta(days=20)  # beyond the retention of 14


async def attached(sql: Sql, table: str = "job") -> list[Bounds]:
    rows = await sql.fetch(
        "select inhrelid::regclass::text as name from pg_inherits where inhparent = $1::text::regclass",
        f"windlass.{table}",
    )
    return sorted(Bounds.of(row["name"]) for row in rows)


def today() -> date:
    return datetime.now(UTC).date()


@pytest.fixture
async def old_store(store: Store, sql: Sql) -> Store:
    """The store as it was twenty days ago: there are partitions for that day, and new ids carry its time."""
    day = today() - AGE
    for table in TABLES:
        await create_partition(sql, "windlass", table, Bounds(day, day + timedelta(days=1)))
    noon = int(datetime(day.year, day.month, day.day, 12, tzinfo=UTC).timestamp() * 1000)
    store.intake._ids = Ids(lambda: noon)
    return store


async def long_ago(sql: Sql, job_id: UUID) -> None:
    """Let time pass: this job finished when it was made."""
    await sql.execute("update windlass.outcome set finished_at = now() - interval '20 days' where job_id = $1", job_id)
    await sql.execute(
        "update windlass.outcome_kept set finished_at = now() - interval '20 days' where job_id = $1", job_id
    )


# Ahead. ---------------------------------------------------------------------------------------------------------------


def test_what_is_wanted_fills_the_gaps_from_yesterday_on_and_skips_days_long_gone() -> None:
    day, one = date(2026, 3, 10), timedelta(days=1)
    days = [Bounds(day + n * one, day + (n + 1) * one) for n in range(-1, 3)]
    assert wanted(day, [], ahead=2, retention_days=14) == days
    assert wanted(day, days, ahead=2, retention_days=14) == []
    assert wanted(day, days[:-1], ahead=2, retention_days=14) == days[-1:]
    assert wanted(day, [days[0], days[2], days[3]], ahead=2, retention_days=14) == [days[1]]
    assert wanted(day, [Bounds(day - 90 * one, day - 89 * one)], ahead=2, retention_days=14) == days
    # A clock that was once far ahead, and a step that was once another, leave no hole and no overlap.
    assert wanted(day, [Bounds(day + 400 * one, day + 401 * one)], ahead=2, retention_days=14) == days
    assert wanted(day, [Bounds(day + 2 * one, day + 9 * one)], ahead=2, retention_days=14) == days[:3]
    weekly = wanted(day, [], ahead=2, retention_days=61)
    assert [bounds.upper - bounds.lower for bounds in weekly] == [timedelta(days=7)] * 3
    assert weekly[-1].upper > day + timedelta(days=14)
    assert wanted(day, days, ahead=1, retention_days=61)[0].lower == day + 3 * one


async def test_a_roll_makes_partitions_ahead_without_a_gap_and_only_once(config: StoreConfig, sql: Sql) -> None:
    for days, ahead in ((14, 8), (100, 3)):  # and weekly ones from there
        async with open_store(replace(config, partitions_ahead=ahead, retention_days=days)) as store:
            rolled = await store.upkeep.roll_partitions()
            assert rolled.made
            assert (rolled.removed, rolled.waiting) == ([], [])
            assert (await store.upkeep.roll_partitions()).made == []
        for table in TABLES:
            bounds = await attached(sql, table)
            assert bounds[0].lower <= today() - timedelta(days=1)
            assert bounds[-1].upper > today() + timedelta(days=ahead * (7 if days > 60 else 1))
            assert all(a.upper == b.lower for a, b in pairwise(bounds))


async def test_a_roll_goes_on_where_an_interrupted_one_stopped(config: StoreConfig, sql: Sql) -> None:
    last = (await attached(sql))[-1].upper
    name = f"job_{Bounds(last, last + timedelta(days=1)).suffix}"
    await sql.execute(f"create table windlass.{name} (like windlass.job including all)")
    async with open_store(replace(config, partitions_ahead=5)) as store:
        assert name in (await store.upkeep.roll_partitions()).made
        assert (await store.upkeep.roll_partitions()).made == []
    assert len({len(await attached(sql, table)) for table in TABLES}) == 1


async def test_a_partition_has_the_indexes_of_its_table(store: Store, sql: Sql) -> None:
    invalid = await sql.fetchval(
        "select count(*) from pg_index i join pg_class c on c.oid = i.indexrelid"
        " join pg_namespace n on n.oid = c.relnamespace where n.nspname = 'windlass' and not i.indisvalid"
    )
    assert invalid == 0
    bounds = (await attached(sql))[0]
    counts = await sql.fetch(
        "select tablename, count(*) as n from pg_indexes where schemaname = 'windlass' group by tablename"
    )
    indexes = {row["tablename"]: row["n"] for row in counts}
    for table in TABLES:
        assert indexes[f"{table}_{bounds.suffix}"] == indexes[table] == indexes[f"{table}_kept"]


# Removal. -------------------------------------------------------------------------------------------------------------


async def test_a_partition_whose_jobs_all_finished_long_ago_goes_with_them(
    rig: Rig, old_store: Store, sql: Sql
) -> None:
    ids = [await rig.job(s, tags=["t"]) for s in (Status.COMPLETED, Status.CANCELLED)]
    for job_id in ids:
        await long_ago(sql, job_id)
    rolled = await old_store.upkeep.roll_partitions()
    assert len(rolled.removed) == 1
    assert rolled.waiting == []
    assert await old_store.views.counts() == {}
    assert (await old_store.views.jobs()).jobs == []
    assert min(await attached(sql)).lower >= today() - timedelta(days=14)
    left = await sql.fetch("select relname from pg_class where relname ~ $1", rolled.removed[0])
    assert left == []
    assert (await old_store.upkeep.roll_partitions()).removed == []


async def test_partitions_within_the_retention_stay(rig: Rig, old_store: Store, config: StoreConfig) -> None:
    job_id = await rig.job(Status.COMPLETED)
    async with open_store(replace(config, retention_days=30)) as patient:
        assert (await patient.upkeep.roll_partitions()).removed == []
    assert await rig.status(job_id) is Status.COMPLETED


async def test_what_still_matters_outlives_its_partition_unchanged(rig: Rig, old_store: Store, sql: Sql) -> None:
    views = old_store.views
    kept = {status: await rig.job(status, tags=["t"], payload={"s": status.value}) for status in Status}
    keyed = await rig.job(Status.COMPLETED, idempotency_key="k", tags=["t"])
    await long_ago(sql, keyed)
    await long_ago(sql, kept[Status.FAILED])
    ids = [*kept.values(), keyed]
    before = [await views.job(job_id) for job_id in ids], [await views.attempts(job_id) for job_id in ids]
    counts = await views.counts()
    assert len((await old_store.upkeep.roll_partitions()).removed) == 1
    assert ([await views.job(job_id) for job_id in ids], [await views.attempts(job_id) for job_id in ids]) == before
    assert await views.counts() == counts
    for query in (JobQuery(), JobQuery(tag="t")):
        assert [job.id for job in (await views.jobs(query)).jobs] == sorted(ids, reverse=True)
    for status, job_id in kept.items():
        assert job_id in {job.id for job in (await views.jobs(JobQuery(statuses=[status]))).jobs}
    assert (await views.check()).clean


async def test_a_job_that_outlived_its_partition_lives_on(rig: Rig, old_store: Store, sql: Sql) -> None:
    intake = old_store.intake
    ids = await rig.enqueue(5, payload={"a": 1}, max_attempts=3)
    finished = await rig.job(Status.FAILED)
    later = await rig.job(Status.SCHEDULED)
    worker = await rig.worker()
    early = await worker.claim(2)
    assert len((await old_store.upkeep.roll_partitions()).removed) == 1
    leases = [*early, *await worker.claim(3)]
    assert [lease.job_id for lease in leases] == ids
    assert {lease.payload for lease in leases} == {'{"a":1}'}
    outcomes: list[Outcome] = [
        Completed("x"),
        Failed(Error("E", "m")),
        Failed(Error("E", "m"), final=True),
        Completed(),
        Completed(),
    ]
    batch = [settle(lease, outcome, jitter=0) for lease, outcome in zip(leases, outcomes, strict=True)]
    receipt = await worker.claims.settle(batch)
    assert [receipt.moved[job_id].value for job_id in ids] == [
        "completed", "scheduled", "failed", "completed", "completed",
    ]  # fmt: skip
    assert (await worker.claims.settle(batch)).repeated == set(ids)
    assert [attempt.status for attempt in await old_store.views.attempts(ids[1])] == ["failed"]
    assert await intake.run_now(ids[1]) is Status.READY
    assert await intake.cancel(later) is Status.CANCELLED
    assert await intake.retry(finished) is Status.READY
    assert [attempt.status for attempt in await old_store.views.attempts(finished)] == ["failed"]
    assert await intake.retry(ids[0]) is Status.READY
    assert len(await worker.claim()) == 2
    assert (await old_store.views.check()).clean


async def test_a_key_of_a_job_that_outlived_its_partition_still_holds(rig: Rig, old_store: Store, sql: Sql) -> None:
    job = NewJob("echo", idempotency_key="k", queue="kept")
    job_id = await rig.job(Status.COMPLETED, idempotency_key="k", queue="kept", payload=None)
    await long_ago(sql, job_id)
    await old_store.upkeep.roll_partitions()
    assert await old_store.intake.enqueue([job]) == [Enqueued(job_id, duplicate=True)]
    await sql.execute("update windlass.idempotency set created_at = now() - interval '2 days'")
    assert await old_store.upkeep.expire_keys() == 1
    await old_store.upkeep.roll_partitions()
    assert await old_store.views.counts() == {}


async def test_kept_jobs_go_once_they_finished_long_ago_except_the_dead_letters(
    rig: Rig, old_store: Store, sql: Sql
) -> None:
    done, failed = [await rig.job(s, tags=["t"]) for s in (Status.COMPLETED, Status.FAILED)]
    await old_store.upkeep.roll_partitions()
    assert await rig.status(done) is Status.COMPLETED
    for job_id in (done, failed):
        await long_ago(sql, job_id)
    await old_store.upkeep.roll_partitions()
    assert [job.id for job in (await old_store.views.jobs()).jobs] == [failed]
    for table, column in (("job", "id"), ("tag", "job_id"), ("outcome", "job_id"), ("attempt", "job_id")):
        rows: list[Any] = await sql.fetch(f"select from windlass.{table}_kept where {column} = $1", done)
        assert rows == []
    assert sum((await old_store.views.counts()).values()) == 1
