"""Code of an app's own around its jobs: hooks that are told what happens to attempts, middleware around handlers, and
hooks for the start and stop of each worker process. An App declares them (`@app.on_failure`); a worker calls them.

`on_start` and middleware run where the handler runs, in a child too, as part of its attempt. `on_success`, `on_failure`
and `on_dead` run in the worker after the database has stored what they are about (hook_runner.py). A hook that raises is
logged and changes nothing. Middleware that raises fails the attempt, like the handler itself.
"""

import asyncio
import functools
import inspect
import json
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast
from uuid import UUID

from windlass.errors import Misconfigured
from windlass.lifecycle import Ended, Settlement
from windlass.model import Error, Lease, Status
from windlass.payload import decode

if TYPE_CHECKING:
    from windlass.worker.context import AsyncContext, Context, Reach
    from windlass.worker.registry import JobType
    from windlass.worker.run import Run

Hook = Callable[["JobEvent"], object]
WorkerHook = Callable[[], object]
Middleware = Callable[[Any, Callable[[], Any]], Any]
H = TypeVar("H", bound=Hook)
W = TypeVar("W", bound=WorkerHook)
M = TypeVar("M", bound=Middleware)

_log: Final = logging.getLogger(__name__)


class JobEvent:
    """What a hook is told: the job, the attempt, and how it ended if it has."""

    __slots__ = ("_lease", "_settlement", "exception")

    def __init__(
        self, lease: Lease, settlement: Settlement | None = None, exception: BaseException | None = None
    ) -> None:
        self._lease = lease
        self._settlement = settlement
        self.exception = exception
        """What the handler raised; None if it ran in a process of its own, crashed or timed out: `error` tells."""

    @property
    def id(self) -> UUID:
        return self._lease.job_id

    @property
    def type(self) -> str:
        return self._lease.type

    @property
    def queue(self) -> str:
        return self._lease.queue

    @property
    def name(self) -> str | None:
        return self._lease.name

    @property
    def tags(self) -> tuple[str, ...]:
        return tuple(self._lease.tags or ())

    @property
    def payload(self) -> Any:
        return decode(self._lease.payload)

    @property
    def attempt(self) -> int:
        """Which start of the job this is, from 1."""
        return self._lease.attempt

    @property
    def failures(self) -> int:
        """How many attempts have failed, this one included."""
        return self._lease.failures + (self._settlement is not None and self._settlement.failed)

    @property
    def max_attempts(self) -> int:
        return self._lease.max_attempts

    @property
    def duration_s(self) -> float | None:
        return None if self._settlement is None else self._settlement.execution_s

    @property
    def result(self) -> Any:
        """The result as it was stored; None for a job that finished in a transaction of its own."""
        text = None if self._settlement is None else self._settlement.result
        return None if text is None else decode(text)

    @property
    def error(self) -> Error | None:
        """What went wrong, as it was stored: `type`, `message` and `traceback`."""
        if self._settlement is None or self._settlement.error is None:
            return None
        kept = json.loads(self._settlement.error)
        return Error(kept["type"], kept["message"] or "", kept["traceback"] or "")

    @property
    def next_try_s(self) -> float | None:
        """In how many seconds the job is tried again; None if it is not."""
        if self._settlement is None or self._settlement.status in {Status.COMPLETED, Status.FAILED, Status.CANCELLED}:
            return None
        return self._settlement.delay_s or 0.0

    def __repr__(self) -> str:
        return f"<JobEvent {self.type} {self.id}, attempt {self.attempt}>"


