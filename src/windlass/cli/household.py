"""The processes `windlass up` has: started together, each started again should it die, and sent away in three stages.

The first signal lets everybody finish what they do, the second has running jobs given back, the third ends everything
at once. They are in groups of their own, so that a Ctrl-C in the terminal is for us alone to pass on; and they die with
us, however we die (parentage.py).
"""

import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from typing import Final

from windlass.cli.notices import is_json, say
from windlass.cli.relay import Relay
from windlass.worker.loops import BackOff, cancelled, done, first
from windlass.worker.processes import Child

_STAGES_MAX: Final = 3
_HURRIED_S: Final = 15.0  # what gives jobs back has to reach the database, on a machine that may be busy


class NeverUp(Exception):
    """A process ended before everybody was up: it will not do better the next time. `code` is its exit code."""

    def __init__(self, what: str, code: int) -> None:
        super().__init__(f"{what} ended {ending(code)} before it was up")
        self.code = code


class Kept:
    """One process that is there until it is sent away."""

    def __init__(
        self, what: str, arguments: Sequence[str], environ: Mapping[str, str], fds: Collection[int] = ()
    ) -> None:
        self.what = what
        self._argv = [sys.executable, "-m", "windlass", *arguments, "--under", str(os.getpid())]
        self._environ = environ
        self._fds = fds
        self._child: Child | None = None
        self._going = asyncio.Event()
        self._relays: list[Relay] = []

    async def keep(self, is_up: Callable[[], bool]) -> None:
        """Have it run until it is sent away. Raises NeverUp if it ends before `is_up`."""
        try:
            await self._keep(is_up)
        finally:
            for relay in self._relays:
                await relay.aclose()

    async def _keep(self, is_up: Callable[[], bool]) -> None:
        back_off = BackOff()
        while not self._going.is_set():
            back_off.began()
            how = await self._life(is_up)
            if self._going.is_set():
                return
            pause_s = back_off.ended()
            soon = f"in {pause_s:.1f} s" if pause_s else "at once"
            say(f"{self.what} {how}; it is started again {soon}", logging.WARNING)
            await first(self._going.wait(), timeout_s=pause_s)

    async def _life(self, is_up: Callable[[], bool]) -> str:
        """One process from start to end; how it ended."""
        try:
            self._child = self._start()
        except OSError as error:  # no process, descriptor or memory left
            return f"could not be started ({error.strerror})"
        code = await self._child.ended()
        self._child = None
        if not is_up() and not self._going.is_set():
            raise NeverUp(self.what, code)
        return f"has ended {ending(code)}"

    def _start(self) -> Child:
        if not is_json():
            return Child(self._argv, pass_fds=self._fds, environ=self._environ)
        relay = Relay(self.what)
        self._relays.append(relay)
        try:
            return Child(self._argv, pass_fds=self._fds, environ=self._environ, output=relay.fd)
        finally:
            relay.close_fd()

    def send_away(self) -> None:
        """Ask it to go; asked again, it hurries."""
        # By two signals: of two alike, the second is lost on a process that has not yet come to the first.
        by = signal.SIGINT if self._going.is_set() else signal.SIGTERM
        self._going.set()
        if self._child is not None:
            self._child.terminate(by)

    def kill(self) -> None:
        self._going.set()
        if self._child is not None:
            self._child.kill()


class Household:
    """Everybody together. `stage` is how many signals have come; `is_up` is for the story to set."""

    def __init__(self, kept: Sequence[Kept], *, drain_s: float, patience_s: float) -> None:
        self.is_up = False
        self.stage = 0
        self._kept = kept
        self._drain_s = drain_s
        self._patience_s = patience_s
        self._reached = [asyncio.Event() for _ in range(_STAGES_MAX)]

    async def live(self, story: Awaitable[None], fate: Awaitable[None]) -> None:
        """Start everybody, and keep them until a signal. `story` goes on meanwhile. Raises what either raises, or what
        keeps somebody from coming up, once everybody is gone; `fate` is for what leaves no time for farewells."""
        with self._heeding_signals():
            telling, doom = asyncio.ensure_future(story), asyncio.ensure_future(fate)
            keeping = [asyncio.create_task(kept.keep(lambda: self.is_up)) for kept in self._kept]
            try:
                await first(self._reached[0].wait(), done([*keeping, telling]), done([doom]))
            finally:
                await cancelled(telling)
                await self._send_away(keeping, troubled=not self.stage, doomed=doom.done())
                await cancelled(doom)
            for task in (doom, *keeping, telling):
                if not task.cancelled():
                    task.result()

    async def _send_away(self, keeping: "list[asyncio.Task[None]]", *, troubled: bool, doomed: bool) -> None:
        gone = done_all(keeping)
        if not doomed:
            for kept in self._kept:
                kept.send_away()
            if self.stage:
                say(f"stopping: running jobs may finish, for up to {self._drain_s:g} s; Ctrl-C again gives them back")
            await first(gone(), self._reached[1].wait(), timeout_s=_HURRIED_S if troubled else self._patience_s)
        if not doomed and self._is_anyone_left(keeping):
            for kept in self._kept:
                kept.send_away()
            if self.stage:
                say("giving running jobs back; Ctrl-C again ends everything at once")
            await first(gone(), self._reached[2].wait(), timeout_s=_HURRIED_S)
        if self._is_anyone_left(keeping):
            for kept in self._kept:
                kept.kill()
            await gone()

    @staticmethod
    def _is_anyone_left(keeping: "list[asyncio.Task[None]]") -> bool:
        return not all(task.done() for task in keeping)

    @contextlib.contextmanager
    def _heeding_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        heeded = {signal.SIGINT: self._signalled, signal.SIGTERM: self._signalled}
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup: it shall outlive its terminal
            heeded[signal.SIGHUP] = self._left_alone
        for number, heed in heeded.items():
            loop.add_signal_handler(number, heed)
        try:
            yield
        finally:
            for number in heeded:
                loop.remove_signal_handler(number)
                signal.signal(number, _ignored)  # what is left to do is brief, and must not be left half done

    def _signalled(self) -> None:
        if self.stage < _STAGES_MAX:
            self._reached[self.stage].set()
            self.stage += 1

    def _left_alone(self) -> None:
        """The terminal is gone: a reason to stop, but nobody's wish that it be in a hurry."""
        if not self.stage:
            self._signalled()


def _ignored(_number: int, _frame: object) -> None:
    """Not SIG_IGN, which a process that is started would inherit."""


def done_all(tasks: "list[asyncio.Task[None]]") -> Callable[[], Awaitable[object]]:
    return lambda: asyncio.wait(tasks)


def ending(code: int) -> str:
    return f"with exit code {code}" if code >= 0 else f"by {signal.Signals(-code).name}"
