"""One worker process as its supervisor has it: started, spoken with, told to end, killed, and how it ended.

A berth is used once: each restart is a new one, with a new worker id. Nothing here speaks to the database.
"""

import asyncio
import contextlib
import logging
import os
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final
from uuid import UUID, uuid4

from windlass.clock import steady_s
from windlass.config import Config, queue_weights
from windlass.worker.aftermath import Culprit, End
from windlass.worker.control import EXIT_FAULT, Control, Message, config_said
from windlass.worker.groups import Head, kill_groups
from windlass.worker.processes import Child
from windlass.worker.slots import Slots, State

PROGRAM: Final = "windlass.worker.main"
RELEASE_S: Final = 2.0  # what a worker has to give its jobs back in
_LAST_WORDS_S: Final = 0.5
_MUTE_S: Final = 5.0
_SWEEP_S: Final = 2.0
_SWEEP_PAUSE_S: Final = 0.005
_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Crew:
    """What all workers of a supervisor have in common."""

    config: Config
    app: str
    name: str
    supervisor_id: UUID
    program: str = PROGRAM
    reload: bool = False  # restart workers when a source file of the app changes

    @property
    def queues(self) -> dict[str, int]:
        """What was asked for; empty: each worker serves the queues that its types name."""
        return queue_weights(self.config.worker.queues)

    def of_place(self, n: int) -> "Crew":
        """The same, with the threads of the n-th worker."""
        worker = self.config.worker
        return replace(self, config=replace(self.config, worker=replace(worker, threads=worker.widths[n - 1])))

    @property
    def margin_s(self) -> float:
        """How long before the end of its lease a worker must have stopped."""
        return min(1.0, self.config.lease.lease_ttl_s / 5)


@dataclass(slots=True)
class Asked:
    """A cancel that was passed on."""

    token: UUID
    since_s: float
    attempt: int | None = None  # whose token that is, once it was seen at work


