"""Work that is long for one request and must not hold up all others: it has a thread of its own.

What is shown is searched for secrets, and what is submitted is decoded, checked and encoded, in some tenths of a second
for a megabyte. On the loop nobody else would be answered meanwhile. One thread is enough for each of the two, because
several would only share the same processor; they are two, so that a submitter of megabytes holds up no reader.
"""

import asyncio
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from windlass.model import Attempt, Error, Job

T = TypeVar("T")

_at_once_chars: Final = 32_768  # some milliseconds: less than it takes to hand them over and wait
AT_ONCE_BYTES: Final = 65_536  # likewise, of a submission
_thread: Final = ThreadPoolExecutor(1, thread_name_prefix="shown")
_submitted: Final = ThreadPoolExecutor(1, thread_name_prefix="submitted")


async def shown_aside(work: Callable[[], T], chars: int) -> T:
    """What `work` gives; beside the loop, if it has so many characters to look at that others would notice."""
    if chars <= _at_once_chars:
        return work()
    return await asyncio.get_running_loop().run_in_executor(_thread, work)


async def aside(work: Callable[[], T], size: int) -> T:
    """What `work` on a submission of this size gives; beside the loop, if others would notice."""
    if size <= AT_ONCE_BYTES:
        return work()
    return await asyncio.get_running_loop().run_in_executor(_submitted, work)


def chars_of(jobs: Iterable[Job]) -> int:
    return sum(len(job.payload or "") + len(job.result or "") + error_chars(job.error) for job in jobs)


def attempt_chars(attempts: Iterable[Attempt]) -> int:
    return sum(len(each.log or "") + error_chars(each.error) for each in attempts)


def error_chars(error: Error | None) -> int:
    return 0 if error is None else len(error.message) + len(error.traceback)
