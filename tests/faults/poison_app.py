"""Handlers that kill their process, or do not let go of it, added to those of the ledger.

Every one notes its start; one that is let out by the exception thrown into it also notes its end. A start while an
earlier attempt of the same job is still under way, in this process or another, is noted as an overlap.
"""

import ctypes
import os
import resource
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.faults.embedded_support import exists
from tests.faults.ledger import app, entries, note
from windlass.clock import steady_s
from windlass.worker.context import AsyncContext, Context

__all__ = ["DEADLY", "STUBBORN", "app"]

DEADLY = ("exit_at_once", "segfault", "die_as_if_out_of_memory", "run_out_of_memory", "overflow_the_stack")
STUBBORN = ("spin_on", "sleep_on", "wait_in_c", "wait_for_a_lock", "hold_interpreter_on", "block_the_loop_on")
_FOR_EVER_S = 1_000_000


@contextmanager
def _noted(ctx: Context | AsyncContext) -> Iterator[None]:
    before = [entry for entry in entries(Path(os.environ["LEDGER"])) if entry.job_id == ctx.id]
    ended = {entry.attempt for entry in before if entry.what == "end"}
    if any(entry.attempt not in ended and exists(entry.pid) for entry in before if entry.what == "start"):
        note(ctx, "overlap")
    note(ctx, "start")
    try:
        yield
    finally:
        note(ctx, "end")


# They kill their process. -----------------------------------------------------------------------------------------------


@app.job
def exit_at_once(ctx: Context) -> None:
    note(ctx, "start")
    os._exit(7)


@app.job
async def segfault(ctx: AsyncContext) -> None:
    note(ctx, "start")
    ctypes.string_at(0)


@app.job
def die_as_if_out_of_memory(ctx: Context) -> None:
    """What the kernel does to the largest."""
    note(ctx, "start")
    os.kill(os.getpid(), signal.SIGKILL)


@app.job
def run_out_of_memory(ctx: Context) -> None:
    """As a library does whose allocation fails: the C++ ones end in abort()."""
    note(ctx, "start")
    resource.setrlimit(resource.RLIMIT_AS, (1 << 20, resource.RLIM_INFINITY))
    allocate = ctypes.CDLL(None).malloc
    allocate.restype = ctypes.c_void_p
    if allocate(ctypes.c_size_t(1 << 30)) is None:
        ctypes.CDLL(None).abort()


@app.job
def overflow_the_stack(ctx: Context) -> None:
    """Recursion inside the C library, by nested parentheses: no limit of the interpreter's, in whichever version, stops it."""
    note(ctx, "start")
    ctypes.CDLL(None).regcomp(ctypes.create_string_buffer(256), b"(" * 1_000_000, 1)


# They do not let go. ----------------------------------------------------------------------------------------------------


@app.job
def spin_on(ctx: Context) -> None:
    with _noted(ctx):
        while True:
            pass


@app.job
def sleep_on(ctx: Context) -> None:
    with _noted(ctx):
        time.sleep(_FOR_EVER_S)


@app.job
def wait_in_c(ctx: Context) -> None:
    """A call that lets go of the interpreter, and never comes back."""
    with _noted(ctx):
        ctypes.CDLL(None).sleep(_FOR_EVER_S)


@app.job
def wait_for_a_lock(ctx: Context) -> None:
    with _noted(ctx):
        lock = threading.Lock()
        lock.acquire()
        lock.acquire()


@app.job
def hold_interpreter_on(ctx: Context) -> None:
    """Like wait_in_c, but no other thread of the process can run meanwhile."""
    with _noted(ctx):
        ctypes.PyDLL(None).sleep(_FOR_EVER_S)


@app.job
async def block_the_loop_on(ctx: AsyncContext) -> None:
    with _noted(ctx):
        time.sleep(_FOR_EVER_S)  # noqa: ASYNC251 - what must not be done


@app.job
def hold_interpreter_for(ctx: Context, seconds: float) -> float:
    """In C, as a regular expression does that backtracks; returns for how long no other thread could run."""
    with _noted(ctx):
        still_s, ran_s, done = 0.0, steady_s(), threading.Event()

        def run_beside() -> None:
            nonlocal still_s, ran_s
            while not done.wait(0.001):
                ran_s, before_s = steady_s(), ran_s
                still_s = max(still_s, ran_s - before_s)

        beside = threading.Thread(target=run_beside)
        beside.start()
        ctypes.PyDLL(None).usleep(int(seconds * 1_000_000))  # PyDLL: without letting go
        time.sleep(0.05)
        done.set()
        beside.join()
        return still_s
