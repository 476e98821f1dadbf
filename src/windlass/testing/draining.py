"""Run what is queued to the end, in the process of the test, without waiting for anything.

One job at a time, in the order in which a worker with one thread would take them. When none is ready, time passes for the
scheduled ones until the next is due: delays, back-offs and snoozes take no time, and jobs run in the order they would.
"""

import asyncio
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final
from uuid import UUID

from windlass.app import App
from windlass.config import Config, StoreConfig, WorkerConfig
from windlass.model import Job, Lease, Status
from windlass.store.protocol import JobQuery
from windlass.store.store import Store, open_store
from windlass.store.testing import pass_time
from windlass.testing.database import current_database
from windlass.testing.in_process import in_process_worker
from windlass.worker.hooks import start_worker, stop_worker
from windlass.worker.loading import Apps
from windlass.worker.registry import JobType

# A test need not be patient with a handler whose time is over.
WORKER: Final = WorkerConfig(stop_ask_s=0.05)
STARTS_MAX: Final = 100  # of one job in one drain
RUNS_MAX: Final = 10_000  # of all of them
_WAITING: Final = (Status.SCHEDULED, Status.HELD, Status.READY, Status.RUNNING)
_SHOWN: Final = 10


@dataclass(slots=True)
class Drained:
    """What a drain did. `runs`: attempts; `passed_s`: time that was let pass for scheduled jobs. `waiting`: jobs that were
    not run, because they are due later, their queue is paused, or no App here knows their type."""

    runs: int = 0
    passed_s: float = 0.0
    completed: list[Job] = field(default_factory=list)
    failed: list[Job] = field(default_factory=list)
    cancelled: list[Job] = field(default_factory=list)
    waiting: list[Job] = field(default_factory=list)


class DrainFailed(AssertionError):
    """Jobs went to the dead letters. `drained` is what was done all the same."""

    def __init__(self, drained: Drained) -> None:
        jobs = drained.failed
        shown = "\n".join(_failure(job) for job in jobs[:_SHOWN])
        more = f"\n… and {len(jobs) - _SHOWN} more" if len(jobs) > _SHOWN else ""
        super().__init__(f"{len(jobs)} of the jobs that were run failed for good:\n{shown}{more}")
        self.drained = drained


class EndlessDrain(AssertionError):
    """A job, or a chain of jobs, would never come to an end."""


def drain(
    *apps: App,
    until: timedelta | datetime | None = None,
    max_jobs: int | None = None,
    raises: bool = True,
) -> Drained:
    """Run what is queued until nothing is left, from a program without a loop; `await adrain(…)` elsewhere.

    `until`: jobs that are due later stay; a moment, or how much time may pass. `max_jobs`: stop after so many attempts.
    Raises DrainFailed if a job went to the dead letters, unless `raises` is False, and EndlessDrain if it would never end.
    Without `apps`, those of the innermost `temporary_database`.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(adrain(*apps, until=until, max_jobs=max_jobs, raises=raises))
    raise RuntimeError("drain() would block the loop that runs here: await adrain()")


async def adrain(
    *apps: App,
    until: timedelta | datetime | None = None,
    max_jobs: int | None = None,
    raises: bool = True,
) -> Drained:
    """As `drain`, on the running loop: `async def` handlers can use what the test has opened on it."""
    database = current_database()
    at_most_s = _seconds_until(until)
    async with open_store(database.config) as store:
        using = apps or database.apps
        together = Apps({f"App {app.name!r} ({n})": app for n, app in enumerate(using, start=1)})
        together.attach(store.intake, store.views)
        try:
            await start_worker(together.worker_starts)
            drained = await _Drain(database.config, store, together.types, at_most_s, max_jobs).run()
        finally:
            await stop_worker(together.worker_stops)
            for app in using:
                app.detach()
    if drained.failed and raises:
        raise DrainFailed(drained)
    return drained


class _Drain:
    def __init__(
        self,
        config: StoreConfig,
        store: Store,
        types: Mapping[str, JobType],
        at_most_s: float,
        max_jobs: int | None,
    ) -> None:
        self._config = config
        self._store = store
        self._types = types
        self._at_most_s = at_most_s
        self._max_jobs = math.inf if max_jobs is None else max_jobs
        self._drained = Drained()
        self._starts: Counter[UUID] = Counter()
        self._names: dict[UUID, str] = {}

    async def run(self) -> Drained:
        await self._store.upkeep.declare([job.declared() for job in self._types.values()])
        queues = await self._queues()
        config = Config(store=self._config, worker=WORKER)
        async with in_process_worker(config, self._store, self._types, queues) as worker:
            while self._drained.runs < self._max_jobs:
                lease = await worker.run_one(queues)
                if lease is not None:
                    self._note(lease)
                elif (found := await self._queues()) != queues:
                    queues = found
                elif not await self._pass_time():
                    break
        await self._look_at_the_end()
        return self._drained

    async def _queues(self) -> list[str]:
        there = {queue.name for queue in await self._store.views.queues()}
        return sorted(there | {job.queue for job in self._types.values()})

    async def _pass_time(self) -> bool:
        passed_s = await pass_time(self._store.postgres, self._at_most_s - self._drained.passed_s)
        if passed_s is None:
            return False
        self._drained.passed_s += passed_s
        await self._store.upkeep.promote()
        return True

    def _note(self, lease: Lease) -> None:
        self._drained.runs += 1
        self._starts[lease.job_id] += 1
        self._names[lease.job_id] = lease.type
        if self._starts[lease.job_id] >= STARTS_MAX:
            raise EndlessDrain(
                f"job {lease.job_id} ({lease.type}) was started {STARTS_MAX} times in one drain, and is still not finished: does "
                f"it snooze for ever? drain(until=…) or drain(max_jobs=…) ends earlier"
            )
        if self._drained.runs >= RUNS_MAX:
            often = ", ".join(f"{n:,} of {type_}" for type_, n in Counter(self._names.values()).most_common(3))
            raise EndlessDrain(
                f"{RUNS_MAX:,} attempts in one drain, and jobs are still left ({often}): does a job enqueue itself? "
                f"drain(until=…) or drain(max_jobs=…) ends earlier"
            )

    async def _look_at_the_end(self) -> None:
        drained, views = self._drained, self._store.views
        places = {
            Status.COMPLETED: drained.completed,
            Status.FAILED: drained.failed,
            Status.CANCELLED: drained.cancelled,
        }
        for job_id in self._starts:
            job = await views.job(job_id)
            places.get(job.status, []).append(job)
        drained.waiting.extend(reversed((await views.jobs(JobQuery(_WAITING, limit=200))).jobs))


def _seconds_until(until: timedelta | datetime | None) -> float:
    match until:
        case None:
            return math.inf
        case timedelta():
            return until.total_seconds()
        case datetime(tzinfo=None):
            raise ValueError("until: a moment needs its time zone, as in datetime.now(UTC)")
        case _:
            return (until - datetime.now(UTC)).total_seconds()


def _failure(job: Job) -> str:
    error = job.error
    head = f"- {job.type} {job.payload} (job {job.id}, attempt {job.attempt})"
    if error is None:
        return head
    text = error.traceback.rstrip() or f"{error.type}: {error.message}"
    return "\n".join([head, *(f"    {line}" for line in text.splitlines())])
