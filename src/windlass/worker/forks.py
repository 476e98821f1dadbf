"""The worker's side of the template (template.py): it is kept alive, and children are forked from it in milliseconds.

Its children end with it. That is no fault of theirs: how they ended is then not known, and nobody is blamed. A template
that keeps dying is started again at longer and longer intervals; until then, and for good where an app cannot be
forked, whoever asks is told so (Unforkable) and starts a child anew.
"""

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable
from typing import Final

import msgspec

from windlass.clock import steady_s
from windlass.worker.frames import (
    Fork,
    Forked,
    FromTemplate,
    NotForked,
    Ready,
    Reap,
    Reaped,
    Refused,
    Start,
    ToTemplate,
    Unfit,
    from_template,
    packet,
    packet_bytes_max,
)
from windlass.worker.groups import Head
from windlass.worker.loops import BackOff
from windlass.worker.parentage import started_ticks
from windlass.worker.processes import Child, readable, resident_mib

# It has nothing else to do: one that needs longer is stopped, or broken.
_ANSWER_S: Final = 5.0
_TRIES: Final = 2
_LATER_S: Final = 0.01  # the loop's clock is not ours, and coarser
_log: Final = logging.getLogger(__name__)

can_fork: Final = sys.platform == "linux" and all(
    hasattr(module, name)
    for module, name in ((os, "fork"), (os, "pidfd_open"), (os, "memfd_create"), (socket, "send_fds"))
)


class NotStarted(Exception):
    """A child is not there to run the job. `hopeless`: the next one will not be either."""

    def __init__(self, problem: str, *, hopeless: bool = False) -> None:
        super().__init__(problem)
        self.hopeless = hopeless


class TemplateDied(NotStarted):
    """The child is gone because its template is."""

    def __init__(self) -> None:
        super().__init__(ending(None))


class Unforkable(Exception):
    """Start a child anew: there is no template, now or for good."""


class ForkedChild:
    """A process like processes.Child, the head of its own group; but its parent is the template."""

    def __init__(self, pid: int, pidfd: int, template: "Template") -> None:
        self.pid = pid
        self.head = Head(pid, started_ticks(pid))
        self._pidfd = pidfd
        self._template = template

    def kill(self) -> None:
        """SIGKILL the process and its group."""
        if self._pidfd >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
            # Its number is its own until it is reaped. If the template has died, somebody reaps it at once; but numbers
            # are given out in turn, and this one does not come round before we have noticed.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)

    async def ended(self) -> int | None:
        """Wait for the end, and return the exit code; None: it ended with its template, or that died before telling."""
        await readable(self._pidfd)
        self.kill()
        os.close(self._pidfd)
        self._pidfd = -1
        return await self._template.reap(self.pid)

    @property
    def resident_mib(self) -> float:
        return resident_mib(self.pid)


class Template:
    """One template process and the channel to it. One order at a time: its queue never fills."""

    def __init__(self, start: Start, start_s: float) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with contextlib.ExitStack() as undo, theirs:
            undo.callback(ours.close)
            argv = [sys.executable, "-m", "windlass.worker.template", str(theirs.fileno()), str(os.getpid())]
            self._process = Child(argv, pass_fds=(theirs.fileno(),))
            undo.pop_all()
        ours.setblocking(False)
        self.pid = self._process.pid
        self._socket = ours
        self._turn = asyncio.Lock()
        self.is_unfit = False
        self._late = False
        self.ended = asyncio.create_task(self._until_ended())
        self.ready = asyncio.create_task(self._start(start, start_s))

    @property
    def is_ready(self) -> bool:
        return self.ready.done() and not self.ready.cancelled() and self.problem is None

    @property
    def problem(self) -> BaseException | None:
        """Why it is not ready and will not be; None if it may be, or nobody waits for it any more."""
        return self.ready.exception() if self.ready.done() and not self.ready.cancelled() else None

    async def fork(self, channel_fd: int, words_fd: int) -> ForkedChild:
        """A child that has these, and will say when it is ready. Raises Unforkable or NotStarted."""
        await asyncio.shield(self.ready)
        match await self._ask(Fork(), channel_fd, words_fd):
            case Forked(pid), [pidfd]:
                return ForkedChild(pid, pidfd, self)
            case Forked(pid), _:  # we have no descriptor left to take it with
                os.killpg(pid, signal.SIGKILL)
                await self.reap(pid)
                raise NotStarted("too many open files")
            case NotForked(problem), _:
                raise NotStarted(problem)
        self.kill()
        raise Unforkable("the template has died")

    async def reap(self, pid: int) -> int | None:
        """How that child ended; None if the template is gone."""
        answer, _ = await self._ask(Reap(pid))
        return answer.code if isinstance(answer, Reaped) else None

    def kill(self) -> None:
        self._process.kill()

    async def _start(self, start: Start, start_s: float) -> None:
        answer, _ = await self._ask(start, timeout_s=start_s)
        match answer:
            case Ready():
                return
            case Refused(problem):
                error: Exception = NotStarted(problem, hopeless=True)
            case Unfit(problem):
                self.is_unfit = True
                error = Unforkable(problem)
            case _ if self._late:
                error = NotStarted(f"it was not ready within {start_s:g} s", hopeless=True)
            case _:
                error = Unforkable("the template has died")
        self.kill()
        raise error

    async def _ask(
        self, order: ToTemplate, *fds: int, timeout_s: float = _ANSWER_S
    ) -> tuple[FromTemplate | None, list[int]]:
        """The answer and what came with it; None if the template is gone, or does not answer in time and is ended."""
        async with self._turn:
            try:
                async with asyncio.timeout(timeout_s):
                    socket.send_fds(self._socket, [packet(order)], fds)
                    await readable(self._socket.fileno())
                    data, received, _, _ = socket.recv_fds(self._socket, packet_bytes_max, 1, socket.MSG_CMSG_CLOEXEC)
                    return (from_template.decode(data) if data else None), received
            except (OSError, msgspec.MsgspecError) as error:
                self._late = isinstance(error, TimeoutError)
                self.kill()
                return None, []
            except asyncio.CancelledError:
                self.kill()  # the next to ask would get this answer
                raise

    async def _until_ended(self) -> int:
        code = await self._process.ended()
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes whoever waits for an answer
        async with self._turn:
            self._socket.close()
        return code


