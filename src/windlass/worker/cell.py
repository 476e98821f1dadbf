"""One child process for isolated jobs, and the channel to it: forked from the worker's template, or started anew."""

import asyncio
import contextlib
import logging
import os
import socket
import sys
from typing import Final

import msgspec

from windlass.clock import steady_s
from windlass.worker.forks import ForkedChild, Forks, NotStarted, TemplateDied, Unforkable, ending
from windlass.worker.frames import FromChild, Ready, Refused, Start, ToChild, framed, heard
from windlass.worker.groups import Head
from windlass.worker.processes import Child

_LINGER_S: Final = 1.0
_WORDS_BYTES_MAX: Final = 16_384
_log: Final = logging.getLogger(__name__)


class Cell:
    """One child. `ended` has its exit code: None if nobody knows, because its template died or it never was."""

    def __init__(self, start: Start, start_s: float, forks: Forks) -> None:
        self.jobs = 0
        self.idle_since_s = steady_s()
        self.is_ready = False
        self.words = ""
        self.went_mute = False  # it closed its channel and had to be ended
        self._process: Child | ForkedChild | None = None
        self._late: asyncio.TimerHandle | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._killed = asyncio.Event()
        self._made = asyncio.Event()
        self._started = asyncio.create_task(self._start(start, start_s, forks))
        self._started.add_done_callback(self._heed)
        self.ended = asyncio.create_task(self._until_ended())

    @property
    def pid(self) -> int | None:
        """None until there is a process."""
        return None if self._process is None else self._process.pid

    @property
    def head(self) -> Head | None:
        """The same, told from others of that number."""
        return None if self._process is None else self._process.head

    @property
    def resident_mib(self) -> float:
        return 0.0 if self._process is None else self._process.resident_mib

    async def ready(self) -> None:
        """Wait until it can run a job. Raises NotStarted; at once if it is killed, even while its template starts."""
        killed = asyncio.create_task(self._killed.wait())
        try:
            await asyncio.wait((self._started, killed), return_when=asyncio.FIRST_COMPLETED)
        finally:
            killed.cancel()
        if not self._started.done():
            raise NotStarted("it was told to end")
        self._started.result()

    # Its start. -----------------------------------------------------------------------------------------------------

    async def _start(self, start: Start, start_s: float, forks: Forks) -> None:
        try:
            ours = await self._make(forks)
        except OSError as error:
            raise NotStarted(str(error)) from error
        finally:
            self._made.set()
        self._reader, self._writer = await asyncio.open_unix_connection(sock=ours)
        try:
            async with asyncio.timeout(start_s):
                if isinstance(self._process, Child):
                    await self.say(start)
                answer = await self.hear()
        except TimeoutError:
            self._end()
            raise NotStarted(f"it was not ready within {start_s:g} s", hopeless=True) from None
        if isinstance(answer, Refused):
            raise NotStarted(answer.problem, hopeless=True)
        if not isinstance(answer, Ready):
            self._end()
            code = await self.ended
            raise TemplateDied if code is None else NotStarted(ending(code))
        self.is_ready = True

    async def _make(self, forks: Forks) -> socket.socket:
        """Have the process; returns our end of the channel to it."""
        with contextlib.ExitStack() as undo:
            ours, theirs = socket.socketpair()
            undo.callback(ours.close)
            ours.setblocking(False)
            # Where a crash of the interpreter leaves its traceback: read after its death, and no disk is written.
            self._words_fd = os.memfd_create("last-words")
            undo.callback(os.close, self._words_fd)
            with theirs:
                self._process = await self._forked_or_started(forks, theirs.fileno(), self._words_fd)
            undo.pop_all()
        if self._killed.is_set():
            self._end()
        return ours

    async def _forked_or_started(self, forks: Forks, *fds: int) -> Child | ForkedChild:
        try:
            return await forks.fork(*fds)
        except Unforkable:
            if self._killed.is_set():
                raise NotStarted("it was told to end") from None
            argv = [sys.executable, "-m", "windlass.worker.child", *map(str, (*fds, os.getpid()))]
            return Child(argv, pass_fds=fds)

    def _heed(self, started: "asyncio.Task[None]") -> None:
        """Perhaps nobody waits for it yet: a spare that did not start is made up for when a job needs one."""
        if not started.cancelled() and (error := started.exception()) is not None and not self._killed.is_set():
            _log.warning("child %s for isolated jobs did not start: %s", self.pid or "", error)

    # Its life. ------------------------------------------------------------------------------------------------------

    async def say(self, message: ToChild) -> None:
        if self._writer is not None:
            with contextlib.suppress(OSError):  # it is gone: hear() tells
                self._writer.write(framed(message))
                await self._writer.drain()

    async def hear(self) -> FromChild | None:
        """The next message; None once the child is gone."""
        try:
            message = await heard(self._reader)
        except (ValueError, msgspec.MsgspecError) as error:
            _log.error("child %s talks nonsense, and is ended: %s", self.pid, error)
            self._end()
            message = None
        if message is None:
            # It is just about to exit, and how is worth knowing; or it has closed the channel and lives on.
            await asyncio.wait((self.ended,), timeout=_LINGER_S)
            self.went_mute = not self.ended.done()
            self._end()
            self.close()
        return message

    # Its end. -------------------------------------------------------------------------------------------------------

    def kill(self) -> None:
        self._killed.set()
        self._end()

    def retire(self) -> None:
        """Let it end by itself, with its exit handlers, but soon."""
        self.close()
        asyncio.get_running_loop().call_later(_LINGER_S, self.kill)

    def close(self) -> None:
        if self._late is not None:
            self._late.cancel()
        if self._writer is not None:
            self._writer.transport.abort()

    async def aclose(self) -> None:
        self.kill()
        await self.ended
        with contextlib.suppress(NotStarted):
            await self._started
        self.close()

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()

    async def _until_ended(self) -> int | None:
        await self._made.wait()
        if self._process is None:
            return None
        code = await self._process.ended()
        self.words = os.pread(self._words_fd, _WORDS_BYTES_MAX, 0).decode(errors="replace").strip()
        os.close(self._words_fd)
        # What it said last is still to be read; but a process that it left behind may hold the channel open for ever.
        self._late = asyncio.get_running_loop().call_later(_LINGER_S, self.close)
        return code