class Hooks:
    """The hooks and the middleware of one app. `around`: there are some to call with each attempt; `after`: with its end."""

    def __init__(self) -> None:
        self.around = False
        self.after = False
        self.starts: list[Hook] = []
        self.successes: list[Hook] = []
        self.failures: list[Hook] = []
        self.deaths: list[Hook] = []
        self.async_middleware: list[Middleware] = []
        self.plain_middleware: list[Middleware] = []
        self.worker_starts: list[WorkerHook] = []
        self.worker_stops: list[WorkerHook] = []

    def add_start(self, hook: Hook) -> None:
        self.starts.append(hook)
        self.around = True

    def add_end(self, hooks: list[Hook], hook: Hook) -> None:
        hooks.append(hook)
        self.after = True

    def add_middleware(self, middleware: Middleware) -> None:
        kind = self.async_middleware if inspect.iscoroutinefunction(middleware) else self.plain_middleware
        kind.append(middleware)
        self.around = True

    def of_end(self, lease: Lease, settlement: Settlement, status: Status) -> list[Hook]:
        """Those that are to hear of this end. `status`: where the job is now."""
        if status is Status.COMPLETED:
            return self.successes
        if status is Status.CANCELLED:
            return []
        # A crash of the process it had for itself: counted, or the one that makes it a suspect.
        crashed = settlement.crashed or (settlement.suspect and not lease.suspect)
        failed = self.failures if settlement.failed or (settlement.ended is Ended.LOST and crashed) else []
        return [*failed, *self.deaths] if status is Status.FAILED else failed

    def check(self, types: Mapping[str, "JobType"]) -> None:
        """Refuse middleware that would silently be left out. Raises Misconfigured."""
        there = {True: self.async_middleware, False: self.plain_middleware}
        for job in types.values():
            if job.hooks is self and there[not job.is_async] and not there[job.is_async]:
                right, wrong = ("async def", "def") if job.is_async else ("def", "async def")
                raise Misconfigured(
                    f"middleware {described(there[not job.is_async][0])} is {wrong}, and job {job.name!r} is {right}: "
                    f"declare {right} middleware, too, if only one that returns {'await ' * job.is_async}call()"
                )


class DeclaresHooks:
    """The decorators of an App. Each returns the function as it is."""

    def __init__(self) -> None:
        self.hooks = Hooks()

    def on_start(self, hook: H) -> H:
        """Call `hook(event)` before the handler of each attempt, where that runs: `def` or `async def`."""
        self.hooks.add_start(_checked(hook, "on_start", "event"))
        return hook

    def on_success(self, hook: H) -> H:
        """Call `hook(event)` after a job has completed and that is stored."""
        self.hooks.add_end(self.hooks.successes, _checked(hook, "on_success", "event"))
        return hook

    def on_failure(self, hook: H) -> H:
        """Call `hook(event)` after each attempt that failed, timed out or crashed its process, the last one included."""
        self.hooks.add_end(self.hooks.failures, _checked(hook, "on_failure", "event"))
        return hook

    def on_dead(self, hook: H) -> H:
        """Call `hook(event)` after a job has gone to the dead letters."""
        self.hooks.add_end(self.hooks.deaths, _checked(hook, "on_dead", "event"))
        return hook

    def middleware(self, middleware: M) -> M:
        """Put `middleware(ctx, call)` around handlers: `async def` around `async def` ones, `def` around `def` ones.

        The first that is declared is the outermost.
        """
        self.hooks.add_middleware(_checked(middleware, "middleware", "ctx", "call"))
        return middleware

    def on_worker_start(self, hook: W) -> W:
        """Call `hook()` when a process that runs jobs starts, before its first job; one that raises keeps it from starting."""
        self.hooks.worker_starts.append(_checked(hook, "on_worker_start"))
        return hook

    def on_worker_stop(self, hook: W) -> W:
        """Call `hook()` when a process that runs jobs stops in order, after its last job."""
        self.hooks.worker_stops.append(_checked(hook, "on_worker_stop"))
        return hook


F = TypeVar("F", bound=Callable[..., Any])


