"""What a handler is given: `ctx`. Context for `def` handlers, AsyncContext for `async def` ones.

It offers; the worker, or the child process a job has to itself, reaches out (Reach). Made only for handlers that ask.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Literal, Protocol, TypeVar, overload
from uuid import UUID

from windlass.blocking import driven
from windlass.clock import steady_s
from windlass.errors import InvalidJob
from windlass.lifecycle import Completed, Settlement, settle
from windlass.model import IfUnknown, Lease, check_text, key_max
from windlass.store.protocol import EffectState
from windlass.telemetry import JobLogger
from windlass.worker.chunks import beside_the_loop, over_processes, over_threads, split
from windlass.worker.effects import Effect, EffectBlock, EffectReach, insist, record_start, state_of
from windlass.worker.hooks import Hooks, call_around
from windlass.worker.result_type import StepResult
from windlass.worker.run import Run, encoded

T = TypeVar("T")


class Reach(EffectReach, Protocol):
    """What a context needs of the process it runs in. `wait`: run a coroutine on the loop and wait for it; from a handler's
    thread only."""

    def progressed(self, run: Run) -> None:
        """`run.progress` has changed."""

    async def step(self, lease: Lease, key: str) -> str | None: ...

    async def keep_step(self, lease: Lease, key: str, result: str) -> None: ...

    def finishing(self, decide: Callable[[], Settlement], connection: Any) -> AbstractAsyncContextManager[Any]: ...


class _Base:
    """What both kinds of context share."""

    def __init__(self, run: Run, reach: Reach) -> None:
        self._run = run
        self._reach = reach
        self._result: Any = None
        self._log: JobLogger | None = None

    @property
    def id(self) -> UUID:
        """The job's id: the same for every attempt at it."""
        return self._run.lease.job_id

    @property
    def type(self) -> str:
        return self._run.lease.type

    @property
    def queue(self) -> str:
        return self._run.lease.queue

    @property
    def attempt(self) -> int:
        """Which start of the job this is, from 1."""
        return self._run.lease.attempt

    @property
    def failures(self) -> int:
        """How many attempts have failed before."""
        return self._run.lease.failures

    @property
    def threads(self) -> int:
        """How many threads were granted."""
        return self._run.lease.threads

    @property
    def tags(self) -> Sequence[str]:
        return tuple(self._run.lease.tags or ())

    @property
    def idempotency_key(self) -> str | None:
        return self._run.lease.idempotency_key

    @property
    def token(self) -> UUID:
        """Proves this attempt's lease; pass it on to systems that can refuse an older attempt."""
        return self._run.lease.token

    @property
    def cancelled(self) -> bool:
        """Whether this attempt was told to stop: cancelled, out of time, or given back by a shutdown."""
        return self._run.stop is not None

    @property
    def time_left_s(self) -> float:
        return self._run.time_left_s

    @property
    def deadline(self) -> datetime:
        """When this attempt will be told to stop, by this machine's clock."""
        return datetime.now(UTC) + timedelta(seconds=self.time_left_s)

    @property
    def log(self) -> JobLogger:
        """Logs to the process's log and to the log kept with this attempt."""
        if self._log is None:
            self._log = JobLogger(self._run)
        return self._log

    def progress(self, fraction: float, note: str | None = None) -> None:
        """Show how far the job has come: from 0 to 1, and a word about it. Written about once a second."""
        if not 0 <= fraction <= 1:
            raise InvalidJob("progress", "must be a number from 0 to 1")
        self._run.progress = (float(fraction), None if note is None else str(note)[:200])
        self._reach.progressed(self._run)

    @overload
    def finish(self) -> None: ...

    @overload
    def finish(self, result: T) -> T: ...

    def finish(self, result: Any = None) -> Any:
        """Say the job's result inside `ctx.transaction()`; returns it, so that the handler can: `return ctx.finish(7)`."""
        self._result = result
        return result

    def _decide(self) -> Settlement:
        run = self._run
        log = None if run.log is None else run.log.text()
        result = None if self._result is None else encoded(run, self._result)
        return settle(run.lease, Completed(result), jitter=0, execution_s=steady_s() - run.began_s, log=log)

    async def _insist(self, ask: Callable[[], Coroutine[Any, Any, T]]) -> T:
        return await insist(self._run, ask)

    def _key(self, key: str) -> str:
        check_text("key", key, key_max)
        return key


