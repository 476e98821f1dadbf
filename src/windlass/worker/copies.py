"""Copies of a worker that its handlers fork: none may go on with the worker's work.

`os.fork()` copies the event loop, its sockets and what is known of every job. The copy may do what its handler does in it,
`exec` or `os._exit` say. Once that returns or waits it would read the answers of the database and of the supervisor that
are for its parent, and run the jobs of others a second time: there it ends.
"""

import concurrent.futures.thread
import os
import sys
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any, Final

_FORKED_FOR_GOOD: Final = "multiprocessing.popen_fork"  # never returns, and profiling would slow it down

_grounds: set[CodeType] = set()


def end_copies_at(*grounds: Callable[..., Any]) -> None:
    """From now on end each copy of this process when what forked it comes back to one of these functions, or waits there."""
    if not _grounds:
        os.register_at_fork(after_in_child=_watch_this_copy)
    _grounds.update(each.__code__ for each in grounds)
    _grounds.add(concurrent.futures.thread._worker.__code__)  # noqa: SLF001 - else the copy waits for work for ever


def _watch_this_copy() -> None:
    step = _step_under_way(sys._getframe())  # noqa: SLF001
    if step is None:
        return

    def watch(frame: FrameType, event: str, _: object) -> None:
        if event == "return" and frame is step:  # also when it raises, or waits
            os._exit(0)

    sys.setprofile(watch)


def _step_under_way(frame: FrameType | None) -> FrameType | None:
    """What the nearest ground function has called, leaving asyncio's own frames out; None: nothing of ours is below."""
    step = frame
    while frame is not None:
        if frame.f_code in _grounds:
            return step
        module = frame.f_globals.get("__name__", "")
        if module == _FORKED_FOR_GOOD:
            return None
        if not module.startswith("asyncio."):
            step = frame
        frame = frame.f_back
    return None
