"""Bodies as they arrive, and the memory they may hold together.

A body that arrives in pieces is held until its request ends. All of them share one budget, and the budget is shared
between callers: whoever holds the most gives way. Without that, two unfinished uploads of one caller blocked everybody.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

from starlette.types import Receive

from windlass.api.aside import AT_ONCE_BYTES
from windlass.errors import TooLarge, Unavailable

_FREE_BYTES: Final = 65_536  # of each body, uncounted: the limit of connections bounds them, and most need no more

_TURNS: Final = 4


class Gone(Exception):
    """The caller hung up before the request was whole: nobody is there to be answered."""


class HeldBody:
    """What one request holds of the budget. Made in the task that reads the body."""

    __slots__ = ("_task", "budget", "bytes", "caller", "complete", "gave_way", "size")

    def __init__(self, budget: "BodyBudget", caller: str) -> None:
        self.budget: Final = budget
        self.caller: Final = caller
        self.size = 0
        self.bytes = 0  # of the size, those that count
        self.complete = False
        self.gave_way = False
        self._task = asyncio.current_task()

    def take(self, size: int) -> None:
        """Count what has arrived. Raises Unavailable where it is this caller who must wait."""
        self.size += size
        if (more := self.size - _FREE_BYTES - self.bytes) > 0:
            self.budget.take(self, more)

    def give_way(self) -> None:
        """Stop reading. The request's task is cancelled; the cancellation ends as an answer (see `ended`)."""
        self.gave_way = True
        if self._task is not None:
            self._task.cancel()

    def ended(self) -> Unavailable:
        """The answer to who gave way, once the cancellation has arrived."""
        if self._task is not None:
            self._task.uncancel()
        return Unavailable("other callers need the memory that large requests share; try again")


class BodyBudget:
    """Counts bodies by caller. When it is full, a caller that holds less than another takes its place: of the caller
    that holds the most, the largest unfinished body is given up."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max: Final = bytes_max
        self._held = 0
        self._callers: dict[str, dict[HeldBody, None]] = {}

    def take(self, body: HeldBody, size: int) -> None:
        while self._held + size > self._bytes_max:
            self._make_room(body, size)
        self._held += size
        body.bytes += size
        self._callers.setdefault(body.caller, {})[body] = None

    def give_back(self, body: HeldBody) -> None:
        """May be called twice: by whoever took its place, and when its request ends."""
        self._held -= body.bytes
        body.bytes = 0
        bodies = self._callers.get(body.caller)
        if bodies is not None:
            bodies.pop(body, None)
            if not bodies:
                del self._callers[body.caller]

    def _make_room(self, body: HeldBody, size: int) -> None:
        held = {caller: sum(each.bytes for each in bodies) for caller, bodies in self._callers.items()}
        most = max(held, key=held.__getitem__, default=body.caller)
        unfinished = [each for each in self._callers.get(most, ()) if not each.complete]
        if most == body.caller or held[most] <= held.get(body.caller, 0) + size or not unfinished:
            raise Unavailable("too many large requests at once; try again")
        largest = max(unfinished, key=lambda each: each.bytes)
        self.give_back(largest)
        largest.give_way()


class Turns:
    """Whose large document is decoded: its values take up to 25 times its size, until they are written as text again.
    One document of a caller at a time, and few in all, so that neither memory nor other callers depend on how many
    come."""

    def __init__(self) -> None:
        self._all = asyncio.Semaphore(_TURNS)
        self._callers: dict[str, tuple[asyncio.Lock, int]] = {}

    @asynccontextmanager
    async def turn(self, caller: str, size: int) -> AsyncIterator[None]:
        if size <= AT_ONCE_BYTES:
            yield
            return
        lock, waiting = self._callers.get(caller) or (asyncio.Lock(), 0)
        self._callers[caller] = lock, waiting + 1
        try:
            async with lock, self._all:
                yield
        finally:
            lock, waiting = self._callers.pop(caller)
            if waiting > 1:
                self._callers[caller] = lock, waiting - 1


async def read_body(
    receive: Receive, headers: Mapping[bytes, bytes], *, most: int, hold: Callable[[], HeldBody] | None = None
) -> bytes:
    """The whole body. One that arrives in one piece counts against no budget: the server has it in memory already."""
    _check_length(headers, most)
    message = await receive()
    if message.get("more_body", False):
        body = bytearray()  # no list of pieces: a body sent byte by byte would hold forty times its size
        async for piece in _counted(receive, message, most, hold() if hold else None):
            body += piece
        return bytes(body)
    piece = _piece(message)
    if len(piece) > most:
        raise TooLarge(most)
    return piece


async def pieces_of(
    receive: Receive, headers: Mapping[bytes, bytes], *, most: int, held: HeldBody
) -> AsyncIterator[bytes]:
    """The body as it arrives."""
    _check_length(headers, most)
    async for piece in _counted(receive, await receive(), most, held):
        yield piece


def _check_length(headers: Mapping[bytes, bytes], most: int) -> None:
    said = headers.get(b"content-length")
    if said is not None and (not said.isdigit() or int(said) > most):
        raise TooLarge(most)


async def _counted(receive: Receive, message: Any, most: int, held: HeldBody | None) -> AsyncIterator[bytes]:
    """Counted as it arrives: Content-Length may be wrong, or missing. How long it may take is the server's to watch."""
    size, more = 0, True
    while more:
        piece = _piece(message)
        more = message.get("more_body", False)
        size += len(piece)
        if size > most:
            raise TooLarge(most)
        if held is not None:
            held.take(len(piece))
            held.complete = not more
        yield piece
        if more:
            message = await receive()


def _piece(message: Any) -> bytes:
    if message["type"] == "http.disconnect":
        raise Gone
    body: bytes = message.get("body", b"")
    return body
