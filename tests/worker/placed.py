"""One real worker in the test's own loop: real store, real desk, lanes and settler; the test is its supervisor."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID, uuid4

from tests.factory import reached
from windlass.bus.postgres import Listener
from windlass.bus.protocol import NoWaker, Waker
from windlass.clock import steady_s
from windlass.config import Config, LeaseConfig, StoreConfig, WorkerConfig
from windlass.lifecycle import Outcome
from windlass.model import Job, NewJob, NewWorker, Status
from windlass.store.hints import Hints
from windlass.store.protocol import Ear, channel
from windlass.store.store import Store, open_store
from windlass.worker.claimer import Post
from windlass.worker.control import Control, Message
from windlass.worker.registry import JobType
from windlass.worker.run import Run
from windlass.worker.slots import Slots
from windlass.worker.worker import Worker

SOON = WorkerConfig(poll_s=0.05, stop_ask_s=0.05, stop_grace_s=0.4)


class NoChildren:
    """For tests whose jobs need no process of their own."""

    async def run(self, run: Run) -> Outcome:
        raise AssertionError(f"{run.lease.type} was to run in this process")

    def kill(self, run: Run) -> None:
        raise AssertionError(f"{run.lease.type} was to run in this process")


@dataclass(slots=True)
class Placed:
    """A worker at work. `said` is what it told its supervisor."""

    store: Store
    worker: Worker
    post: Post
    slots: Slots
    control: Control
    task: "asyncio.Task[int]"
    said: list[Message]

    @property
    def worker_id(self) -> UUID:
        return self.post.worker_id

    async def enqueue(self, type_: str, payload: Any = None, **fields: Any) -> UUID:
        (job,) = await self.store.intake.enqueue([NewJob(type_, payload, **fields)])
        self.worker.hint()
        return job.id

    async def reaches(self, job_id: UUID, *statuses: Status, timeout_s: float = 10) -> Job:
        return await reached(self.store, job_id, *statuses, timeout_s=timeout_s)

    async def run(self, type_: str, payload: Any = None, **fields: Any) -> Job:
        """Enqueue one and wait for its end."""
        job_id = await self.enqueue(type_, payload, **fields)
        return await self.reaches(job_id, Status.COMPLETED, Status.FAILED, Status.CANCELLED)

    async def cancel(self, job_id: UUID) -> None:
        """As a supervisor does it: ask in the store, then tell the worker."""
        await self.store.intake.cancel(job_id)
        asked = await self.store.upkeep.cancels([self.worker_id])
        for each, token in asked.get(self.worker_id, {}).items():
            self.control.say("cancel", job_id=str(each), token=str(token))

    async def drained(self, timeout_s: float = 10) -> int:
        self.control.say("drain")
        return await asyncio.wait_for(self.task, timeout_s)


def types_of(*functions: Callable[..., Any]) -> dict[str, JobType]:
    return {fn.__name__: JobType(fn) for fn in functions}


@asynccontextmanager
async def placed(
    config: StoreConfig,
    types: Mapping[str, JobType],
    *,
    threads: int = 4,
    queues: Mapping[str, int] | None = None,
    worker: WorkerConfig = SOON,
    lease: LeaseConfig | None = None,
    children: Any = None,
    listening: bool = False,
    deaf: bool = False,
    waker: Waker | None = None,
    hinting: Callable[[Hints], Hints] | None = None,
) -> AsyncIterator[Placed]:
    """A worker in this loop. `listening`: woken through the database, as submitters do it; else by the test's hint. `deaf`: it
    seems to listen, and hears nothing.
    `hinting`: what it rests by."""
    queues = queues or {"default": 1}
    if hinting is None:
        ear = Ear.LISTENS if listening or deaf else Ear.POLLS

        def hinting(hints: Hints) -> Hints:
            return hints.through(None, lambda: ear)

    async with open_store(replace(config, pool_min=2)) as store:
        ours, theirs = socket.socketpair()
        control, far = await Control.open(ours), await Control.open(theirs)
        slots = Slots.create(threads)
        slots.lease_until_s = steady_s() + 3600
        worker_id = uuid4()
        await store.upkeep.register(
            NewWorker(worker_id, f"test-{worker_id}", threads, list(queues), list(types)), lease_ttl_s=3600
        )
        post = Post(worker_id, types, queues)
        made = Worker(
            post, Config(store=config, worker=worker, lease=lease or LeaseConfig()), slots=slots, control=far,
            claims=store.claims(), steps=store.claims(), finishes=store.claims(), hints=hinting(store.hints), waker=NoWaker() if waker is None else waker,
            children=children or NoChildren(), die=lambda code: setattr(made, "_exit_code", code),
        )  # fmt: skip
        said: list[Message] = []
        hearing = asyncio.create_task(_hear(control, said))
        stack = AsyncExitStack()
        if listening or deaf:
            hear = made.hear if listening else _nothing
            names = [channel(worker_id), channel(post.hand_key)]
            await stack.enter_async_context(Listener(config, names, hear, presence=post.hand_key))
        one = Placed(store, made, post, slots, control, asyncio.create_task(made.work()), said)
        try:
            yield one
        finally:
            control.say("release")
            await asyncio.wait([one.task], timeout=5)
            one.task.cancel()
            hearing.cancel()
            await asyncio.gather(one.task, hearing, return_exceptions=True)
            await stack.aclose()
            control.close()
            far.close()
            slots.close()


async def _hear(control: Control, said: list[Message]) -> None:
    while (message := await control.hear()) is not None:
        said.append(message)


def _nothing(_name: str, _said: str) -> None:
    """Heard and forgotten."""
