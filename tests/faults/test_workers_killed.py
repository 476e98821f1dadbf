"""Whole nodes, killed and frozen: every job is started again in time, and finishes once."""

import asyncio
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from pathlib import Path
from uuid import UUID

import psutil
import pytest

from tests.eventually import aeventually
from tests.faults.ledger import Entry, starts
from tests.faults.node import Node, node
from tests.pressure import Stopwatch
from windlass.clock import steady_s
from windlass.model import Job, NewJob, Status
from windlass.store.postgres import Connection
from windlass.store.store import Store

Nodes = Callable[..., Node]


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    return tmp_path / "ledger"


async def test_jobs_of_a_killed_worker_start_again_within_a_second(url: str, store: Store, ledger: Path) -> None:
    with node(url, ledger, processes=2, threads=4) as here:
        here.ready(2)
        ids = await _running(store, ledger, 6)
        victim = here.workers[0]
        watch = Stopwatch()
        lost = await _kill(ledger, [victim])
        assert lost
        assert max(await _restarts(ledger, lost)) < 1 + watch.waited_s
        await _all_finish(store, ids)
    assert not await _burned(store, ids)


async def test_jobs_of_a_killed_supervisor_start_again_within_two_seconds(url: str, store: Store, ledger: Path) -> None:
    with ExitStack() as stack:
        doomed = stack.enter_context(node(url, ledger, threads=4))
        doomed.ready()
        ids = await _running(store, ledger, 4, seconds=10)  # longer than the other takes to start
        other = stack.enter_context(node(url, ledger, threads=4))
        other.ready()
        watch = Stopwatch()
        lost = await _kill(ledger, [psutil.Process(doomed.pid)], doomed.workers)
        assert lost == set(ids)
        assert max(await _restarts(ledger, lost)) < 2 + watch.waited_s
        await _all_finish(store, ids)
    assert not await _burned(store, ids)


async def test_jobs_of_a_dead_machine_start_again_within_the_lease_and_a_second(
    url: str, store: Store, ledger: Path
) -> None:
    with ExitStack() as stack:
        lease = {"lease_ttl_s": 3, "heartbeat_s": 0.5}
        # The other leads: it was there first, and has been for longer than a lease.
        other = stack.enter_context(node(url, ledger, threads=8, **lease))
        other.ready()
        doomed = stack.enter_context(node(url, ledger, threads=4, **lease))
        doomed.ready()
        ids = await _running(store, ledger, 10)
        guards = doomed.guards
        watch = Stopwatch()
        lost = await _kill(ledger, [*guards, psutil.Process(doomed.pid)], doomed.workers)
        assert lost
        assert max(await _restarts(ledger, lost)) < 3 + 1 + watch.waited_s
        await _all_finish(store, ids)
    assert not await _burned(store, ids)


async def test_what_a_frozen_node_writes_after_its_lease_is_refused(url: str, store: Store, ledger: Path) -> None:
    with ExitStack() as stack:
        lease = {"lease_ttl_s": 3, "heartbeat_s": 0.5}
        other = stack.enter_context(node(url, ledger, threads=8, **lease))
        other.ready()
        frozen = stack.enter_context(node(url, ledger, threads=4, **lease))
        frozen.ready()
        ids = await _running(store, ledger, 10, seconds=6)
        pids = {one.pid for one in frozen.workers}
        lost = {entry.job_id for entry in starts(ledger) if entry.pid in pids}
        assert lost
        since_s = steady_s()
        stopped = frozen.freeze()
        await _restarts(ledger, lost, since_s=since_s)
        for one in stopped:
            with suppress(psutil.NoSuchProcess):  # its supervisor, thawed before it, has ended it
                one.resume()
        jobs = await _all_finish(store, ids)
        for job in jobs:
            by_token = {str(e.token): e for e in starts(ledger) if e.job_id == job.id}
            # The result is the token of the attempt that wrote it: of a lost job, not the frozen one's.
            assert job.result is not None
            assert by_token[job.result.strip('"')].pid not in (pids if job.id in lost else set())
    assert not await _burned(store, ids)


# Jobs that were handed to a worker that cannot hear of it. --------------------------------------------------------------


async def test_a_job_handed_to_a_worker_that_is_killed_before_it_hears_starts_elsewhere_within_a_second(
    url: str, store: Store, sql: Connection, ledger: Path
) -> None:
    with ExitStack() as stack:
        doomed = stack.enter_context(node(url, ledger, threads=4))
        await _rest(sql, 1)
        other = stack.enter_context(node(url, ledger, threads=4))
        await _rest(sql, 2)
        for worker in doomed.workers:
            worker.suspend()
        job_id = await _handed(store)
        watch = Stopwatch()
        await _kill(ledger, doomed.workers)
        assert max(await _restarts(ledger, {job_id})) < 1 + watch.waited_s
        await _all_finish(store, [job_id])
        assert [entry.pid for entry in starts(ledger)] == [worker.pid for worker in other.workers]
    assert not await _burned(store, [job_id])


