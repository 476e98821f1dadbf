"""The program of a child that runs isolated jobs: `python -m windlass.worker.child CHANNEL_FD WORDS_FD PARENT_PID`.

Or the rest of one that was forked from a template (template.py), which did the first step for it. Imports the app as
its worker has, then runs one job after another: `def` handlers in the main thread, `async def` ones
on a loop that is kept from job to job, so that what a handler opened on it stays usable. Nothing here guards against
the handler; the worker watches from outside (isolation.py), and enforces the deadline by killing. One of the few places
that wire: a handler that asks for the database gets connections of this process's own.
"""

import asyncio
import contextlib
import contextvars
import faulthandler
import io
import logging
import os
import socket
import sys
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from windlass import telemetry
from windlass.clock import steady_s
from windlass.config import Config
from windlass.errors import Misconfigured
from windlass.lifecycle import Completed, Failed, Outcome, Settlement
from windlass.model import Error, IfUnknown, Lease
from windlass.store.protocol import Claims, Intention
from windlass.telemetry import AttemptLog, current
from windlass.unhandled import log_unhandled
from windlass.worker.context import call
from windlass.worker.control import config_heard
from windlass.worker.copies import end_copies_at
from windlass.worker.frames import (
    Begun,
    FromChild,
    Line,
    Progress,
    Ready,
    Refused,
    Start,
    Work,
    framed,
    plain_text,
    receive,
    said,
)
from windlass.worker.hooks import WorkerHook, start_worker, stop_worker
from windlass.worker.loading import load_apps
from windlass.worker.memory import MemoryLimit, explain
from windlass.worker.parentage import die_with, leave_signals_to_parent
from windlass.worker.registry import JobType
from windlass.worker.run import Run, completed, encoded, outcome_of, unanswered
from windlass.worker.run_loop import run_to_end, run_until_stopped

T = TypeVar("T")

EXIT_REFUSED: Final = 2
# Rather this than the worker or the database, when the kernel runs out of memory.
_OOM_SCORE: Final = "500"
_PROGRESS_S: Final = 0.2
_log: Final = logging.getLogger(__name__)


def main() -> None:
    channel_fd, words_fd, parent_pid = map(int, sys.argv[1:4])
    die_with(parent_pid)
    leave_signals_to_parent()
    channel = settle_in(channel_fd, words_fd)
    start = channel.hear()
    if isinstance(start, Start):
        try:
            loaded = load(start)
        except Misconfigured as problem:
            channel.say(Refused(plain_text(str(problem))))
            sys.exit(EXIT_REFUSED)
        serve(channel, loaded)


def settle_in(channel_fd: int, words_fd: int) -> "Channel":
    for fd in (channel_fd, words_fd):  # not for what a handler starts: the end of the channel is our end
        os.set_inheritable(fd, False)
    faulthandler.enable(words_fd)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)  # what a job printed before it crashed shall be seen
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(_OOM_SCORE)
    return Channel(socket.socket(fileno=channel_fd))


class Loaded(NamedTuple):
    """What is the same for every child of a worker."""

    config: Config
    types: Mapping[str, JobType]
    worker_starts: Sequence[WorkerHook] = ()
    worker_stops: Sequence[WorkerHook] = ()


def load(start: Start) -> Loaded:
    """Import the app as its worker has. Raises Misconfigured, which is also logged."""
    config = config_heard(start.config)
    telemetry.configure(config.worker.log_level, config.worker.log_format, worker=start.worker)
    log_unhandled()
    try:
        app = load_apps(start.app)
    except Misconfigured as problem:
        _log.error("%s", problem, exc_info=problem.__cause__)
        raise
    # Once more: the import may have thrown our handlers out.
    telemetry.configure(config.worker.log_level, config.worker.log_format, worker=start.worker)
    app.use(config)  # what handlers enqueue goes where their own job came from
    return Loaded(config, app.types, app.worker_starts, app.worker_stops)


