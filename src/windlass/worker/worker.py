"""One worker: claims, runs and settles jobs, and ends when it is told to, when it is replaced, or with its lease.

Everything here runs on the loop of one process; handlers run on it or beside it (lanes.py). A handler can block all of
this; the supervisor cannot be blocked, and watches from outside through the slots.
"""

import asyncio
import logging
import os
import sys
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, TypeVar
from uuid import UUID

from windlass.attempt_report import jobs_logged
from windlass.blocking import waited
from windlass.bus.protocol import NO_LOCKS, RECONNECTED, ExecutionLocks, Waker
from windlass.clock import steady_s
from windlass.config import Config
from windlass.errors import Unavailable
from windlass.lifecycle import Released, Settlement, storable
from windlass.model import IfUnknown, Lease
from windlass.rollups import Recorder
from windlass.store.protocol import Claims, Hints, Intention, Progress, channel
from windlass.store.protocol.hand_over import handed
from windlass.telemetry import about, log_of
from windlass.worker.claimer import Claimer, Post
from windlass.worker.control import EXIT_FAULT, Control
from windlass.worker.desk import Desk
from windlass.worker.hearing import Hearing
from windlass.worker.hook_runner import HookRunner
from windlass.worker.lanes import Children, Lanes
from windlass.worker.run import Run, Stop
from windlass.worker.run_loop import create_own_task
from windlass.worker.settler import Settler
from windlass.worker.slots import Slots
from windlass.worker.watch import Watch

T = TypeVar("T")

EXIT_LEASE_LOST: Final = 75
EXIT_DEAF: Final = 76
_TICK_S: Final = 0.1
_AHEAD_MAX: Final = 600
_PROGRESS_S: Final = 1.0
_RECORD_S: Final = 5.0
_RELEASE_S: Final = 1.0
_LAST_WORDS_S: Final = 0.01
_EARLY_MAX: Final = 1_000
_log: Final = logging.getLogger(__name__)


