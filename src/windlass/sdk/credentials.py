"""How the client proves who it is: with a token it was given, one it is made each time, or one it gets for a login.

A login is exchanged once for all calls that wait for it, and again shortly before its token ends.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from windlass import wire
from windlass.clock import steady_s

_EARLY_S: Final = 30.0

Mint = Callable[[], str]


class Credentials:
    """The token to send. `refused` after a 401: whether another may be had."""

    def __init__(self, token: str | Mint | None = None, login: wire.Login | None = None) -> None:
        self._given = token
        self._login = login
        self._token: str | None = None
        self._until_s: float | None = None
        self._lock = asyncio.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def token(self, exchange: Callable[[wire.Login], Awaitable[wire.Token]]) -> str | None:
        if isinstance(self._given, str):
            return self._given
        if self._loop is not (loop := asyncio.get_running_loop()):  # a lock is for the tasks of one loop
            self._loop, self._lock = loop, asyncio.Lock()
        async with self._lock:
            if self._token is not None and (self._until_s is None or steady_s() < self._until_s):
                return self._token
            if self._given is not None:
                self._token = self._given()
            elif self._login is not None:
                had = await exchange(self._login)
                self._token = had.access_token
                self._until_s = steady_s() + max(had.expires_in - _EARLY_S, had.expires_in / 2)
            return self._token

    def refused(self, token: str | None) -> bool:
        """Forget it, unless another call has a new one by now. A token that was given stays what it is."""
        if isinstance(self._given, str) or (self._given is None and self._login is None):
            return False
        if self._token == token:
            self._token = None
        return True