def serve(channel: "Channel", loaded: Loaded) -> None:
    telemetry.capture_prints()
    end_copies_at(run_until_stopped, _serve_one)
    with asyncio.Runner() as runner:
        if loaded.worker_starts:
            _start(channel, runner, loaded)
        channel.say(Ready())
        reach = OwnReach(runner, loaded.config, channel)
        memory = MemoryLimit()
        while isinstance(work := channel.hear(), Work):
            _serve_one(channel, work, loaded.types, reach, memory)
        if loaded.worker_stops:
            runner.run(stop_worker(loaded.worker_stops))
        runner.run(reach.aclose())


def _start(channel: "Channel", runner: asyncio.Runner, loaded: Loaded) -> None:
    """Call the hooks for the start of a process: in each child, on the loop of its handlers, and never in the template."""
    try:
        runner.run(start_worker(loaded.worker_starts))
    except Misconfigured as problem:
        _log.error("%s", problem, exc_info=problem.__cause__)
        channel.say(Refused(plain_text(str(problem))))
        sys.exit(EXIT_REFUSED)


def _serve_one(
    channel: "Channel", work: Work, types: Mapping[str, JobType], reach: "OwnReach", memory: MemoryLimit
) -> None:
    channel.say(Begun())
    job = types.get(work.lease.type)
    log = RelayedLog(channel)
    settled = False
    if job is None:
        error = Error("UnknownType", f"{work.lease.type!r} is gone from the app since its worker was started")
        outcome: Outcome = Failed(error)
    else:
        run = Run(work.lease, job, work.began_s, 0)
        run.log = log
        reach.begin(run)
        outcome = contextvars.copy_context().run(_attempt, run, reach, memory)
        reach.end(run)
        if run.undecided is not None and type(outcome) is Completed and not run.settled:
            outcome = unanswered(run)
        if type(outcome) is Completed and outcome.result is not None:
            outcome = Completed(encoded(run, outcome.result))
        settled = run.settled
    log.close()
    try:
        done = said(outcome, dropped=log.dropped, settled=settled)
    except (TypeError, ValueError) as problem:  # a delay that is no number
        failed = Failed(Error("InvalidOutcome", f"{type(outcome).__name__}: {problem}"))
        done = said(failed, dropped=log.dropped, settled=settled)
    channel.say(done)


def _attempt(run: Run, reach: "OwnReach", memory: MemoryLimit) -> Outcome:
    current.set(run)
    try:
        memory.set(run.job.memory_limit_mb)
        called = call(run, reach)
        return reach.wait(_awaited(called, run, memory)) if run.job.is_async else completed(called)
    except BaseException as error:  # noqa: BLE001 - whatever a handler raises is its outcome, sys.exit() included
        return _failed(error, run, memory)
    finally:
        memory.set(None)


async def _awaited(called: Coroutine[Any, Any, Any], run: Run, memory: MemoryLimit) -> Outcome:
    """Its outcome, found inside the task: a SystemExit that left it would tear the loop down."""
    try:
        return Completed(await called)
    except BaseException as error:  # noqa: BLE001 - as above
        return _failed(error, run, memory)


def _failed(error: BaseException, run: Run, memory: MemoryLimit) -> Outcome:
    """Without the limit: to describe what ran out of memory takes some, too."""
    memory.set(None)
    explain(error, run.job.memory_limit_mb)
    return outcome_of(error, run)


