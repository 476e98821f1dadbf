"""How many pixels are unpacked at the same time: one budget for all processes of this user on this machine.

Each picture alone is bounded, but as many are unpacked as there are threads: four bombs of 54 KB took 2.9 GB together.
The budget is a folder of files that are locked: a process that is killed lets go of its own at once. A picture takes its
share of them and waits while too few are free. Only one collects at a time, so that two never wait for each other.
Whoever waits holds a thread of its worker, so nobody waits for long: BudgetUsedUp tells the caller to come back.
"""

import asyncio
import fcntl
import logging
import math
import os
import stat
import tempfile
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Final

_SHARES: Final = 16
_small: Final = 64  # what needs less than this part of the budget takes none of it
_PAUSE_S: Final = 0.02
_log: Final = logging.getLogger("windlass.pixel_budget")


class BudgetUsedUp(Exception):
    """Others unpack as much as may be unpacked at once."""


@asynccontextmanager
async def reserved(pixels: int, of: int, *, within_s: float | None = None) -> AsyncIterator[None]:
    """Wait until this many pixels of the budget are free, and hold them for the length of the block. Raises BudgetUsedUp
    if they are not free `within_s` seconds."""
    folder = _folder() if pixels * _small > of else None
    if folder is None:
        yield
        return
    with ExitStack() as held:
        try:
            async with asyncio.timeout(within_s):
                await _collect(folder, min(_SHARES, math.ceil(pixels / of * _SHARES)), held)
        except TimeoutError:
            raise BudgetUsedUp from None
        yield


async def _collect(folder: Path, shares: int, held: ExitStack) -> None:
    with ExitStack() as turn:
        while not _lock(folder / "turn", turn):  # noqa: ASYNC110 - it is another process that ends the wait
            await asyncio.sleep(_PAUSE_S)
        free = set(range(_SHARES))
        while True:
            for n in sorted(free):
                if shares and _lock(folder / f"share-{n}", held):
                    free.remove(n)
                    shares -= 1
            if not shares:
                return
            await asyncio.sleep(_PAUSE_S)


def _lock(path: Path, stack: ExitStack) -> bool:
    """Whether the file is now ours, until the stack is closed."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        return False
    stack.callback(os.close, fd)
    return True


@cache
def _folder() -> Path | None:
    """Of this user alone: anyone else could lock its files for ever. Without one, each picture is still bounded by itself."""
    folder = Path(tempfile.gettempdir()) / f"windlass-pixels-{os.geteuid()}"
    try:
        with suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        about = folder.lstat()
        if stat.S_ISDIR(about.st_mode) and about.st_uid == os.geteuid() and not about.st_mode & 0o077:
            return folder
        problem = "it is another user's, or open to others"
    except OSError as error:
        problem = str(error)
    _log.warning("pictures share no budget of pixels, because %s cannot be used: %s", folder, problem)
    return None