class Forks:
    """Keeps a template once one was needed. `unfit` is called when it turns out that the app cannot be forked."""

    def __init__(self, start: Start, start_s: float, *, fit: bool, unfit: Callable[[], None]) -> None:
        self.is_unfit = not fit
        self._start = start
        self._start_s = start_s
        self._unfit = unfit
        self._template: Template | None = None
        self._living: set[Template] = set()
        self._back_off = BackOff()
        self._not_before_s = 0.0
        self._closed = False

    def warm(self) -> None:
        """Have a template, or start one if it is time."""
        if self._template is not None or self._closed or self.is_unfit or steady_s() < self._not_before_s:
            return
        self._back_off.began()
        try:
            template = Template(self._start, self._start_s)
        except OSError as error:
            _log.warning("no template for isolated jobs can be started: %s", error)
            self._not_before_s = steady_s() + self._back_off.ended()
            return
        self._template = template
        self._living.add(template)
        template.ready.add_done_callback(lambda _: self._heed(template))
        template.ended.add_done_callback(lambda _: self._gone(template))

    async def fork(self, channel_fd: int, words_fd: int) -> ForkedChild:
        """A child with these. Raises NotStarted, or Unforkable if it must be started anew."""
        for _ in range(_TRIES):
            self.warm()
            if (template := self._template) is None:
                break
            try:
                return await template.fork(channel_fd, words_fd)
            except Unforkable:
                self._lose(template)
        raise Unforkable

    def give_up_starting(self) -> None:
        """Let nobody wait any longer for a template that is not ready yet."""
        self._closed = True
        for template in self._living:
            if not template.is_ready:
                template.kill()

    async def aclose(self) -> None:
        """To be called when its children are gone."""
        self._closed = True
        for template in self._living:
            template.kill()
        await asyncio.gather(*(template.ended for template in self._living))

    def _heed(self, template: Template) -> None:
        match template.problem:
            case Unforkable() as unfit if template.is_unfit:
                _log.info("children for isolated jobs are started and not forked: %s", unfit)
                self.is_unfit = True
                self._lose(template)
                self._unfit()
            case NotStarted() as problem:
                _log.warning("the template for isolated jobs did not start: %s", problem)
                self._lose(template)

    def _gone(self, template: Template) -> None:
        self._living.discard(template)
        given_up = template.is_unfit or isinstance(template.problem, NotStarted)
        if not given_up and not self._closed:
            _log.warning("the template for isolated jobs (%d) %s", template.pid, ending(template.ended.result()))
        self._lose(template)

    def _lose(self, template: Template) -> None:
        """Do without it. One that was of use is replaced before it is needed again."""
        if template is self._template:
            self._template = None
            pause_s = self._back_off.ended()
            self._not_before_s = steady_s() + pause_s
            if template.is_ready and not self._closed:
                asyncio.get_running_loop().call_later(pause_s + _LATER_S, self.warm)


def ending(code: int | None) -> str:
    if code is None:
        return "ended with the template it was forked from"
    if code >= 0:
        return f"exited with code {code}"
    with contextlib.suppress(ValueError):
        name = signal.Signals(-code).name
        return f"was ended by {name}" + (", perhaps for want of memory" if name == "SIGKILL" else "")
    return f"was ended by signal {-code}"