class Berth:
    """One worker process. `await Berth.open(…)` starts it; `await ended()` waits for its end."""

    def __init__(self, crew: Crew, child: Child, slots: Slots, control: Control, name: str) -> None:
        self.id = uuid4()
        self.name = name
        self.child = child
        self.slots = slots
        self.threads = slots.count
        self.began_s = steady_s()
        self.hello = asyncio.Event()
        self.types: list[str] = []
        self.digests: list[str] = []
        self.queues: list[str] = []
        self.unserved: dict[str, list[str]] = {}  # by queue: types whose queue it does not serve
        self.refused: str | None = None  # why it cannot run at all
        self.known = False  # perhaps registered: it must be buried
        self.lease_until_s: float | None = None  # None: not registered, so it holds nothing
        self.draining = False
        self.replace = True  # False: it was sent away for good
        self.worn: str | None = None  # why it should make way for another, if it should
        self.retires = asyncio.Event()  # it finishes its jobs, and its successor starts beside it
        self.stopped_since_s: float | None = None  # when it was first seen stopped, as by SIGSTOP
        self.restarts = False  # its successor is wanted at once: the source has changed, or somebody has asked for it
        self.ends_by_s: float | None = None  # when it must have ended that was told to give its jobs back
        self.version: str | None = None  # of Windlass
        self.sources: dict[str, list[int]] = {}  # the source files of its app, if it says
        self.had_begun = False  # it ran jobs before it ended
        self.crashed_by_job = False  # it crashed while jobs ran in it: they are suspects now
        self.cancels: dict[UUID, Asked] = {}
        self.silent = False  # its loop does not tick, and that was said
        self._control = control
        self._margin_s = crew.margin_s
        self._heard_all = asyncio.Event()
        self._listening = asyncio.create_task(self._listen(), name=f"windlass listens to {name}")
        self._killed: str | None = None
        self._culprit: Culprit | None = None
        self._held_up = False
        self._left = False
        self._told_to_go = False
        self._retired = False
        self._over = False  # the process has ended
        control.say("start", **self._orders(crew))

    @classmethod
    async def open(cls, crew: Crew, n: int) -> "Berth":
        """Start a worker process; it does not claim before `go`."""
        with contextlib.ExitStack() as undo:  # where descriptors run out, a failed start must not cost any
            slots = Slots.create(crew.config.worker.threads)
            undo.callback(slots.close)
            ours, theirs = socket.socketpair()
            with theirs:
                control = await Control.open(ours)
                undo.callback(control.close)
                fds = (theirs.fileno(), slots.fd)
                child = Child([sys.executable, "-m", crew.program, *map(str, fds), str(os.getpid())], pass_fds=fds)
            undo.pop_all()
        return cls(crew, child, slots, control, f"{crew.name}-{child.pid}-{n}")

    def _orders(self, crew: Crew) -> Mapping[str, Any]:
        return {
            "worker_id": self.id,
            "supervisor_id": crew.supervisor_id,
            "app": crew.app,
            "name": self.name,
            "threads": self.threads,
            "queues": crew.queues,
            "config": config_said(crew.config),
            "reload": crew.reload,
        }

    # What it is told. -----------------------------------------------------------------------------------------------

    def lend(self, until_s: float) -> None:
        """Its jobs are its own until then."""
        self.lease_until_s = self.slots.lease_until_s = until_s

    def go(self) -> None:
        self._control.say("go")

    def cancel(self, job_id: UUID, token: UUID, attempt: int | None) -> None:
        """Pass a request to cancel on, once. `attempt`: which one that token is of, if it is known to have begun."""
        asked = self.cancels.get(job_id)
        if asked is not None and asked.token == token:
            asked.attempt = asked.attempt or attempt
        elif self._control.say("cancel", job_id=job_id, token=token):
            self.cancels[job_id] = Asked(token, steady_s(), attempt)

    def drain(self, *, replace: bool) -> None:
        """Let it finish what it runs and go."""
        if not self.draining:
            self.draining = self._told_to_go = True
            self.replace = replace
            self._control.say("drain")

    def retire(self, *, beside: bool) -> None:
        """Let it finish what it runs and go. `beside`: its successor does not wait for that."""
        self.draining = True
        self._retired = True
        self._control.say("drain")
        if beside:
            _log.warning("%s finishes its jobs beside its successor: %s", self.name, self.worn)
            self.retires.set()

    def release(self, *, replace: bool = False) -> None:
        """Let it give back what it runs and go."""
        self.draining = self._told_to_go = True
        self.replace = replace
        self.ends_by_s = steady_s() + RELEASE_S
        self._control.say("release")

    def restart(self) -> None:
        """Let it give back what it runs and make way for another, unless it was sent away for good."""
        if self.ends_by_s is None:
            self.restarts = True
            self.release(replace=self.replace)

    def reload(self) -> None:
        """Let it finish what it runs, and make way for one with the new source; at once, if it runs nothing yet."""
        self.restarts = True
        if self.lease_until_s is None:
            self.kill("its source files have changed")
        else:
            self.drain(replace=True)

    def kill(self, why: str, culprit: Culprit | None = None, *, held_up: bool = False) -> None:
        """End it now. What it had begun is not to blame, but for the culprit; `held_up`: but for one of them, nobody knows which."""
        if self._killed is None and not self._over:
            self._killed, self._culprit, self._held_up = why, culprit, held_up
            _log.warning("%s is killed: %s", self.name, why)
            self.child.kill()

    @property
    def killed(self) -> bool:
        return self._killed is not None

    # What it says. --------------------------------------------------------------------------------------------------

    async def _listen(self) -> None:
        while (message := await self._control.hear()) is not None:
            self._heed(message)
        self._heard_all.set()
        await asyncio.sleep(_MUTE_S)
        self.kill("its control channel is closed, and it goes on")

    def _heed(self, message: Message) -> None:
        match message:
            case {
                "say": "hello",
                "types": list(types),
                "digests": list(digests),
                "queues": list(queues),
                "unserved": dict(unserved),
            }:
                self.types = [str(one) for one in types]
                self.digests = [str(one) for one in digests]
                self.queues = [str(one) for one in queues]
                self.unserved = {str(queue): [str(one) for one in names] for queue, names in unserved.items()}
                self.sources = message.get("sources") or {}
                self.hello.set()
            case {"say": "refuse", "problem": problem}:
                self.refused = str(problem)
            case {"say": "stuck", "threads": threads}:
                self.worn = f"it has lost {threads} of {self.threads} threads to handlers that do not stop"
                _log.warning("%s will be replaced: %s", self.name, self.worn)
            case {"say": "spent"}:
                self.kill("nothing is left in it but handlers that do not stop")
            case {"say": "leave", "problem": problem}:
                self._left = self.draining = True
                self.worn = f"it is {problem}" if message.get("drains") else None  # else it ends in a moment
                _log.warning("%s ends itself: %s", self.name, problem)
            case {"say": "bye"}:
                self._left = True
            case _:
                _log.error("%s says what nobody understands: %.200r", self.name, message)

    # How it ends. ---------------------------------------------------------------------------------------------------

    async def ended(self) -> End:
        """Wait for its end, however that comes, and say what it was."""
        code = await self.child.ended()
        self._over = True
        await self._sweep([self.child.head, *self.slots.children()])
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._heard_all.wait(), _LAST_WORDS_S)  # what it said just before
        self._listening.cancel()
        self._control.close()
        begun, started = tuple(self.slots.begun()), self.slots.started()
        self.slots.close()
        self.had_begun = bool(started)
        crashed = self._crashed(code)
        spent = self.killed and not (self._told_to_go or self._left or self._is_lapsed)
        clean = (self._told_to_go or self._retired) and code == 0 and not self.killed and not crashed
        fault = crashed and code == EXIT_FAULT
        end = End(self.id, crashed, begun, self._culprit, self.name, spent, clean, started, self._held_up, fault)
        self.crashed_by_job = crashed and any(one.state is not State.ISOLATED for one in begun)
        level = logging.ERROR if end.crashed else logging.INFO
        _log.log(level, "%s has ended %s, with %d jobs under way", self.name, _described(code), len(begun))
        return end

    async def _sweep(self, heads: list[Head]) -> None:
        """Its jobs may begin elsewhere once nothing is left of what they started here."""
        until_s = steady_s() + _SWEEP_S
        while left := kill_groups(heads):
            if steady_s() > until_s:
                _log.error("%s has ended, but %d processes that its jobs started have not", self.name, left)
                return
            await asyncio.sleep(_SWEEP_PAUSE_S)

    def _crashed(self, code: int) -> bool:
        """Whether it died by itself. Only then are its jobs suspected."""
        told_to_go = self._told_to_go and code == 0
        return not (self.killed or self._left or self.refused or told_to_go or self._is_lapsed)

    @property
    def _is_lapsed(self) -> bool:
        """It stops itself when its lease is nearly over; so does everything on a machine that was frozen meanwhile."""
        return self.lease_until_s is not None and steady_s() > self.lease_until_s - 2 * self._margin_s


def _described(code: int) -> str:
    return f"with exit code {code}" if code >= 0 else f"by signal {-code}"