def _checked(fn: F, kind: str, *arguments: str) -> F:
    """The function, unless it could not be called as it will be. Raises Misconfigured."""
    if not callable(fn) or inspect.isclass(fn):
        raise Misconfigured(f"@app.{kind} takes a function, not {fn!r}")
    if inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn):
        raise Misconfigured(f"{kind} {described(fn)} is a generator; write a function that returns")
    try:
        inspect.signature(fn).bind(*arguments)
    except TypeError:
        wanted = f"({', '.join(arguments)})"
        raise Misconfigured(
            f"{kind} {described(fn)} is called with {wanted}, which its parameters do not fit"
        ) from None
    return fn


def described(fn: Callable[..., Any]) -> str:
    return f"{getattr(fn, '__module__', '?')}.{getattr(fn, '__qualname__', type(fn).__name__)}"


# Around the handler. ----------------------------------------------------------------------------------------------


def call_around(
    hooks: Hooks, run: "Run", reach: "Reach", ctx: "AsyncContext | Context", handler: Callable[[], Any]
) -> Any:
    """Call the start hooks, then the handler inside its middleware: its result, or what is to be awaited for it."""
    if run.job.is_async:
        return _acall_around(hooks, run, ctx, handler)
    for hook in hooks.starts:
        if inspect.iscoroutinefunction(hook):
            reach.wait(_acall_start(hook, run))
            continue
        try:
            hook(JobEvent(run.lease))
        except BaseException as error:  # noqa: BLE001 - as _log_failure says
            _log_failure(hook, run, error)
    return _wrapped(hooks.plain_middleware, ctx, handler)()


async def _acall_around(hooks: Hooks, run: "Run", ctx: "AsyncContext | Context", handler: Callable[[], Any]) -> Any:
    for hook in hooks.starts:
        await _acall_start(hook, run)
    return await _wrapped(hooks.async_middleware, ctx, handler)()


async def _acall_start(hook: Hook, run: "Run") -> None:
    """Nothing but a stop of the attempt leaves this: a SystemExit would tear the loop down."""
    try:
        if inspect.iscoroutinefunction(hook):
            await hook(JobEvent(run.lease))
        else:
            await asyncio.to_thread(hook, JobEvent(run.lease))
    except BaseException as error:  # noqa: BLE001 - as _log_failure says
        _log_failure(hook, run, error)


def _wrapped(middleware: list[Middleware], ctx: Any, handler: Callable[[], Any]) -> Callable[[], Any]:
    for each in reversed(middleware):
        handler = functools.partial(each, ctx, handler)
    return handler


def _log_failure(hook: Hook, run: "Run", error: BaseException) -> None:
    """A hook's own error changes nothing; what is thrown into an attempt that must stop is not the hook's."""
    if run.stop is not None and not isinstance(error, Exception):
        raise error
    log_hook_failure(hook, run.lease, error)


def log_hook_failure(hook: Hook, lease: Lease, error: BaseException) -> None:
    from windlass.telemetry import about  # noqa: PLC0415 - a program that only enqueues does without it

    _log.error("hook %s failed", described(hook), exc_info=error, extra=about(lease))


# At the start and stop of a process. ------------------------------------------------------------------------------


async def start_worker(hooks: Iterable[WorkerHook]) -> None:
    """Call what is to be called before the first job. Raises Misconfigured."""
    for hook in hooks:
        try:
            await _awaited(hook())
        except (Exception, SystemExit) as error:
            raise Misconfigured(
                f"the on_worker_start hook {described(hook)} failed: {type(error).__name__}: {error}"
            ) from error


async def stop_worker(hooks: Iterable[WorkerHook]) -> None:
    """Call what is to be called after the last job, the last declared first. Each, whatever the others raise."""
    for hook in reversed(list(hooks)):
        try:
            await _awaited(hook())
        except (Exception, SystemExit):  # noqa: BLE001 - whatever a hook raises, the process stops
            _log.exception("the on_worker_stop hook %s failed", described(hook))


async def _awaited(returned: object) -> None:
    if inspect.isawaitable(returned):
        await cast("Awaitable[object]", returned)
