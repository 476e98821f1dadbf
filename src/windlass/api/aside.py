"""Work that is long for one request and must not hold up all others: it has a thread of its own.

What is shown is searched for secrets, in some tenths of a second for a megabyte. On the loop nobody else would be
answered meanwhile; and one thread is enough, because several would only share the same processor.
"""

import asyncio
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from windlass.model import Attempt, Error, Job

T = TypeVar("T")

_at_once_chars: Final = 32_768  # some milliseconds: less than it takes to hand them over and wait
_thread: Final = ThreadPoolExecutor(1, thread_name_prefix="shown")


async def shown_aside(work: Callable[[], T], chars: int) -> T:
    """What `work` gives; beside the loop, if it has so many characters to look at that others would notice."""
    if chars <= _at_once_chars:
        return work()
    return await asyncio.get_running_loop().run_in_executor(_thread, work)


def chars_of(jobs: Iterable[Job]) -> int:
    return sum(len(job.payload or "") + len(job.result or "") + error_chars(job.error) for job in jobs)


def attempt_chars(attempts: Iterable[Attempt]) -> int:
    return sum(len(each.log or "") + error_chars(each.error) for each in attempts)


def error_chars(error: Error | None) -> int:
    return 0 if error is None else len(error.message) + len(error.traceback)
