"""Where handlers run: lanes on the event loop for `async def`, lanes in threads for `def`, children for the isolated.

A lane runs one job at a time, and when it has ended takes the next of its kind from the desk itself: a no-op costs no
task, no hand-over and no wake-up. A lane that finds nothing parks; `Lanes.dispatch` finds work for parked lanes, and
makes new ones, never more than the worker has threads.
"""

import asyncio
import contextvars
import logging
import sys
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Final, Protocol

from windlass.attempt_report import is_start_logged, report_start
from windlass.clock import steady_s
from windlass.lifecycle import Completed, Outcome, Released
from windlass.telemetry import about, current
from windlass.worker.context import Reach, call
from windlass.worker.desk import Desk, Kind
from windlass.worker.run import Run, Stopped, completed, format_frames, outcome_of, stopped, throw
from windlass.worker.run_loop import create_own_task

_log: Final = logging.getLogger(__name__)
_TURNS: Final = 64  # jobs a lane runs before it lets the loop answer the database

Finish = Callable[[Run, Outcome, float], None]


class Children(Protocol):
    """Runs attempts in processes of their own."""

    async def run(self, run: Run) -> Outcome: ...

    def kill(self, run: Run) -> None: ...


class Lanes:
    """Every lane of a worker. `finish` is called once for each run, from any thread."""

    def __init__(self, desk: Desk, finish: Finish, reach: Reach, children: Children) -> None:
        self.desk = desk
        self.finish = finish
        self.reach = reach
        self.children = children
        self.parked: list[LoopLane] = []
        self.inbox: SimpleQueue[Run | None] = SimpleQueue()
        self.stirred: Callable[[], None] = lambda: None
        self.failed: Callable[[BaseException], None] = lambda _: None
        self._loop = asyncio.get_running_loop()
        self._threads = 0
        self._idle_threads = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._called = False
        self._lock = threading.Lock()
        self.starts_logged = is_start_logged()

    def dispatch(self) -> None:
        """Begin what fits, in order. On the loop's thread only."""
        self._called = False
        while (kind := self.desk.next_kind()) is not None:
            run = self.desk.take(kind)
            if run is None:  # a lane was quicker
                continue
            if kind is Kind.LOOP:
                lane = self.parked.pop() if self.parked else LoopLane(self)
                lane.give(run)
            elif kind is Kind.THREAD:
                self._to_thread(run)
            else:
                self._to_child(run)

    def call(self) -> None:
        """Have `dispatch` run soon. From any thread."""
        if not self._called:
            self._called = True
            self._loop.call_soon_threadsafe(self._answer)

    def _answer(self) -> None:
        self.dispatch()
        self.stirred()

    def spawn(self, work: Any, *, context: contextvars.Context | None = None) -> "asyncio.Task[None]":
        # A context of its own: dispatch may run in that of a handler, and tasks made there go to the handler's task factory.
        task = create_own_task(self._loop, work, context=contextvars.Context() if context is None else context)
        self._tasks.add(task)
        task.add_done_callback(self._spawned_ended)
        return task

    def _spawned_ended(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.failed(error)

    def _to_thread(self, run: Run) -> None:
        with self._lock:
            if self._idle_threads > 0:
                self._idle_threads -= 1
            elif not self._new_thread():
                self.finish(run, Released(), steady_s())
                self.desk.end(run)
                return
        self.inbox.put(run)

    def _new_thread(self) -> bool:
        # A daemon: a handler that never ends must not keep the process from ending.
        thread = threading.Thread(target=ThreadLane(self).work, name=f"windlass-lane-{self._threads + 1}", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # the host has no more threads to give: others may
            _log.error("no thread can be started, and jobs go back: %s", error)
            return False
        self._threads += 1
        return True

    def end_threads(self) -> None:
        """End every thread that is idle, and the others after their job: for a worker whose process goes on without it."""
        for _ in range(self._threads):
            self.inbox.put(None)

    def cancel(self) -> None:
        """The worker has ended: what still runs on its loop must not be left pending."""
        for task in self._tasks:
            task.cancel()

    def thread_parks(self) -> None:
        with self._lock:
            self._idle_threads += 1
        self.call()

    def _to_child(self, run: Run) -> None:
        run.lane = ChildLane(self.children)
        self.spawn(self._in_child(run))

    async def _in_child(self, run: Run) -> None:
        if self.starts_logged:
            report_start(run.lease)
        try:
            outcome = await self.children.run(run)
        except Exception as error:  # noqa: BLE001 - a fault of ours must still end the attempt
            _log.exception("job %s could not be run in a process of its own", run.lease.job_id, extra=about(run.lease))
            outcome = outcome_of(error, run)
        self.finish(run, outcome, steady_s())
        self.desk.end(run)
        self._answer()


class LoopLane:
    """Runs coroutines one after another in one task; the task is replaced when a handler changed its context."""

    def __init__(self, lanes: Lanes) -> None:
        self._lanes = lanes
        self._run: Run | None = None
        self._given: asyncio.Future[Run] | None = None
        self._task: asyncio.Task[None] | None = None

    def give(self, run: Run) -> None:
        if self._given is not None:
            self._given.set_result(run)
            self._given = None
        else:
            self._task = self._lanes.spawn(self.work(run), context=contextvars.Context())

    def throw(self, run: Run) -> None:
        if self._run is run and self._task is not None:
            self._task.cancel()

    def frames(self, run: Run) -> str:  # noqa: ARG002 - a task that is suspended shows only its outermost frame
        return ""

    async def work(self, run: Run | None) -> None:
        lanes, turns = self._lanes, 0
        current.set(run)
        size = len(contextvars.copy_context())
        while True:
            if run is None:
                current.set(None)
                if len(contextvars.copy_context()) != size:
                    return  # what one job left behind in its context must not reach another
                self._given = asyncio.get_running_loop().create_future()
                lanes.parked.append(self)
                lanes.call()  # work of another kind may be next
                run = await self._given
            current.set(run)
            ended_s, outcome = await self._one(run)
            lanes.finish(run, outcome, ended_s)
            turns += 1
            if len(contextvars.copy_context()) != size or (self._task is not None and self._task.cancelling()):
                # What it left in its context, or a cancel of its own task, must not reach the next job.
                lanes.desk.end(run)
                lanes.call()
                return
            if turns % _TURNS == 0:
                lanes.desk.end(run)
                run = None
                await asyncio.sleep(0)
                run = lanes.desk.take(Kind.LOOP)
            else:
                run = lanes.desk.take(Kind.LOOP, run, ended_s)

    async def _one(self, run: Run) -> tuple[float, Outcome]:
        self._run = run
        run.lane = self
        if self._lanes.starts_logged:
            report_start(run.lease)
        try:
            outcome: Outcome = Completed(await call(run, self._lanes.reach))
        except BaseException as error:  # noqa: BLE001 - whatever a handler raises is its outcome
            outcome = outcome_of(error, run)
        self._run = None
        if run.stop is not None and self._task is not None:
            while self._task.cancelling():  # ours, and none of the next job's business
                self._task.uncancel()
        return steady_s(), outcome


class ThreadLane:
    """Runs plain functions one after another in one thread.

    An exception can be thrown into the thread only under the lane's lock and while that very run is current: thrown
    blindly it would hit the next job. One that was thrown and has not struck when the run ends is taken back.
    """

    def __init__(self, lanes: Lanes) -> None:
        self._lanes = lanes
        self._lock = threading.Lock()
        self._run: Run | None = None
        self._thread_id = 0
        self._thrown = False

    def throw(self, run: Run) -> None:
        with self._lock:
            if self._run is run:
                self._thrown = True
                throw(self._thread_id, Stopped)

    def frames(self, run: Run) -> str:
        with self._lock:
            frame = sys._current_frames().get(self._thread_id) if self._run is run else None  # noqa: SLF001 - documented
            return "" if frame is None else format_frames(frame)

    def work(self) -> None:
        self._thread_id = threading.get_ident()
        try:
            self.run_jobs(self._lanes)
        except BaseException as error:  # a run that nobody ends would stay running
            self._lanes.failed(error)
            raise

    def run_jobs(self, lanes: Lanes) -> None:
        """Run what the inbox holds until it says to end."""
        while (run := lanes.inbox.get()) is not None:
            while run is not None:
                outcome = self._one(run)
                ended_s = steady_s()
                lanes.finish(run, outcome, ended_s)
                run = lanes.desk.take(Kind.THREAD, run, ended_s)
            lanes.thread_parks()

    def _one(self, run: Run) -> Outcome:
        outcome: Outcome | None = None
        try:
            with self._lock:
                self._run = run
                run.lane = self
            outcome = contextvars.copy_context().run(self._call, run)
        except Stopped:  # struck outside the handler's own try
            outcome = outcome or stopped(run)
        while True:
            try:
                with self._lock:
                    self._run = None
                    if self._thrown:
                        self._thrown = False
                        throw(self._thread_id, None)
            except Stopped:
                continue
            return outcome

    def _call(self, run: Run) -> Outcome:
        current.set(run)
        try:
            if self._lanes.starts_logged:
                report_start(run.lease)
            return completed(call(run, self._lanes.reach))
        except BaseException as error:  # noqa: BLE001 - whatever a handler raises is its outcome
            return outcome_of(error, run)


class ChildLane:
    """Runs one job in a process of its own, which is simply killed."""

    def __init__(self, children: Children) -> None:
        self._children = children

    def throw(self, run: Run) -> None:
        self._children.kill(run)

    def frames(self, run: Run) -> str:  # noqa: ARG002 - they are in another process
        return ""
