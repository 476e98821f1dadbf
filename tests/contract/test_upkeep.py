"""The leader's chores move exactly what is due, may be done twice at once, and one leader at a time holds the term."""

import asyncio
from collections.abc import Sequence
from uuid import UUID, uuid4

import asyncpg

from tests.eventually import aeventually
from tests.factory import Rig
from windlass.model import Status, Want
from windlass.store.store import Store
from windlass.store.upkeep import Upkeep

Sql = asyncpg.Connection


async def due(sql: Sql, ids: Sequence[UUID]) -> None:
    """Let time pass for these: the last was due a second ago, the one before it two, and so on."""
    await sql.execute(
        "update windlass.scheduled s set ready_at = now() - make_interval(secs => cardinality($1::uuid[]) + 1 - d.n)"
        " from unnest($1::uuid[]) with ordinality as d (job_id, n) where s.job_id = d.job_id",
        ids,
    )


async def ready(sql: Sql) -> list[UUID]:
    return [row["job_id"] for row in await sql.fetch("select job_id from windlass.ready order by ready_at")]


# Promotion. -----------------------------------------------------------------------------------------------------------


async def test_exactly_the_due_are_promoted_and_it_says_how_many_of_each_shape(
    rig: Rig, store: Store, sql: Sql
) -> None:
    a = await rig.enqueue(3, delay_s=60, queue="a")
    b = await rig.enqueue(delay_s=60, queue="b") + await rig.enqueue(delay_s=60, queue="b", thread_demand=4)
    later = await rig.enqueue(4, delay_s=60, queue="a")
    await due(sql, [*a, *b])
    assert await store.upkeep.promote() == [Want("a", "echo", 1, 3), Want("b", "echo", 1, 1), Want("b", "echo", 4, 1)]
    assert set(await ready(sql)) == {*a, *b}
    assert {await rig.status(job_id) for job_id in later} == {Status.SCHEDULED}
    assert await store.upkeep.promote() == []


async def test_a_page_promotes_the_oldest_first(rig: Rig, store: Store, sql: Sql) -> None:
    ids = (await rig.enqueue(10, delay_s=60))[::-1]
    await due(sql, ids)
    for gained, in_all in ((4, 4), (4, 8), (2, 10)):
        assert await store.upkeep.promote(limit=4) == [Want("default", "echo", 1, gained)]
        assert await ready(sql) == ids[:in_all]


async def test_a_job_due_below_the_floor_of_a_full_page_is_promoted_in_the_end(
    rig: Rig, store: Store, sql: Sql
) -> None:
    ids = await rig.enqueue(6, delay_s=60)
    await due(sql, ids[1:])
    assert await store.upkeep.promote(limit=2) == [Want("default", "echo", 1, 2)]
    await sql.execute("update windlass.scheduled set ready_at = now() - interval '1 h' where job_id = $1", ids[0])

    async def all_ready() -> bool:
        await store.upkeep.promote(limit=2)
        return len(await ready(sql)) == 6

    await aeventually(all_ready, timeout_s=5)


async def test_a_promoted_job_keeps_its_rank_and_priority_still_counts(rig: Rig, store: Store, sql: Sql) -> None:
    plain, urgent = [(await rig.enqueue(delay_s=60, priority=p))[0] for p in (0, 1)]
    ranks = await sql.fetch("select job_id, rank from windlass.scheduled order by job_id")
    await due(sql, [plain, urgent])
    await store.upkeep.promote()
    assert await sql.fetch("select job_id, rank from windlass.ready order by job_id") == ranks
    assert [lease.job_id for lease in await (await rig.worker()).claim()] == [urgent, plain]


async def test_a_job_becomes_ready_by_itself_when_its_time_comes(rig: Rig, store: Store) -> None:
    (job_id,) = await rig.enqueue(delay_s=0.05)
    await aeventually(store.upkeep.promote)
    assert await rig.status(job_id) is Status.READY


