"""Passwords, as argon2id leaves them. A check takes tens of milliseconds and 46 MiB on purpose, so it runs in a thread,
and few at once: a flood of logins must neither stop the loop nor fill the memory.
"""

import asyncio
import unicodedata
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Final, TypeVar

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from windlass.errors import TooManyRequests

T = TypeVar("T")

at_once_max: Final = 2
inside_max: Final = 32
_retry_after_s: Final = 2.0
_HASHER: Final = PasswordHasher(time_cost=2, memory_cost=46 * 1024, parallelism=1)


class Passwords:
    """Hashes and checks. The threads are its own: work goes on in them when its caller has hung up, and others must not
    be let in beside it then."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(at_once_max, thread_name_prefix="password")
        self._inside = 0

    async def prepare(self) -> None:
        """Made at the first login of an unknown user, what he is compared with would make him take twice as long."""
        await self._call(_nobodys)

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def hashed(self, password: str) -> str:
        return await self._call(lambda: _HASHER.hash(_plain(password)))

    async def match(self, stored: str | None, password: str) -> bool:
        """Whether the password is the one stored. For an unknown user (None) the same work is done on a password that
        nobody has: the time an answer takes must not tell who has an account."""
        fits = await self._call(lambda: _fits(stored or _nobodys(), _plain(password)))
        return fits and stored is not None

    async def _call(self, work: Callable[[], T]) -> T:
        if self._inside >= inside_max:
            raise TooManyRequests(_retry_after_s, "too many logins at once")
        self._inside += 1
        future = asyncio.get_running_loop().run_in_executor(self._threads, work)
        future.add_done_callback(self._done)
        return await future

    def _done(self, _: "asyncio.Future[T]") -> None:
        self._inside -= 1


@cache
def _nobodys() -> str:
    return _HASHER.hash("nobody has this one")


def _fits(stored: str, password: str) -> bool:
    try:
        return _HASHER.verify(stored, password)
    except (VerificationError, InvalidHashError):
        return False


def _plain(password: str) -> str:
    """One spelling for what looks the same: ä may come as one character or as two, by the keyboard. Halves of a
    character, which JSON can carry, become something else that can be hashed."""
    return unicodedata.normalize("NFC", password).encode(errors="backslashreplace").decode()
