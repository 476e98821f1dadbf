"""Descriptors that belong to this process alone: a forked child closes its copies at once.

A lock or a stop pipe lives as long as any copy of its descriptor. Close-on-exec covers children that exec; a child of
`os.fork()` or of multiprocessing never execs, and would keep the folder locked and the server running after its
parent's death. So such descriptors are opened, noted and closed under one lock that forking takes too: no fork can
fall between the opening and the noting.
"""

import os
import threading
from collections.abc import Callable

_gate = threading.RLock()
_held: set[int] = set()


def open_held(opening: Callable[[], int]) -> int:
    """Run `opening` and note the descriptor that it returns as ours alone."""
    with _gate:
        fd = opening()
        _held.add(fd)
        return fd


def close_held(fd: int) -> None:
    with _gate:
        if fd in _held:
            _held.remove(fd)
            os.close(fd)


def pipe_held() -> tuple[int, int]:
    """A pipe with both ends held."""
    with _gate:
        ends = os.pipe()
        _held.update(ends)
        return ends


def _let_go_in_child() -> None:
    for fd in _held:
        os.close(fd)
    _held.clear()
    _gate.release()


os.register_at_fork(before=_gate.acquire, after_in_parent=_gate.release, after_in_child=_let_go_in_child)
