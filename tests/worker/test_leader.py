"""One leads, another follows within seconds, the chores are done, and two leaders at once do no harm."""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest

from tests.eventually import aeventually
from tests.factory import Rig
from windlass.bus.protocol import NoWaker
from windlass.config import LeaseConfig, PlacementConfig
from windlass.errors import Unavailable
from windlass.leader.loop import Leader
from windlass.leader.term import Term
from windlass.model import Status, Want
from windlass.placement import Reservation
from windlass.store.protocol import LostLease
from windlass.store.store import Store
from windlass.store.upkeep import Upkeep

Sql = asyncpg.Connection
QUICK = LeaseConfig(lease_ttl_s=1, heartbeat_s=0.3, reap_tick_s=0.05)
AT_ONCE = PlacementConfig(reserve_after_s=0, too_wide_grace_s=0)


class Heard(NoWaker):
    """Remembers what workers were woken for."""

    def __init__(self) -> None:
        self.wants: list[Want] = []

    def wake(self, wants: Iterable[Want]) -> None:
        self.wants += wants


class Failing(Upkeep):
    """An upkeep that cannot do some things, as long as it is told so."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.fails: dict[str, Exception] = {}

    def _may(self, name: str) -> None:
        if name in self.fails:
            raise self.fails[name]

    async def take_term(
        self, holder: UUID, *, ttl_s: float, since_last_s: float | None = None, gap_s: float = 6.0
    ) -> int | None:
        self._may("take_term")
        return await super().take_term(holder, ttl_s=ttl_s, since_last_s=since_last_s, gap_s=gap_s)

    async def lost(self, *, limit: int = 1_000) -> list[LostLease]:
        self._may("lost")
        return await super().lost(limit=limit)

    async def bury_expired(self) -> set[UUID]:
        self._may("bury_expired")
        return await super().bury_expired()

    async def reservations(self) -> list[Reservation]:
        self._may("reservations")
        return await super().reservations()


class Unopposed(Upkeep):
    """An upkeep that lets everyone lead who asks."""

    async def take_term(
        self, holder: UUID, *, ttl_s: float, since_last_s: float | None = None, gap_s: float = 6.0
    ) -> int | None:
        return 1


def leader(
    store: Store, waker: NoWaker | None = None, upkeep: Upkeep | None = None, lease: LeaseConfig = QUICK
) -> Leader:
    return Leader(
        upkeep or Upkeep(store.postgres),
        store.claims(),
        waker or NoWaker(),
        holder=uuid4(),
        lease=lease,
        placement=AT_ONCE,
        draw=lambda: 0.5,
    )


@asynccontextmanager
async def running(*leaders: Leader) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(one.run()) for one in leaders]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(end, asyncio.CancelledError) for end in ended), ended


async def holds(term: Term) -> bool:
    return term.held


# The term. ------------------------------------------------------------------------------------------------------------


async def test_a_leader_that_stops_is_succeeded_at_once(store: Store) -> None:
    first, second = leader(store), leader(store)
    async with running(first):
        await aeventually(lambda: holds(first.term))
        task = asyncio.create_task(second.run())
        assert not second.term.held
    await aeventually(lambda: holds(second.term), timeout_s=2)
    assert second.term.number == 2
    assert not first.term.held
    task.cancel()
    await asyncio.wait({task})


async def test_a_leader_that_vanishes_is_succeeded_within_five_seconds(store: Store) -> None:
    assert await store.upkeep.take_term(uuid4(), ttl_s=3) == 1  # and is never heard of again
    second = leader(store)
    async with running(second):
        await aeventually(lambda: holds(second.term), timeout_s=5)


async def test_a_leader_that_cannot_renew_knows_by_its_own_clock_that_its_term_is_over(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    upkeep = Failing(store.postgres)
    term = Term(upkeep, uuid4(), ttl_s=0.3, renew_s=0.05)
    standing = asyncio.create_task(term.stand())
    await asyncio.wait_for(term.gained(), 5)
    upkeep.fails["take_term"] = Unavailable("away")
    assert term.held
    await aeventually(lambda: lost(term), timeout_s=2)
    assert len([r for r in caplog.records if "neither taken nor renewed" in r.message]) == 1, "said once, not each time"
    upkeep.fails.clear()
    await asyncio.wait_for(term.gained(), 5)
    assert term.number == 2
    standing.cancel()


async def lost(term: Term) -> bool:
    return not term.held


async def test_a_leader_whose_term_was_taken_by_another_stops(store: Store, sql: Sql) -> None:
    term = Term(store.upkeep, uuid4(), renew_s=0.05)
    standing = asyncio.create_task(term.stand())
    await asyncio.wait_for(term.gained(), 5)
    await sql.execute("update windlass.leader set holder = $1, term = 2", uuid4())
    await aeventually(lambda: lost(term), timeout_s=2)
    standing.cancel()


# The chores. ----------------------------------------------------------------------------------------------------------


async def test_due_jobs_become_ready_and_workers_are_woken_for_them(rig: Rig, store: Store, sql: Sql) -> None:
    waker = Heard()
    await rig.enqueue(2_500, delay_s=60, queue="a")
    await rig.enqueue(3, delay_s=60, thread_demand=2)
    await sql.execute("update windlass.scheduled set ready_at = now() - interval '1 s'")
    async with running(leader(store, waker)):
        await aeventually(lambda: counted(store, Status.READY, 2_503))
        await aeventually(lambda: heard(waker, 2_503), timeout_s=1)
    assert {want[:3] for want in waker.wants} == {("a", "echo", 1), ("default", "echo", 2)}


async def counted(store: Store, status: Status, count: int) -> bool:
    return sum(n for (_, _, of), n in (await store.views.counts()).items() if of is status) == count


async def heard(waker: Heard, count: int) -> bool:
    return sum(want.count for want in waker.wants) == count


async def test_the_jobs_of_the_dead_are_given_back_and_workers_are_woken_for_them(rig: Rig, store: Store) -> None:
    waker = Heard()
    await rig.enqueue(5)
    worker = await rig.worker()
    await worker.claim()
    await store.upkeep.bury([worker.id], "crashed")
    async with running(leader(store, waker)):
        await aeventually(lambda: counted(store, Status.READY, 5))
        await aeventually(lambda: heard(waker, 5), timeout_s=1)
    assert waker.wants == [Want("default", "echo", 1, 5)]


async def test_the_next_page_of_lost_jobs_is_reaped_at_once(rig: Rig, store: Store) -> None:
    await rig.enqueue(2_500)
    worker = await rig.worker()
    assert len(await worker.claim(1, budget=2_500, most=2_500)) == 2_500
    await store.upkeep.bury([worker.id], "crashed")
    async with running(leader(store, lease=LeaseConfig(reap_tick_s=60))):
        await aeventually(lambda: counted(store, Status.READY, 2_500))


async def test_a_leader_reaps_from_its_first_moment_on(rig: Rig, store: Store) -> None:
    """Where no supervisor lives for long, nobody would ever be old enough."""
    await rig.enqueue()
    worker = await rig.worker()
    await worker.claim()
    await store.upkeep.renew([worker.id], lease_ttl_s=0)
    one = leader(store, lease=LeaseConfig(lease_ttl_s=3600, reap_tick_s=0.05))
    async with running(one):
        await aeventually(lambda: counted(store, Status.READY, 1))


async def test_who_does_not_lead_reaps_what_the_leader_is_late_with(rig: Rig, store: Store) -> None:
    """A leader that was killed holds its term for seconds, and its successor may be killed, too."""
    assert await store.upkeep.take_term(uuid4(), ttl_s=3600) == 1  # and is never heard of again
    await rig.enqueue()
    worker = await rig.worker()
    await worker.claim()
    await store.upkeep.renew([worker.id], lease_ttl_s=0)
    other = leader(store)
    async with running(other):
        await aeventually(lambda: counted(store, Status.READY, 1))
        assert not other.term.held


async def test_a_leader_new_to_the_server_gives_leases_of_before_their_whole_length_and_then_reaps(
    rig: Rig, store: Store, sql: Sql
) -> None:
    await rig.enqueue()
    worker = await rig.worker()
    await worker.claim()
    await store.upkeep.renew([worker.id], lease_ttl_s=1)
    await sql.execute("update windlass.server set started_at = started_at - interval '1 h'")  # it was another then
    async with running(leader(store)):
        await aeventually(lambda: counted(store, Status.READY, 1))
    died_at = await sql.fetchval("select died_at from windlass.worker")
    assert (died_at - await sql.fetchval("select clock_since from windlass.server")).total_seconds() >= 1


async def test_a_chore_that_cannot_be_done_is_no_outage_while_the_term_is_renewed(
    rig: Rig, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    """Or one locked row, at which a statement times out again and again, would keep all the expired from being buried."""
    await rig.enqueue()
    worker = await rig.worker()
    await worker.claim()
    await store.upkeep.renew([worker.id], lease_ttl_s=0)
    upkeep = Failing(store.postgres)
    upkeep.fails["lost"] = Unavailable("canceling statement due to statement timeout")
    one = leader(store, upkeep=upkeep)
    async with running(one):
        await aeventually(lambda: complained(caplog, "'reap' failed 4 times"))
        await aeventually(lambda: buried(store))
        upkeep.fails.clear()
        await aeventually(lambda: counted(store, Status.READY, 1))


async def buried(store: Store) -> bool:
    return all(worker.died_at is not None for worker in await store.views.workers())


async def test_a_locked_row_of_a_dead_worker_keeps_no_chore_from_its_time(rig: Rig, store: Store, sql: Sql) -> None:
    await rig.enqueue(5)
    worker = await rig.worker()
    leases = await worker.claim()
    await store.upkeep.bury([worker.id], "crashed")
    async with sql.transaction():
        await sql.execute("update windlass.running set progress = 0.5 where job_id = $1", leases[0].job_id)
        async with running(leader(store)):
            await aeventually(lambda: counted(store, Status.READY, 4))
            await rig.enqueue(delay_s=0.01)
            await aeventually(lambda: counted(store, Status.READY, 5), timeout_s=2)
    assert (await store.views.counts())["default", "echo", Status.RUNNING] == 1


async def test_a_chore_that_waits_for_ever_is_given_up_and_leaves_its_lane_to_others(
    rig: Rig, store: Store, sql: Sql, caplog: pytest.LogCaptureFixture
) -> None:
    """Two leaders, one of them frozen between a statement and its commit: its reservations are locked."""
    worker = await rig.worker()
    (job_id,) = await rig.enqueue(thread_demand=8)
    await store.upkeep.reserve([Reservation(worker.id, job_id, 8)], ttl_s=60)
    one = leader(store)
    one._chores = tuple(chore._replace(limit_s=0.3) for chore in one._chores)
    async with sql.transaction():
        await sql.execute("select from windlass.reservation for update")
        async with running(one):
            await aeventually(lambda: complained(caplog, "'reserve' failed 2 times: given up after 0.3 s"))
            await rig.enqueue(delay_s=0.01)
            await aeventually(lambda: counted(store, Status.READY, 2))
            assert one.term.number == 1


async def test_a_leader_whose_connections_are_cut_goes_on(rig: Rig, store: Store, sql: Sql) -> None:
    one = leader(store)
    async with running(one):
        await asyncio.wait_for(one.term.gained(), 5)
        for _ in range(3):
            await sql.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity"
                " where datname = current_database() and pid <> pg_backend_pid()"
            )
            await aeventually(lambda: delayed(rig))
        await aeventually(lambda: counted(store, Status.READY, 3))
        assert one.term.held


async def delayed(rig: Rig) -> bool:
    """One job that is due at once; the enqueue meets the cut connections, too."""
    try:
        await rig.enqueue(delay_s=0.001)
    except Unavailable:
        return False
    return True


async def test_a_chore_that_fails_stops_no_other_and_says_so_sparingly(
    rig: Rig, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    upkeep = Failing(store.postgres)
    upkeep.fails = {"bury_expired": ZeroDivisionError("a fault of ours"), "reservations": Unavailable("away")}
    one = leader(store, upkeep=upkeep)
    with caplog.at_level(logging.INFO):
        async with running(one):
            await aeventually(lambda: complained(caplog, "'reap' failed 2"))
            await rig.enqueue(delay_s=0.01)
            await aeventually(lambda: counted(store, Status.READY, 1))
            upkeep.fails.clear()
            await aeventually(lambda: complained(caplog, "'reap' works again"))
    told = [record for record in caplog.records if "'reap' failed" in record.message]
    assert len(told) <= 4
    assert all(record.exc_info for record in told), "a fault of ours comes with where it was"


async def complained(caplog: pytest.LogCaptureFixture, text: str) -> bool:
    return text in caplog.text


# Two at once. ---------------------------------------------------------------------------------------------------------


async def test_two_leaders_at_once_double_nothing_and_lose_nothing(rig: Rig, store: Store, sql: Sql) -> None:
    """As if each had not noticed the other: both hold a term, promote, reap, reserve and narrow the same jobs."""
    await rig.enqueue(20, thread_demand=4)
    await rig.enqueue(10, thread_demand=64)
    await rig.enqueue(1_500, delay_s=60)
    await rig.enqueue(1_500)
    workers = [await rig.worker(threads=4) for _ in range(6)]
    for worker in workers:
        await worker.claim(1, budget=200, most=200)
    for worker in workers[:4]:
        await store.upkeep.bury([worker.id], "crashed")
    await sql.execute("update windlass.scheduled set ready_at = now() - interval '1 s'")
    first, second = (leader(store, upkeep=Unopposed(store.postgres)) for _ in range(2))
    async with running(first, second):
        await aeventually(lambda: counted(store, Status.RUNNING, 400), timeout_s=20)
        await aeventually(lambda: counted(store, Status.READY, 1_500 + 1_500 + 30 - 400), timeout_s=20)
        await aeventually(lambda: reserved(store), timeout_s=10)
        await aeventually(lambda: narrowed(sql))
    assert (await store.views.check()).clean
    assert await sql.fetchval("select count(*) from windlass.attempt where status = 'lost'") == 800
    assert await sql.fetchval("select max(n) from (select count(*) n from windlass.attempt group by job_id) a") == 1


async def reserved(store: Store) -> bool:
    return len(await store.upkeep.reservations()) == 1


async def narrowed(sql: Sql) -> bool:
    return bool(await sql.fetchval("select count(*) = 20 from windlass.ready where thread_demand > 1"))