class Channel:
    """The child's end. Only this process speaks on it, never one that a handler has forked."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        self._pid = os.getpid()
        self._lock = threading.Lock()

    def hear(self) -> Start | Work | None:
        return receive(self._socket)

    def say(self, message: FromChild) -> None:
        if os.getpid() != self._pid:
            return
        try:
            with self._lock:
                self._socket.sendall(framed(message))
        except OSError as error:
            # A handler closed it, or the worker is gone: nobody will ever hear of this attempt.
            _log.critical("the channel to the worker is broken: %s", error)
            os._exit(1)


class RelayedLog(AttemptLog):
    """Sends each line it keeps to the worker: what a job logged before it crashed its process is what is wanted most."""

    __slots__ = ("_channel", "_closed", "_relaying")

    def __init__(self, channel: Channel) -> None:
        super().__init__()
        self._channel = channel
        self._closed = False
        self._relaying = threading.Lock()

    def append(self, line: str) -> bool:
        with self._relaying:
            if self._closed or not super().append(line):
                return False
            self._channel.say(Line(line))
            return True

    def close(self) -> None:
        """The attempt is over: what a thread it left behind logs is not the next one's."""
        self.end_line()
        with self._relaying:
            self._closed = True


class OwnReach:
    """What contexts reach for (context.Reach), with a loop and connections of this process's own."""

    def __init__(self, runner: asyncio.Runner, config: Config, channel: Channel) -> None:
        self._loop = runner.get_loop()
        self._config = config
        self._channel = channel
        self._lock = threading.Lock()
        self._stack = contextlib.AsyncExitStack()
        self._opening = asyncio.Lock()
        self._claims: Claims | None = None
        self._run: Run | None = None
        self._said_s = 0.0

    def begin(self, run: Run) -> None:
        self._run = run

    def end(self, run: Run) -> None:
        """Say the last of its progress. What a thread it left behind reports is not the next one's."""
        self._said_s = 0.0
        self.progressed(run)
        self._run = None

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        # The loop runs only while somebody waits: one thread of a `def` handler at a time.
        with self._lock:
            return run_to_end(self._loop, work)

    def progressed(self, run: Run) -> None:
        now_s = steady_s()
        if run is self._run and run.progress is not None and now_s - self._said_s >= _PROGRESS_S:
            self._said_s = now_s
            fraction, note = run.progress
            self._channel.say(Progress(fraction, None if note is None else plain_text(note)))

    async def step(self, lease: Lease, key: str) -> str | None:
        return await (await self._opened()).step(lease, key)

    async def keep_step(self, lease: Lease, key: str, result: str) -> None:
        await (await self._opened()).keep_step(lease, key, result)

    async def intend(self, lease: Lease, key: str, if_unknown: IfUnknown, *, unknown: bool = False) -> Intention:
        return await (await self._opened()).intend(lease, key, if_unknown, unknown=unknown)

    async def effect_state(self, lease: Lease, key: str) -> Intention:
        return await (await self._opened()).effect_state(lease, key)

    async def finish_effect(self, lease: Lease, key: str, result: str | None) -> None:
        await (await self._opened()).finish_effect(lease, key, result)

    async def take_back_effect(self, lease: Lease, key: str) -> None:
        await (await self._opened()).take_back_effect(lease, key)

    def finishing(self, decide: Callable[[], Settlement], connection: Any) -> AbstractAsyncContextManager[Any]:
        if not self._loop.is_running():  # a `def` handler's, whose own steps must not wait for the loop
            return self.wait(self._opened()).finishing(decide, connection)
        return self._finishing(decide, connection)

    @asynccontextmanager
    async def _finishing(self, decide: Callable[[], Settlement], connection: Any) -> AsyncIterator[Any]:
        async with (await self._opened()).finishing(decide, connection) as own:
            yield own

    async def _opened(self) -> Claims:
        """The store, opened when it is first asked for: most isolated jobs never do."""
        async with self._opening:
            if self._claims is None:
                from windlass.store.store import open_store  # noqa: PLC0415 - 9 MB that an idle child can do without

                few = replace(self._config.store, pool_min=0, pool_max=2)
                self._claims = (await self._stack.enter_async_context(open_store(few))).claims()
            return self._claims

    async def aclose(self) -> None:
        await self._stack.aclose()


if __name__ == "__main__":
    main()