async def test_two_promoters_at_once_promote_each_job_once(rig: Rig, store: Store, sql: Sql) -> None:
    ids = await rig.enqueue(900, delay_s=60)
    await due(sql, ids)

    async def promote_all() -> int:
        upkeep, moved = Upkeep(store.postgres), 0
        while page := await upkeep.promote(limit=100):
            moved += sum(want.count for want in page)
        return moved

    assert sum(await asyncio.gather(*(promote_all() for _ in range(3)))) == 900
    assert await store.views.counts() == {("default", "echo", Status.READY): 900}


# Types nobody knows. --------------------------------------------------------------------------------------------------


async def test_jobs_of_unknown_types_are_set_aside_and_given_back_with_their_rank(
    rig: Rig, store: Store, sql: Sql
) -> None:
    strange = await rig.enqueue(5, type="strange")
    await rig.enqueue(2, type="echo")
    ranks = await sql.fetch("select job_id, rank from windlass.ready where type = 'strange' order by job_id")
    assert await store.upkeep.hold_unknown(after_s=0) == 0  # nobody lives: nobody can tell
    await rig.worker(types=["echo"])
    assert await store.upkeep.hold_unknown(after_s=60) == 0
    assert await store.upkeep.hold_unknown(after_s=0, limit=3) == 3
    assert await store.upkeep.hold_unknown(after_s=0) == 2
    assert await store.upkeep.hold_unknown(after_s=0) == 0
    job = await store.views.job(strange[0])
    assert (job.status, job.reason) == (Status.HELD, "unknown type")
    assert await store.upkeep.admit_known() == []
    knower = await rig.worker(types=["strange"])
    assert await store.upkeep.admit_known(limit=3) == [Want("default", "strange", 1, 3)]
    assert await store.upkeep.admit_known() == [Want("default", "strange", 1, 2)]
    assert await sql.fetch("select job_id, rank from windlass.ready where type = 'strange' order by job_id") == ranks
    assert [lease.job_id for lease in await knower.claim()] == strange


async def test_only_the_types_that_are_named_are_set_aside_and_only_if_nobody_knows_them(
    rig: Rig, store: Store
) -> None:
    for type_ in ("strange", "stranger", "echo"):
        await rig.enqueue(type=type_)
    assert await store.upkeep.unknown_types() == set()
    await rig.worker(types=["echo"])
    assert await store.upkeep.unknown_types() == {"strange", "stranger"}
    assert await store.upkeep.hold_unknown(after_s=0, types=[]) == 0
    assert await store.upkeep.hold_unknown(after_s=0, types=["strange", "echo"]) == 1
    assert await store.upkeep.unknown_types() == {"stranger"}


async def test_a_job_of_an_unknown_type_is_shown_as_held_before_it_is_moved(rig: Rig, store: Store, sql: Sql) -> None:
    (job_id,) = await rig.enqueue(type="strange")
    assert await rig.status(job_id) is Status.READY
    worker = await rig.worker(types=["echo"])
    job = await store.views.job(job_id)
    assert (job.status, job.reason) == (Status.HELD, "unknown type")
    assert await store.views.counts() == {("default", "strange", Status.HELD): 1}
    assert await ready(sql) == [job_id]
    await store.upkeep.bury([worker.id], "left")
    assert await rig.status(job_id) is Status.READY


async def test_two_leaders_that_hold_and_admit_at_once_move_each_job_once(rig: Rig, store: Store) -> None:
    await rig.enqueue(500, type="strange")
    await rig.worker(types=["echo"])
    held = await asyncio.gather(*(store.upkeep.hold_unknown(after_s=0) for _ in range(3)))
    assert sum(held) + await store.upkeep.hold_unknown(after_s=0) == 500
    await rig.worker(types=["strange"])
    admitted = await asyncio.gather(*(store.upkeep.admit_known() for _ in range(3)))
    left = await store.upkeep.admit_known()
    assert sum(want.count for page in [*admitted, left] for want in page) == 500
    assert await store.views.counts() == {("default", "strange", Status.READY): 500}


# The term. ------------------------------------------------------------------------------------------------------------


