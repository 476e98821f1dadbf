"""Waiting for an answer in a loop that others may hold up."""

import asyncio
from typing import Any, Final

_PARTS: Final = 10


async def done_in_time(task: "asyncio.Task[Any]", within_s: float) -> bool:
    """Whether it is done within that time. Waits in parts: a handler that holds up this loop, for however long, costs one
    of them; the answer that lies there is read in the next."""
    for _ in range(_PARTS):
        done, _ = await asyncio.wait([task], timeout=within_s / _PARTS)
        if done:
            return True
    return False
