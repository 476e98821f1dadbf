"""A real worker in the process of the test. The drain is its supervisor, and lets it claim one job at a time.

Everything else is the worker's own: claims, runners, deadlines, settlements, hooks and logs.
"""

import asyncio
import copy
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, Final
from uuid import UUID, uuid4

from windlass.bus.protocol import NoWaker
from windlass.clock import steady_s
from windlass.config import Config
from windlass.errors import WindlassError
from windlass.lifecycle import Outcome
from windlass.model import Lease, NewWorker, thread_demand_max
from windlass.store.claims import Claims
from windlass.store.hints import Hints
from windlass.store.postgres import Postgres
from windlass.store.protocol import Ask
from windlass.store.store import Store
from windlass.testing.logs import keeping_logs
from windlass.worker.claimer import Post
from windlass.worker.control import Control, Message
from windlass.worker.registry import JobType
from windlass.worker.run import Run
from windlass.worker.slots import Slots
from windlass.worker.worker import Worker

# Nobody renews it: a test may stop at a breakpoint.
_LEASE_S: Final = 86_400.0
_LOOK_S: Final = 0.001


class OneByOneClaims(Claims):
    """The claims of a worker that gets a job only when the drain asks for one."""

    def __init__(self, postgres: Postgres) -> None:
        super().__init__(postgres)
        self.queues: Sequence[str] = ()
        self._wanted: asyncio.Future[Lease | None] | None = None

    def want_one(self) -> "asyncio.Future[Lease | None]":
        """The next job that the worker is given; None if none is ready."""
        self._wanted = asyncio.get_running_loop().create_future()
        return self._wanted

    async def claim(self, ask: Ask) -> list[Lease]:
        wanted, self._wanted = self._wanted, None
        if wanted is None:
            return []
        self.look_afresh()
        try:
            leases = await super().claim(replace(ask, queues=self.queues, most=1))
        except BaseException:
            self._wanted = wanted  # the worker tries again
            raise
        wanted.set_result(leases[0] if leases else None)
        return leases


class Unlisted(Hints):
    """The hints of a worker that nobody wakes: it does not say that it is idle."""

    async def rest(self, worker_id: UUID, **said: Any) -> int:  # noqa: ARG002 - whoever it is
        return 0

    async def leave(self, worker_id: UUID) -> None: ...


class NoSupervisor(Control):
    """Stands where a supervisor would be: it says nothing, and remembers what the worker could not cope with."""

    def __init__(self) -> None:
        self.problem: str | None = None

    def say(self, say: str, **fields: Any) -> bool:
        if say == "stuck":
            self.problem = "a handler does not stop, although its time is over"
        elif say == "leave":
            self.problem = str(fields["problem"])
        return True

    async def hear(self) -> Message | None:
        await asyncio.Event().wait()
        return None


class NoChildren:
    """Isolated jobs run in the test's own process: a child could not import what a test has declared."""

    async def run(self, run: Run) -> Outcome:
        raise WindlassError(f"job {run.lease.job_id} has crashed its process before, and is not run in that of a test")

    def kill(self, run: Run) -> None: ...


class InProcessWorker(Worker):
    """A worker that tells when it has nothing under way."""

    def __init__(self, post: Post, config: Config, store: Store, claims: OneByOneClaims, slots: Slots) -> None:
        self._changed = asyncio.Event()
        self._supervisor = NoSupervisor()
        self._one_by_one = claims
        super().__init__(
            post, config, slots=slots, control=self._supervisor, claims=claims, steps=store.claims(),
            finishes=store.claims(), hints=Unlisted(store.postgres), waker=NoWaker(),
            children=NoChildren(), die=self._give_up,
        )  # fmt: skip
        self._lanes.stirred = self._run_ended

    async def run_one(self, queues: Sequence[str]) -> Lease | None:
        """Run the first ready job of these queues to the end of its attempt; None: none is ready."""
        self._one_by_one.queues = queues
        wanted = self._one_by_one.want_one()
        self.hint()
        lease = await wanted
        while lease is not None and (self.desk.runs or self.desk.waiting() or self._settler.backlog):
            if self._supervisor.problem is not None:
                raise WindlassError(f"job {lease.job_id} ({lease.type}): {self._supervisor.problem}")
            self._changed.clear()
            await self._changed.wait()
        return lease

    async def leave(self) -> None:
        """End what `work` does."""
        self.drain()
        while not self._claimer.ended and self._supervisor.problem is None:  # noqa: ASYNC110 - nobody else waits for it
            await asyncio.sleep(_LOOK_S)  # it is on its way out
        self._lanes.end_threads()
        self._ended.set()

    def _run_ended(self) -> None:
        self._claimer.stir()
        self._changed.set()

    def _written(self) -> None:
        super()._written()
        self._changed.set()

    def _look(self) -> None:
        super()._look()
        if self._supervisor.problem is not None:
            self._changed.set()

    def _give_up(self, code: int) -> None:
        self._supervisor.problem = self._supervisor.problem or f"the worker ended with code {code}"
        self._changed.set()

    async def _leave_if_deaf(self, now_s: float) -> None:
        """It gets jobs when the drain says so."""


@asynccontextmanager
async def in_process_worker(
    config: Config, store: Store, types: Mapping[str, JobType], queues: Sequence[str]
) -> AsyncIterator[InProcessWorker]:
    """A registered worker of these types at work on the running loop."""
    known = {name: in_this_process(job) for name, job in types.items()}
    post = Post(uuid4(), known, dict.fromkeys(queues, 1))
    new = NewWorker(post.worker_id, f"test-{post.worker_id}", thread_demand_max, list(queues), list(known))
    await store.upkeep.register(new, lease_ttl_s=_LEASE_S)
    slots = Slots.create(thread_demand_max)
    slots.lease_until_s = steady_s() + _LEASE_S
    worker = InProcessWorker(post, config, store, OneByOneClaims(store.postgres), slots)
    work = asyncio.create_task(worker.work())
    try:
        with keeping_logs():
            yield worker
    finally:
        await worker.leave()
        await asyncio.gather(work, return_exceptions=True)
        slots.close()
        await store.upkeep.bury([post.worker_id], "left")


def in_this_process(job: JobType) -> JobType:
    """The type without its isolation."""
    if job.isolation == "none":
        return job
    here = copy.copy(job)
    here.isolation = "none"
    return here