class Context(_Base):
    """The context of a `def` handler."""

    def once(self, key: str, fn: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """Do a step once per job: its result is kept, and a later attempt gets that instead of doing it again.

        Its result comes back as the type that `fn` is annotated with, or as JSON. A crash between the step and the
        keeping of its result repeats the step.
        """
        lease, reach, step = self._run.lease, self._reach, StepResult(self._key(key), fn)
        kept = reach.wait(self._insist(lambda: reach.step(lease, key)))
        if kept is None:
            kept = done = step.encode(fn(*args, **kwargs))
            reach.wait(self._insist(lambda: reach.keep_step(lease, key, done)))
        result: T = step.decode(kept)
        return result

    def effect(self, key: str, *, if_unknown: IfUnknown = "ask") -> AbstractContextManager[Effect]:
        """Do something outside the database once per job, or know that nobody knows:

            with ctx.effect("welcome-mail") as effect:
                if effect.needed:
                    send_the_mail()

        It is recorded as intended before the block and as done after it. `needed` is False if an earlier attempt has done it.
        If an earlier attempt intended it and nobody knows whether it was done, `if_unknown` decides: `repeat` it, `skip` it, or
        stop the job until a person says (`ask`). An exception in the block means that it has not happened, unless it is a
        time-out, or `effect.may_have_happened()` was called before.
        """
        return EffectBlock(self._run, self._reach, key, if_unknown)

    def effect_state(self, key: str) -> EffectState:
        """What is recorded of an effect, without recording anything: `new`, `done` or `unknown`. For what is prepared before
        the block, such as a connection: the shorter the block, the less often somebody has to be asked."""
        return self._reach.wait(state_of(self._run, self._reach, key))

    def map_chunks(
        self,
        fn: Callable[[Any], T],
        data: Sequence[Any],
        combine: Callable[[list[Any]], Any] | None = None,
        *,
        on: Literal["threads", "processes"] = "threads",
    ) -> Any:
        """Split `data` into as many chunks as there are threads, call `fn` on each at once, and combine the parts.

        On threads for code that releases the GIL (numpy, I/O), on processes for code that does not; then `fn` and its
        chunks travel by pickle. Parts come in the order of the data.
        """
        parts = _over(on)(fn, split(data, self.threads))
        return parts if combine is None else combine(parts)

    @contextmanager
    def transaction(self, connection: Any) -> Iterator[Any]:
        """Finish the job inside your own transaction: either both happen, or neither.

        `connection` is your psycopg or SQLAlchemy connection or session, inside a transaction that you commit after
        the block. Raises LeaseLost if another attempt counts now: let it, and roll back.
        """
        self._run.finishing = True
        block = self._reach.finishing(self._decide, connection)
        yield driven(block.__aenter__())
        driven(block.__aexit__(None, None, None))


class AsyncContext(_Base):
    """The context of an `async def` handler."""

    async def once(self, key: str, fn: Callable[..., Awaitable[T]], *args: Any, **kwargs: Any) -> T:
        """Do a step once per job: its result is kept, and a later attempt gets that instead of doing it again.

        Its result comes back as the type that `fn` is annotated with, or as JSON. A crash between the step and the
        keeping of its result repeats the step.
        """
        lease, reach, step = self._run.lease, self._reach, StepResult(self._key(key), fn)
        kept = await self._insist(lambda: reach.step(lease, key))
        if kept is None:
            kept = done = step.encode(await fn(*args, **kwargs))
            await self._insist(lambda: reach.keep_step(lease, key, done))
        result: T = step.decode(kept)
        return result

    def effect(self, key: str, *, if_unknown: IfUnknown = "ask") -> AbstractAsyncContextManager[Effect]:
        """As Context.effect, for `async with`."""
        return EffectBlock(self._run, self._reach, key, if_unknown)

    async def effect_state(self, key: str) -> EffectState:
        """As Context.effect_state."""
        return await state_of(self._run, self._reach, key)

    async def map_chunks(
        self,
        fn: Callable[[Any], T],
        data: Sequence[Any],
        combine: Callable[[list[Any]], Any] | None = None,
        *,
        on: Literal["threads", "processes"] = "threads",
    ) -> Any:
        """As Context.map_chunks, without blocking the loop; `fn` is a plain function."""
        parts = await beside_the_loop(_over(on), fn, split(data, self.threads))
        return parts if combine is None else combine(parts)

    @asynccontextmanager
    async def transaction(self, connection: Any = None) -> AsyncIterator[Any]:
        """Finish the job inside a database transaction: either both happen, or neither.

        Without `connection` it is one of ours (asyncpg, to the database that holds the jobs), committed at the end of
        the block. Yours (asyncpg, psycopg, SQLAlchemy) you commit yourself after the block. Raises LeaseLost if
        another attempt counts now, and everything in the transaction is undone.
        """
        self._run.finishing = True
        async with self._reach.finishing(self._decide, connection) as own:
            yield own
        if connection is None:
            self._run.settled = True  # committed: nothing is left to write


def _over(on: str) -> Callable[..., list[Any]]:
    if on not in {"threads", "processes"}:
        raise ValueError(f"on= is threads or processes, not {on!r}")
    return over_processes if on == "processes" else over_threads


def call(run: Run, reach: Reach) -> Any:
    """Call the handler of a run with what its payload says: what it returns is its result, or to be awaited."""
    job = run.job
    arguments = job.arguments(run.lease.payload)
    if job.at_most_once and not run.start_recorded:
        return _begin_async_once(run, reach) if job.is_async else _begin_once(run, reach)
    hooks = job.hooks
    if hooks is not None and hooks.around:
        return _call_hooked(hooks, run, reach, arguments)
    if not job.wants_ctx:
        return job.fn(**arguments)
    return job.fn((AsyncContext if job.is_async else Context)(run, reach), **arguments)


def _begin_once(run: Run, reach: Reach) -> Any:
    reach.wait(record_start(run, reach))
    return call(run, reach)


async def _begin_async_once(run: Run, reach: Reach) -> Any:
    await record_start(run, reach)
    return await call(run, reach)


def _call_hooked(hooks: Hooks, run: Run, reach: Reach, arguments: dict[str, Any]) -> Any:
    job = run.job
    ctx = (AsyncContext if job.is_async else Context)(run, reach)
    handler = partial(job.fn, ctx, **arguments) if job.wants_ctx else partial(job.fn, **arguments)
    return call_around(hooks, run, reach, ctx, handler)