async def test_no_job_is_handed_to_a_node_that_was_killed_though_nobody_has_noticed_yet(
    url: str, store: Store, sql: Connection, ledger: Path
) -> None:
    with ExitStack() as stack:
        doomed = stack.enter_context(
            node(url, ledger, threads=4, processes=2, poll_s=60)
        )  # its word is good for a minute
        await _rest(sql, 2)
        stack.enter_context(node(url, ledger, threads=4))
        await _rest(sql, 3)
        doomed.destroy()
        jobs = [(await store.intake.enqueue([NewJob("work")]))[0].id for _ in range(3)]
        watch, since_s = Stopwatch(), steady_s()
        await _all_finish(store, jobs)
        assert max(entry.at_s for entry in starts(ledger)) - since_s < 3 + watch.waited_s, "found by the next poll"
        assert [entry.attempt for entry in starts(ledger)] == [1, 1, 1]


async def test_a_job_handed_to_a_frozen_node_runs_elsewhere_and_is_not_begun_again_when_it_thaws(
    url: str, store: Store, sql: Connection, ledger: Path
) -> None:
    with ExitStack() as stack:
        lease = {"lease_ttl_s": 3, "heartbeat_s": 0.5}
        stack.enter_context(node(url, ledger, threads=4, **lease))  # it leads
        await _rest(sql, 1)
        frozen = stack.enter_context(node(url, ledger, threads=4, **lease))
        await _rest(sql, 2)
        await _all_finish(store, [await _handed(store)])  # by the first in line, which is the last now
        await _rest(sql, 2)
        old = {worker.pid for worker in frozen.workers}
        stopped = frozen.freeze()
        job_id = await _handed(store)
        (job,) = await _all_finish(store, [job_id])
        for one in stopped:
            with suppress(psutil.NoSuchProcess):  # its supervisor, thawed before it, has ended it
                one.resume()

        async def replaced() -> bool:
            return bool(pids := {worker.pid for worker in frozen.workers}) and not pids & old

        await aeventually(replaced, 30)
        (entry,) = [entry for entry in starts(ledger) if entry.job_id == job_id]
        assert entry.pid not in old
        assert job.attempt == entry.attempt == 2
    assert not await _burned(store, [job_id])


async def _rest(sql: Connection, count: int) -> None:
    """Until so many workers may be handed a job."""

    async def there() -> bool:
        return bool(await sql.fetchval("select count(hand_key) from windlass.idle") == count)

    await aeventually(there, 30)


async def _handed(store: Store) -> UUID:
    (stored,) = await store.intake.enqueue([NewJob("work")])
    assert (await store.views.job(stored.id)).status in (Status.RUNNING, Status.COMPLETED)
    return stored.id


# What they share. -------------------------------------------------------------------------------------------------------


async def _running(store: Store, ledger: Path, count: int, seconds: float = 2.5) -> list[UUID]:
    """Enqueue, and wait until all have begun."""
    made = await store.intake.enqueue([NewJob("work", {"seconds": seconds})] * count)
    await store.hints.call_all()

    async def begun() -> bool:
        return len({entry.job_id for entry in starts(ledger)}) >= count

    await aeventually(begun, 40)
    return [one.id for one in made]


async def _kill(ledger: Path, victims: Iterable[psutil.Process], workers: Iterable[psutil.Process] = ()) -> set[UUID]:
    """Kill them; returns the jobs that were under way in the victims or in these workers."""
    victims = list(victims)
    pids = {one.pid for one in (*victims, *workers)}
    for one in victims:
        one.kill()
    return {entry.job_id for entry in starts(ledger) if entry.pid in pids}


async def _restarts(
    ledger: Path, lost: set[UUID], *, since_s: float | None = None, timeout_s: float = 30
) -> list[float]:
    """How long after now each of these jobs was started again."""
    now_s = steady_s() if since_s is None else since_s
    first: dict[UUID, Entry] = {}

    async def again() -> bool:
        for entry in starts(ledger):
            if entry.job_id in lost and entry.at_s > now_s:
                first.setdefault(entry.job_id, entry)
        return set(first) == lost

    await aeventually(again, timeout_s)
    return [entry.at_s - now_s for entry in first.values()]


async def _all_finish(store: Store, ids: list[UUID]) -> list[Job]:
    async def finished() -> bool:
        return all([(await store.views.job(job_id)).status is Status.COMPLETED for job_id in ids])

    await aeventually(finished, 40)
    return [await store.views.job(job_id) for job_id in ids]


async def _burned(store: Store, ids: list[UUID]) -> list[Job]:
    """Jobs with more failures than starts that died."""
    jobs = await asyncio.gather(*(store.views.job(job_id) for job_id in ids))
    lost = [[one for one in await store.views.attempts(job_id) if one.status == "lost"] for job_id in ids]
    return [job for job, died in zip(jobs, lost, strict=True) if job.failures > len(died)]
