"""The worker's own watch over its runs: deadlines, requests to stop, and what to do about those that do not heed them.

A run told to stop is first asked (ctx.cancelled), then an exception is thrown into it, again and again, and past the
grace its threads are given up: the worker goes on with the others until its supervisor has another take its place.
All of it is enforced by the supervisor too, for a worker whose loop cannot run.
"""

import logging
from typing import Final

from windlass.clock import steady_s
from windlass.config import WorkerConfig
from windlass.telemetry import about
from windlass.worker.desk import Desk
from windlass.worker.run import Run, Stop
from windlass.worker.slots import State

_AGAIN_S: Final = 0.5
# What its supervisor is to make of it. Of a lost lease nothing: the job is somebody else's.
_STUCK: Final = {Stop.TIMEOUT: State.STUCK_BY_TIMEOUT, Stop.CANCEL: State.STUCK_BY_CANCEL}
_log: Final = logging.getLogger(__name__)


class Watch:
    def __init__(self, desk: Desk, config: WorkerConfig) -> None:
        self._desk = desk
        self._config = config

    def look(self) -> bool:
        """Do what is due now. True: threads were lost in this look."""
        now_s = steady_s()
        lost = False
        for run in tuple(self._desk.runs.values()):
            if run.stop is None and now_s >= run.deadline_s:
                run.tell_to_stop(Stop.TIMEOUT)
            if run.stop is not None and not run.stuck:
                lost |= self._urge(run, now_s)
        return lost

    def _urge(self, run: Run, now_s: float) -> bool:
        told_s = now_s - run.stop_s
        asked = run.isolated or run.stop in {Stop.SHUTDOWN, Stop.LOST} or told_s >= self._config.stop_ask_s
        if asked and now_s - run.thrown_s >= _AGAIN_S and run.lane is not None:
            run.thrown_s = now_s
            run.lane.throw(run)
        if told_s < self._config.stop_grace_s or run.stop in {None, Stop.SHUTDOWN}:
            return False  # a shutdown has its own end
        if not self._desk.give_up(run, _STUCK.get(run.stop)):
            return False
        frames = "" if run.lane is None else run.lane.frames(run).rstrip()
        _log.error(
            "job %s (%s, attempt %d) does not stop: %d of %d threads are lost until this worker is replaced",
            run.lease.job_id, run.lease.type, run.lease.attempt, run.lease.threads, self._desk.threads,
            extra=about(run.lease) | ({"exception": frames} if frames else {}),
        )  # fmt: skip
        return True
