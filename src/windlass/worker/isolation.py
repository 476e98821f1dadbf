"""Jobs in processes of their own: those that asked for it, and those suspected of having crashed a worker.

A child (child.py) runs one job at a time, and may run others after it; a suspect gets one that has run nothing, and
nobody gets it afterwards. Whatever a job does to its child, the worker goes on: a child that dies is an outcome, and
one that must stop is killed, with everything it started. Children are forked from a template of this worker (forks.py),
so that the suspects of a dead worker run again at once, or started anew where that cannot be. Both happens on the
loop's thread, which must be the main one: they die with the thread that made them.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Final

from windlass.clock import steady_s
from windlass.config import Config
from windlass.lifecycle import Failed, Lost, Outcome
from windlass.telemetry import JobLogger, about, log_of
from windlass.worker.cell import Cell
from windlass.worker.control import config_said
from windlass.worker.forks import Forks, NotStarted, TemplateDied, can_fork, ending
from windlass.worker.frames import Begun, Done, Line, Progress, Start, Work, outcome_heard
from windlass.worker.groups import Head
from windlass.worker.run import Run, Stop, stopped

_TRIES: Final = 2  # children that may die on a job's hands before it has begun
_IDLE_S: Final = 10.0
_LEAVE_S: Final = 1.0
_PAUSE_S: Final = (1.0, 30.0)  # between jobs for which no child could be started
_log: Final = logging.getLogger(__name__)


class Isolation:
    """The children of one worker. `progressed` is called when the progress of a run has changed, `entrusted` just before
    one is given to a child.

    Once one was needed, or `warm` was called, a template is kept; for an app that cannot be forked, `spare` children
    that wait. More of them wait only for a moment after they were in use. Never more than the worker has threads, those
    that are just ending aside. `orderly`: in the end the idle ones get a moment for hooks of their app.
    """

    def __init__(
        self,
        app: str,
        config: Config,
        *,
        spare: int = 1,
        worker: str | None = None,
        fork: bool = can_fork,
        orderly: bool = False,
    ) -> None:
        self.progressed: Callable[[Run], None] = lambda _: None
        self.entrusted: Callable[[Run, Head], None] = lambda _run, _child: None
        self._start = Start(app, worker, config_said(config))
        self._config = config.worker
        self._spare = spare
        self._forks = Forks(self._start, self._config.start_s, fit=fork, unfit=self.warm)
        self._cells: set[Cell] = set()
        self._idle: list[Cell] = []
        self._held: dict[Run, Cell] = {}
        self._told: dict[Run, asyncio.Event] = {}  # every run here, and whether it was told to stop
        self._pause_s = 0.0
        self._paused_until_s = 0.0
        self._closed = False
        self._orderly = orderly

    async def run(self, run: Run) -> Outcome:
        """Run one attempt in a child, and say how it ended."""
        self._told[run] = asyncio.Event()
        if run.stop is not None:
            self._told[run].set()
        problem = NotStarted("it died before the job had begun")
        try:
            tries = 0
            while tries < _TRIES:
                if self._is_over(run):
                    return stopped(run)
                try:
                    if (outcome := await self._try(run)) is not None:
                        return outcome
                    tries += 1
                except TemplateDied:
                    continue  # says nothing about this job; its successors come at longer and longer intervals
                except NotStarted as error:
                    problem = error
                    tries = _TRIES if error.hopeless else tries + 1
            return stopped(run) if self._is_over(run) else await self._give_back(run, problem)
        finally:
            del self._told[run]

    async def _give_back(self, run: Run, problem: NotStarted) -> Outcome:
        """Trouble of this host or this deployment, and not of the job: that must not cost it an attempt.

        After a pause: it comes back at once, and where every process fails to start it would do that without end.
        """
        pause_s = self._next_pause_s()
        _log.log(
            logging.CRITICAL if problem.hopeless else logging.ERROR,
            "no process for job %s can be started%s; it goes back in %.0f s: %s",
            run.lease.job_id, ", and isolated jobs cannot run here" if problem.hopeless else "", pause_s, problem,
            extra=about(run.lease),
        )  # fmt: skip
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause_s):
                await self._told[run].wait()
        # Its time may have run out while it waited for us.
        return Lost(crashed=False) if run.stop in {None, Stop.TIMEOUT} and not self._closed else stopped(run)

    def _next_pause_s(self) -> float:
        """Twice as long each time, until a child has started; many jobs at one time are one time."""
        now_s = steady_s()
        if now_s >= self._paused_until_s:
            self._pause_s = min(max(self._pause_s * 2, _PAUSE_S[0]), _PAUSE_S[1])
            self._paused_until_s = now_s + self._pause_s
        return self._pause_s

    def _is_over(self, run: Run) -> bool:
        return self._told[run].is_set() or self._closed

    def kill(self, run: Run) -> None:
        """End the child of this run at once. What `run` was told to stop for becomes its outcome."""
        if run in self._told:
            self._told[run].set()
        if (cell := self._held.get(run)) is not None:
            cell.kill()

    def pid_of(self, run: Run) -> int | None:
        cell = self._held.get(run)
        return None if cell is None else cell.pid

    def warm(self) -> None:
        """Start ahead what takes time."""
        self._forks.warm()
        while not self._closed and len(self._idle) < self._spares and len(self._cells) < self._config.threads:
            self._idle.append(self._new())

    async def aclose(self) -> None:
        self._closed = True
        for told in self._told.values():
            told.set()
        idle = [cell for cell in self._idle if cell.is_ready]
        self._idle.clear()
        self._forks.give_up_starting()
        if self._orderly and idle:
            for cell in idle:
                cell.close()
            await asyncio.wait([cell.ended for cell in idle], timeout=_LEAVE_S)
        await asyncio.gather(*(cell.aclose() for cell in self._cells))
        await self._forks.aclose()

    # One attempt. ---------------------------------------------------------------------------------------------------

    async def _try(self, run: Run) -> Outcome | None:
        """The outcome; None if the child died before it had begun."""
        cell = self._held[run] = self._take(fresh=run.lease.suspect)
        self.warm()
        outcome: Outcome | None = None
        try:
            await cell.ready()
            self._pause_s = self._paused_until_s = 0.0
            cell.jobs += 1
            if cell.head is not None:
                self.entrusted(run, cell.head)
            await cell.say(Work(run.lease, run.began_s))
            begun, done = await self._listen(run, cell)
            if done is None:
                return await self._died(run, cell, begun=begun)
            outcome = self._ended(run, done)
            return outcome
        finally:
            del self._held[run]
            usable = outcome is not None and not run.lease.suspect and not _is_out_of_memory(outcome)
            self._let_go(cell, usable=usable)

    async def _listen(self, run: Run, cell: Cell) -> tuple[bool, Done | None]:
        """Take in what the child says of this run until it has ended, one way or the other."""
        begun = False
        while (message := await cell.hear()) is not None:
            match message:
                case Begun():
                    begun = True
                    run.start_recorded = run.job.at_most_once
                case Line(text):
                    log_of(run).append(text)
                case Progress(fraction, note):
                    run.progress = (fraction, note)
                    self.progressed(run)
                case Done():
                    return begun, message
        return begun, None

    def _ended(self, run: Run, done: Done) -> Outcome:
        run.settled = done.settled
        if done.dropped:
            log_of(run).dropped += done.dropped
        return outcome_heard(done)

    async def _died(self, run: Run, cell: Cell, *, begun: bool) -> Outcome | None:
        code = await cell.ended
        if self._is_over(run):
            return stopped(run)
        if not begun and code is None:
            raise TemplateDied
        if not begun:
            return None
        if code is None:
            JobLogger(run).error(f"its process {cell.pid} {ending(code)}")
            return Lost(crashed=False, spent=True)  # ended from outside, and yet a start that died
        words = f"\n{cell.words}" if cell.words else ""
        how = "closed its channel and was ended for that" if cell.went_mute else ending(code)
        JobLogger(run).error(f"its process {cell.pid} {how}{words}")
        return Lost(crashed=True)

    # The children. --------------------------------------------------------------------------------------------------

    def _take(self, *, fresh: bool) -> Cell:
        """An idle child, the most recently used so that the others can go; or a new one."""
        fit = [cell for cell in self._idle if not cell.ended.done() and (cell.jobs == 0 or not fresh)]
        if fit:
            cell = max(fit, key=lambda cell: (cell.is_ready, cell.jobs > 0, cell.idle_since_s))
            self._idle.remove(cell)
            return cell
        if len(self._cells) >= self._config.threads and self._idle:
            self._idle.pop(0).kill()  # at the bound, and none of the idle will do
        return self._new()

    def _new(self) -> Cell:
        cell = Cell(self._start, self._config.start_s, self._forks)
        self._cells.add(cell)
        cell.ended.add_done_callback(lambda _: self._gone(cell))
        return cell

    def _gone(self, cell: Cell) -> None:
        self._cells.discard(cell)
        if cell not in self._held.values():
            cell.close()
        if cell in self._idle:
            self._idle.remove(cell)
            if cell.is_ready:  # else it was said already
                _log.warning("child %s %s while it waited for a job", cell.pid, ending(cell.ended.result()))

    def _let_go(self, cell: Cell, *, usable: bool) -> None:
        if cell.ended.done():
            cell.close()
        elif usable and not self._closed and not self._is_used_up(cell):
            cell.idle_since_s = steady_s()
            self._idle.append(cell)
            asyncio.get_running_loop().call_later(_IDLE_S, self._shrink)
        elif cell.is_ready:
            cell.retire()
        else:
            cell.kill()
        self.warm()

    @property
    def _spares(self) -> int:
        """How many shall wait for a job: a fork takes milliseconds, and needs none."""
        return self._spare if self._forks.is_unfit else 0

    def _is_used_up(self, cell: Cell) -> bool:
        return cell.jobs >= self._config.isolated_jobs_max or cell.resident_mib > self._config.isolated_mib_max

    def _shrink(self) -> None:
        """Let those go that nobody has needed for a while."""
        before_s = steady_s() - _IDLE_S
        for cell in sorted(self._idle, key=lambda cell: cell.idle_since_s)[: max(0, len(self._idle) - self._spares)]:
            if cell.idle_since_s <= before_s:
                self._idle.remove(cell)
                cell.retire()


def _is_out_of_memory(outcome: Outcome) -> bool:
    """Its child may hold what the job had allocated, in pieces: the next job gets another."""
    return isinstance(outcome, Failed) and outcome.error.type == "MemoryError"
