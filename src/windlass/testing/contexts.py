"""A context to call a handler with directly, without a database: its steps, log and progress are kept in memory.

The context is the real one; what it would ask of a worker is answered here. `recorded(ctx)` tells what it was asked.
"""

from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar, overload
from uuid import UUID, uuid4

from windlass.app_job import AppJob
from windlass.blocking import driven
from windlass.clock import steady_s
from windlass.errors import Misconfigured
from windlass.lifecycle import Settlement
from windlass.model import IfUnknown, Lease
from windlass.payload import decode, encode
from windlass.store.protocol import EffectState, Intention
from windlass.telemetry import AttemptLog
from windlass.testing.logs import keep_context_logs
from windlass.worker.context import AsyncContext, Context
from windlass.worker.registry import JobType
from windlass.worker.run import Run, Stop

T = TypeVar("T")


@dataclass(slots=True)
class Recorded:
    """What a handler has done with its context. `progress`: every report, in order. `steps`: what `ctx.once` has kept, by key.
    `effects`: what is recorded of effects: `done`, or `unknown` while they are under way and after nobody knows.
    `result`: what it said with `ctx.finish` inside `ctx.transaction`; `finished`: that the block has ended well."""

    progress: list[tuple[float, str | None]] = field(default_factory=list)
    steps: dict[str, Any] = field(default_factory=dict)
    effects: dict[str, EffectState] = field(default_factory=dict)
    finished: bool = False
    result: Any = None
    _log: AttemptLog = field(default_factory=AttemptLog)

    @property
    def log(self) -> list[str]:
        """The lines of `ctx.log`."""
        return (self._log.text() or "").splitlines()


@overload
def context_for(
    job: AppJob[..., Any, ..., Coroutine[Any, Any, Any]],
    /,
    *,
    attempt: int = ...,
    failures: int = ...,
    threads: int = ...,
    cancelled: bool = ...,
    steps: Mapping[str, Any] | None = ...,
    effects: Mapping[str, EffectState] | None = ...,
    job_id: UUID | None = ...,
    tags: Sequence[str] = ...,
    idempotency_key: str | None = ...,
) -> AsyncContext: ...


@overload
def context_for(
    job: AppJob[..., Any, ..., Any],
    /,
    *,
    attempt: int = ...,
    failures: int = ...,
    threads: int = ...,
    cancelled: bool = ...,
    steps: Mapping[str, Any] | None = ...,
    effects: Mapping[str, EffectState] | None = ...,
    job_id: UUID | None = ...,
    tags: Sequence[str] = ...,
    idempotency_key: str | None = ...,
) -> Context: ...


def context_for(
    job: JobType,
    /,
    *,
    attempt: int = 1,
    failures: int = 0,
    threads: int | None = None,
    cancelled: bool = False,
    steps: Mapping[str, Any] | None = None,
    effects: Mapping[str, EffectState] | None = None,
    job_id: UUID | None = None,
    tags: Sequence[str] = (),
    idempotency_key: str | None = None,
) -> Any:
    """A context for this handler: `await send(context_for(send), "ann")`.

    `steps`: what `ctx.once` finds as done by an earlier attempt. `effects`: what `ctx.effect` finds, `done` or `unknown`.
    `cancelled`: it was told to stop.
    """
    lease = Lease(
        job_id=job_id or uuid4(), attempt=attempt, token=uuid4(), worker_id=uuid4(), type=job.name, queue=job.queue,
        threads=job.threads if threads is None else threads, rank=0, failures=failures, suspect=False, crashes=0,
        max_attempts=job.max_attempts, timeout_s=job.timeout_s, retry=None, payload="{}", name=None,
        priority=job.priority, thread_demand=job.threads, tags=[*job.tags, *tags], idempotency_key=idempotency_key,
        trace=None, waited_s=0.0,
    )  # fmt: skip
    run = Run(lease, job, steady_s(), 0)
    seen = Recorded(steps=dict(steps or {}), effects=dict(effects or {}))
    run.log = seen._log  # noqa: SLF001 - ours
    keep_context_logs()
    if cancelled:
        run.tell_to_stop(Stop.CANCEL)
    return (AsyncContext if job.is_async else Context)(run, InMemory(seen))


def recorded(ctx: Context | AsyncContext) -> Recorded:
    """What was done with a context that `context_for` has made."""
    reach = ctx._reach  # noqa: SLF001 - ours
    if not isinstance(reach, InMemory):
        raise Misconfigured("this context is a worker's, and not one that context_for has made")
    return reach.seen


class InMemory:
    """What contexts reach for (context.Reach), in memory."""

    def __init__(self, seen: Recorded) -> None:
        self.seen = seen
        self._results: dict[str, str] = {}

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        return driven(work)

    def progressed(self, run: Run) -> None:
        if run.progress is not None:
            self.seen.progress.append(run.progress)

    async def step(self, _lease: Lease, key: str) -> str | None:
        return encode(self.seen.steps[key], key) if key in self.seen.steps else None

    async def keep_step(self, _lease: Lease, key: str, result: str) -> None:
        self.seen.steps[key] = decode(result)

    async def intend(self, _lease: Lease, key: str, if_unknown: IfUnknown, *, unknown: bool = False) -> Intention:
        found = "unknown" if unknown else self.seen.effects.get(key, "new")
        if found != "done":
            self.seen.effects[key] = "done" if found == "unknown" and if_unknown == "skip" else "unknown"
        return Intention(found, self._results.get(key))

    async def effect_state(self, _lease: Lease, key: str) -> Intention:
        return Intention(self.seen.effects.get(key, "new"), self._results.get(key))

    async def finish_effect(self, _lease: Lease, key: str, result: str | None) -> None:
        self.seen.effects[key] = "done"
        if result is not None:
            self._results[key] = result

    async def take_back_effect(self, _lease: Lease, key: str) -> None:
        self.seen.effects.pop(key, None)

    def finishing(self, decide: Callable[[], Settlement], connection: Any) -> AbstractAsyncContextManager[Any]:
        return self._finishing(decide, connection)

    @asynccontextmanager
    async def _finishing(self, decide: Callable[[], Settlement], connection: Any) -> AsyncIterator[Any]:
        if connection is None:
            raise Misconfigured(
                "ctx.transaction() needs a database: enqueue the job and drain() it, or have the handler pass a connection"
            )
        yield connection
        result = decide().result
        self.seen.finished = True
        self.seen.result = None if result is None else decode(result)
