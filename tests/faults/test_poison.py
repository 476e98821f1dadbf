"""Jobs that kill their process, among innocent ones: the guilty go to the dead letters, the others lose nothing."""

from collections import Counter
from pathlib import Path
from uuid import UUID

from tests.eventually import aeventually
from tests.faults.ledger import entries
from tests.faults.node import node
from tests.faults.poison_app import DEADLY
from windlass.lifecycle import crashes_max
from windlass.model import FINISHED, Job, NewJob, Status
from windlass.store.store import Store

APP = "tests.faults.poison_app:app"
NEIGHBOURS = 200


async def test_poison_is_dead_lettered_after_three_crashes_of_its_own_and_neighbours_lose_nothing(
    url: str, store: Store, tmp_path: Path
) -> None:
    ledger = tmp_path / "ledger"
    neighbours, poison = await _mixed(store)
    with node(url, ledger, app=APP, processes=2, threads=4) as here:
        here.ready(2)
        jobs = await _all_finish(store, [*neighbours, *poison])
        log = here.log.read_text()
    _neighbours_lost_nothing([jobs[one] for one in neighbours], ledger)
    for one in poison:
        await _died_of_poison(store, jobs[one])
    # Each killed at most one worker; from then on a process of its own.
    assert log.count("with exit code 7") + log.count("by signal") <= len(poison), log


async def _mixed(store: Store) -> tuple[list[UUID], list[UUID]]:
    """The poison spread evenly among its neighbours, half of which are coroutines and half functions."""
    kinds = ("work", "toil")
    jobs = [NewJob(kinds[n % 2], {"seconds": 0.02 + 0.1 * (n % 5 == 0)}) for n in range(NEIGHBOURS)]
    every = NEIGHBOURS // len(DEADLY)
    for n, deadly in enumerate(DEADLY):
        jobs.insert(n * (every + 1) + every // 2, NewJob(deadly, max_attempts=10))
    made = await store.intake.enqueue(jobs)
    guilty = {one.id for one, job in zip(made, jobs, strict=True) if job.type in DEADLY}
    return [one.id for one in made if one.id not in guilty], list(guilty)


async def _all_finish(store: Store, ids: list[UUID]) -> dict[UUID, Job]:
    async def finished() -> dict[UUID, Job] | None:
        counts = await store.views.counts()
        if sum(n for (_, _, status), n in counts.items() if status in FINISHED) < len(ids):
            return None
        return {one: await store.views.job(one) for one in ids}

    jobs = await aeventually(finished, 60)
    assert jobs is not None
    return jobs


def _neighbours_lost_nothing(jobs: list[Job], ledger: Path) -> None:
    assert Counter(job.status for job in jobs) == {Status.COMPLETED: NEIGHBOURS}
    # A start that died with its worker is counted. The next one is in a process of its own, which dies with its worker, too, should
    # another poison kill that meanwhile.
    assert [job for job in jobs if job.failures > 2] == []
    ended = {(entry.job_id, f'"{entry.token}"') for entry in entries(ledger) if entry.what == "end"}
    assert [job for job in jobs if (job.id, job.result) not in ended] == []
    # What was interrupted is what was under way in a worker that was killed: 3 other threads of it at most each time.
    starts, ends = ([(e.job_id, e.attempt) for e in entries(ledger) if e.what == what] for what in ("start", "end"))
    interrupted = set(starts) - set(ends)
    assert len([job_id for job_id, _ in interrupted if job_id in {job.id for job in jobs}]) <= 3 * len(DEADLY)


async def _died_of_poison(store: Store, job: Job) -> None:
    assert job.status is Status.FAILED, job
    assert job.error is not None
    assert job.error.type == "PoisonPill", job
    assert f"{crashes_max} times" in job.error.message
    attempts = await store.views.attempts(job.id)
    # The death of a worker only makes it a suspect. Its own process dies with a worker that another poison kills, too: neither
    # is a crash of its own.
    crashed = [attempt for attempt in attempts if attempt.error is not None and attempt.error.type != "Lost"]
    assert [attempt.error and attempt.error.type for attempt in crashed] == ["Crashed", "Crashed", "PoisonPill"]
    assert len(attempts) == len(crashed) + len([one for one in attempts if one.error and one.error.type == "Lost"])
    for earlier, later, least_s in zip(crashed, crashed[1:], (0.8, 1.6), strict=False):  # 1 s and 2 s, less the jitter
        assert later.started_at is not None
        assert (later.started_at - earlier.ended_at).total_seconds() >= least_s