async def test_one_holder_at_a_time_has_the_term_and_a_takeover_raises_it(store: Store) -> None:
    a, b = uuid4(), uuid4()
    assert await store.upkeep.take_term(a, ttl_s=60) == 1
    assert await store.upkeep.take_term(b, ttl_s=60) is None
    assert await store.upkeep.take_term(a, ttl_s=60) == 1
    assert await store.upkeep.take_term(a, ttl_s=0) == 1  # and it ends
    assert await store.upkeep.take_term(b, ttl_s=60) == 2
    assert await store.upkeep.take_term(a, ttl_s=60) is None
    await store.upkeep.leave_term(a)  # not its own: no effect
    assert await store.upkeep.take_term(a, ttl_s=60) is None
    await store.upkeep.leave_term(b)
    assert await store.upkeep.take_term(a, ttl_s=60) == 3


async def test_a_holder_that_let_its_term_lapse_gets_a_new_one(store: Store) -> None:
    a = uuid4()
    assert await store.upkeep.take_term(a, ttl_s=0) == 1
    assert await store.upkeep.take_term(a, ttl_s=60) == 2


async def test_of_many_that_reach_for_the_term_at_once_one_gets_it(store: Store) -> None:
    for term in (1, 2, 3):
        holders = [uuid4() for _ in range(12)]
        answers = await asyncio.gather(*(store.upkeep.take_term(holder, ttl_s=60) for holder in holders))
        assert sorted(answer for answer in answers if answer is not None) == [term]
        (winner,) = (holder for holder, answer in zip(holders, answers, strict=True) if answer)
        await store.upkeep.leave_term(winner)


async def test_a_transaction_that_stops_in_the_middle_is_ended_by_the_server(store: Store) -> None:
    for how in ("pinned", "brief"):
        async with store.postgres.transaction(**{how: True}) as connection:
            assert await connection.fetchval("show idle_in_transaction_session_timeout") == "5s"
    async with store.postgres.transaction() as connection:  # in which handlers run, for as long as they like
        assert await connection.fetchval("show idle_in_transaction_session_timeout") == "0"


async def test_with_nothing_to_fold_the_tally_is_left_as_it_is(rig: Rig, store: Store, sql: Sql) -> None:
    await rig.enqueue(3)
    assert await store.upkeep.fold_counts()
    before = await sql.fetch("select xmin, * from windlass.tally")
    assert len(before) == 1
    assert await store.upkeep.fold_counts()
    assert await sql.fetch("select xmin, * from windlass.tally") == before


# Sweeping. ------------------------------------------------------------------------------------------------------------


async def test_steps_go_a_day_after_their_job_has_finished_and_stay_while_it_has_not(
    rig: Rig, store: Store, sql: Sql
) -> None:
    living = [await rig.job(status) for status in (Status.SCHEDULED, Status.HELD, Status.READY, Status.RUNNING)]
    fresh, old, lately = [await rig.job(Status.COMPLETED) for _ in range(3)]
    gone = uuid4()
    step = "insert into windlass.step values ($1, $2, gen_random_uuid(), now() - $3 * interval '1 h', 'true')"
    for job_id in [*living, fresh, old, gone]:
        await sql.executemany(step, [(job_id, "a", 50.0), (job_id, "b", 49.0)])
    await sql.executemany(step, [(lately, "a", 50.0), (lately, "b", 1.0)])
    ended = "update windlass.outcome set finished_at = now() - interval '25 h' where job_id = any ($1)"
    await sql.execute(ended, [old, lately])
    assert await store.upkeep.sweep_steps(limit=2) == 4
    left = {row["job_id"] for row in await sql.fetch("select job_id from windlass.step")}
    assert left == {*living, fresh, lately}
    assert await store.upkeep.sweep_steps() == 0


async def test_what_dead_workers_said_of_their_idleness_is_removed(rig: Rig, store: Store, sql: Sql) -> None:
    living, lapsed, unknown = (await rig.worker()).id, (await rig.worker()).id, uuid4()
    for worker_id in (living, lapsed, unknown):
        await sql.execute("insert into windlass.idle values ($1, now(), 8, '{default}', '{echo}', false)", worker_id)
    await sql.execute("update windlass.worker set lease_until = now() where id = $1", lapsed)
    assert await store.upkeep.forget_idle() == {lapsed, unknown}
    assert await store.upkeep.forget_idle() == set()
    assert [row["worker_id"] for row in await sql.fetch("select worker_id from windlass.idle")] == [living]
