"""Retry a check until it holds or a deadline passes: the only place in the tests that sleeps."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")


def eventually(check: Callable[[], T], timeout_s: float = 30) -> T:
    """The first true result of `check`, which may also fail by AssertionError until then."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            if result := check():
                return result
            problem = f"still {result!r}"
        except AssertionError as error:
            problem = str(error)
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout_s:g} s: {problem}")
        time.sleep(0.01)


async def aeventually(check: Callable[[], Awaitable[T]], timeout_s: float = 30) -> T:
    """The same for a check that must be awaited."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            if result := await check():
                return result
            problem = f"still {result!r}"
        except AssertionError as error:
            problem = str(error)
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout_s:g} s: {problem}")
        await asyncio.sleep(0.01)