class Worker:
    """Open the store, then `await Worker(…).work()`; it returns the exit code."""

    def __init__(
        self,
        post: Post,
        config: Config,
        *,
        slots: Slots,
        control: Control,
        claims: Claims,
        steps: Claims,
        finishes: Claims,
        hints: Hints,
        waker: Waker,
        children: Children,
        locks: ExecutionLocks = NO_LOCKS,
        die: Callable[[int], None] = os._exit,
    ) -> None:
        self._worker_id = post.worker_id
        self._secret_channel = channel(post.hand_key)
        self._die = die  # at once: closing connections of a database that does not answer takes its time
        self._config = config
        self._control = control
        self._claims = claims
        # The same store over other connections, for what handlers ask of it; their transactions apart from the rest, or
        # as many as there are connections would wait for one more to enqueue with.
        self._steps = steps
        self._finishes = finishes
        self._slots = slots
        self.desk = Desk(slots.count, slots, buffer_s=config.worker.buffer_s, ahead_max=_AHEAD_MAX)
        self._recorder = Recorder()
        self._recorded_s = 0.0
        hooked = any(job.hooks is not None and job.hooks.after for job in post.types.values())
        self._hooks = HookRunner(slots.count, self._written) if hooked else None
        self._settler = Settler(
            claims,
            waker,
            self._written,
            logged=jobs_logged(config.worker.log_jobs, sys.stderr),
            hooks=self._hooks,
            locks=locks,
            recorder=self._recorder,
        )
        self._lanes = Lanes(self.desk, self._settler.finish, self, children)
        self._claimer = Claimer(post, self.desk, slots, self._settler, claims, hints, config.worker, locks)
        self._claimer.begin = self._begin
        self._lanes.stirred = self._claimer.stir
        self._lanes.failed = self._fail
        self._watch = Watch(self.desk, config.worker)
        self._hearing = Hearing(self.desk, self._claimer, slots, config)
        self._loop = asyncio.get_running_loop()
        self._progress: dict[UUID, Run] = {}
        self._early_cancels: set[tuple[UUID, UUID]] = set()
        self._releasing_s: float | None = None
        self._said_spent = False
        self._exit_code = 0
        self._ended = asyncio.Event()
        self.hint = self._claimer.hint

    def hear(self, name: str, said: str) -> None:
        """A notification: a job that is handed to us, or a hint that there may be one to claim."""
        if said is RECONNECTED:
            self._claimer.missed()
        elif name == self._secret_channel:
            self._claimer.take(handed(said, self._worker_id))
        else:
            self._claimer.hint()

    async def work(self) -> int:
        """Until told to stop, or past saving."""
        tasks = [
            create_own_task(self._loop, each, name=name)
            for name, each in {
                "claim": self._claim(),
                "settle": self._settler.work(),
                "hear": self._hear(),
                "tick": self._tick(),
                "mind": self._mind(),
                "end": self._ended.wait(),
            }.items()
        ]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        except BaseException as error:
            self._fail(error)
            raise
        finally:
            for task in tasks:
                task.cancel()
            self._lanes.cancel()
            if self._hooks is not None:
                self._hooks.close()
        return self._exit_code

    async def _claim(self) -> None:
        """Claim until told to drain. Then stay: a claimer that ends otherwise ends the worker, which would be deaf."""
        await self._claimer.work()
        await self._ended.wait()

    def _fail(self, error: BaseException) -> None:
        """A part of this worker has ended that never should. The process ends at once, before anything is cancelled: that would
        clear the slots, and whatever job did this would do it again. From any thread."""
        try:
            _log.critical("a part of this worker has failed: it ends", exc_info=error)
        finally:
            self._die(EXIT_FAULT)

    # Told by the supervisor. ----------------------------------------------------------------------------------------

    async def _hear(self) -> None:
        while (message := await self._control.hear()) is not None:
            match message:
                case {"say": "cancel", "job_id": job_id, "token": token}:
                    self._cancel(UUID(job_id), UUID(token))
                case {"say": "drain"}:
                    self.drain()
                case {"say": "release"}:
                    self.release()
        _log.error("the supervisor is gone")
        self._die(EXIT_LEASE_LOST)

    def _cancel(self, job_id: UUID, token: UUID) -> None:
        claim = job_id, token
        for run in tuple(self.desk.runs.values()):
            if run.lease.claim == claim:
                run.tell_to_stop(Stop.CANCEL)
                self._look()
                return
        if any(lease.claim == claim for lease in self.desk.waiting()):
            self._give_back_waiting()  # the store cancels it as it goes back
        elif len(self._early_cancels) < _EARLY_MAX:
            self._early_cancels.add(claim)  # it overtook the answer to our claim, or came too late

    def _begin(self) -> None:
        """Jobs have come to the desk."""
        if self._early_cancels:
            if any(lease.claim in self._early_cancels for lease in self.desk.waiting()):
                self._give_back_waiting()
            self._early_cancels.clear()
        self._lanes.dispatch()

    def drain(self) -> None:
        """Claim no more, give back what has not begun, finish what runs."""
        self._claimer.drain()
        self._give_back_waiting()

    def release(self) -> None:
        """Give back what runs as well, as far as it lets go within a second."""
        self.drain()
        self._releasing_s = self._releasing_s or steady_s()
        for run in tuple(self.desk.runs.values()):
            run.tell_to_stop(Stop.SHUTDOWN)
        self._look()

    def _give_back_waiting(self) -> None:
        self._settler.release(self.desk.clear(), Released())

    # Every tenth of a second. ---------------------------------------------------------------------------------------

    async def _tick(self) -> None:
        spare_s = min(1.0, self._config.lease.lease_ttl_s / 5) / 2
        while True:
            now_s = steady_s()
            slots = self._slots
            slots.pulse_s = now_s
            slots.lost_threads = self.desk.lost
            if now_s > slots.lease_until_s - spare_s > 0:
                # Others may run our jobs from now on: not one more step of them here.
                _log.error("the lease was not renewed in time: this worker ends")
                self._control.say("leave", problem="its lease was not renewed")
                await asyncio.sleep(_LAST_WORDS_S)
                self._die(EXIT_LEASE_LOST)
                return
            self._look()
            if self.desk.stale():
                self._give_back_waiting()
            self._look_for_the_end(now_s)
            await asyncio.sleep(_TICK_S)

    def _look(self) -> None:
        if self._watch.look():
            self._control.say("stuck", threads=self.desk.lost)  # it goes on with the others until it is told to drain

    def _written(self) -> None:
        self._claimer.stir()
        if self._claimer.draining:
            self._look_for_the_end(steady_s())

    def _look_for_the_end(self, now_s: float) -> None:
        # The desk first: a run that ends in between is then in the backlog, never in neither.
        empty, idle = not self.desk.runs, self.desk.idle
        if not self._claimer.draining or self._settler.backlog > 0:
            return
        if self._releasing_s is not None and (empty or now_s - self._releasing_s > _RELEASE_S):
            self._end()  # what still runs ends with the process, and its supervisor gives it back
        elif not self._claimer.ended:
            return  # a claim is on its way, and what it brings goes back first
        elif idle and empty:
            self._end()
        elif idle and not self._said_spent:
            self._said_spent = True
            self._control.say("spent")

    def _end(self) -> None:
        if not self._ended.is_set():
            self._control.say("bye")
            self._ended.set()

    # Every second or so: what needs the database. -------------------------------------------------------------------

    async def _mind(self) -> None:
        """Progress, strays, and whether we are deaf."""
        strays_s = steady_s()
        while True:
            before_s = steady_s()
            await asyncio.sleep(_PROGRESS_S)
            now_s = steady_s()
            if now_s - before_s > 2 * _PROGRESS_S:
                self._hearing.was_held_up(now_s)
            await _try("showing progress", self._show_progress())
            await _try("showing logs", self._show_logs(now_s))
            if now_s - self._recorded_s >= _RECORD_S:
                self._recorded_s = now_s
                await _try("recording durations", self._claims.record_rollups(self._recorder.take()))
            if self._claimer.troubled or now_s - strays_s >= self._config.lease.heartbeat_s:
                strays_s = now_s
                self._claimer.troubled = False
                await _try("giving back strays", self._claimer.give_back_strays())
                await _try("comparing leases", self._stop_what_is_not_ours())
            await _try("looking for deafness", self._leave_if_deaf(now_s))

    async def _stop_what_is_not_ours(self) -> None:
        """Claims are not durable: a crash of the database can forget one, and somebody else then runs the job."""
        # Not those whose handler may have finished them itself: for one in a child nobody here knows.
        runs = [run for run in tuple(self.desk.runs.values()) if not run.finishing and not run.isolated]
        waiting = self.desk.waiting()
        held = await self._claims.held(self._worker_id)
        for run in runs:
            if run.lease.claim not in held and self.desk.runs.get(run.slot) is run:
                _log.warning("job %s: its lease is lost, and it stops", run.lease.job_id, extra=about(run.lease))
                run.tell_to_stop(Stop.LOST)
        gone = {lease.claim for lease in waiting} - held
        if any(lease.claim in gone for lease in self.desk.waiting()):
            self._give_back_waiting()
        self._look()

    async def _leave_if_deaf(self, now_s: float) -> None:
        if await self._hearing.is_past_cure(now_s):
            self._control.say("leave", problem="deaf", drains=True)
            self._exit_code = EXIT_DEAF
            self.drain()

    async def _show_progress(self) -> None:
        runs = [self._progress.pop(key) for key in tuple(self._progress)]
        reports = []
        for run in runs:
            if run.progress is not None and self.desk.runs.get(run.slot) is run:
                fraction, note = run.progress
                # A file's name that is no UTF-8 must not cost the worker; nor must what a child makes up.
                text = None if note is None else storable(note)
                reports.append(Progress(run.lease, min(max(fraction, 0.0), 1.0), text))
        await self._claims.report_progress(reports)

    async def _show_logs(self, now_s: float) -> None:
        """What attempts have written so far, of those that somebody follows. Attempts of less than a second are not looked
        for: their logs are kept when they end, in a moment."""
        writing = {
            run.lease.job_id: run
            for run in tuple(self.desk.runs.values())
            if run.log is not None and now_s - run.began_s > _PROGRESS_S
        }
        if not writing:
            return
        followed = await self._claims.followed(writing)
        texts = [(writing[job_id].lease, log_of(writing[job_id]).text_so_far()) for job_id in followed]
        await self._claims.show_logs([(lease, storable(text)) for lease, text in texts if text])

    # What contexts reach for (context.Reach). -----------------------------------------------------------------------

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        return waited(work, self._loop)

    def progressed(self, run: Run) -> None:
        self._progress[run.lease.job_id] = run

    async def step(self, lease: Lease, key: str) -> str | None:
        return await self._steps.step(lease, key)

    async def keep_step(self, lease: Lease, key: str, result: str) -> None:
        await self._steps.keep_step(lease, key, result)

    async def intend(self, lease: Lease, key: str, if_unknown: IfUnknown, *, unknown: bool = False) -> Intention:
        return await self._steps.intend(lease, key, if_unknown, unknown=unknown)

    async def effect_state(self, lease: Lease, key: str) -> Intention:
        return await self._steps.effect_state(lease, key)

    async def finish_effect(self, lease: Lease, key: str, result: str | None) -> None:
        await self._steps.finish_effect(lease, key, result)

    async def take_back_effect(self, lease: Lease, key: str) -> None:
        await self._steps.take_back_effect(lease, key)

    def finishing(self, decide: Callable[[], Settlement], connection: Any) -> AbstractAsyncContextManager[Any]:
        return self._finishes.finishing(decide, connection)


async def _try(name: str, chore: Coroutine[Any, Any, object]) -> None:
    """Nothing of this is worth the jobs of a process."""
    try:
        await chore
    except Unavailable:
        pass  # said by those who wait for it
    except Exception:  # noqa: BLE001 - said, and tried again at the next turn
        _log.exception("%s has failed", name)
