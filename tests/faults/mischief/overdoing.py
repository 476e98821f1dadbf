"""Handlers that want too much, or do not let go; and those that must come last."""

import asyncio
import contextlib
import ctypes
import logging
import os
import sys
import threading
import time
from typing import Any

from tests.faults.mischief.groups import KEPT, LONG_S, harmful, stubborn, survived
from windlass.worker.context import Context

# Too much of everything. ------------------------------------------------------------------------------------------------


@survived
def print_thirty_megabytes() -> None:
    sys.stdout.write("x" * 30_000_000)


@stubborn
def print_without_end() -> None:
    while True:
        print("again and again")


@survived
def ask_for_more_memory_than_there_is() -> None:
    bytearray(1 << 50)


@survived
def leak_a_hundred_megabytes() -> None:
    KEPT.append(bytearray(100_000_000))


@survived
def return_too_much() -> str:
    return "x" * 5_000_000


@survived
def return_what_json_cannot_say() -> Any:
    return {object(): threading.Lock()}


@survived
def return_a_coroutine() -> Any:
    return asyncio.sleep(0)


@survived
def raise_what_cannot_be_described() -> None:
    class Mute(BaseException):
        def __str__(self) -> str:  # noqa: PLE0307
            sys.exit(3)

    raise Mute


@survived
async def raise_a_chain_without_end() -> None:
    first, second = ValueError("first"), ValueError("second")
    first.__cause__, second.__cause__ = second, first
    raise first


# They silence the worker: last, so that its log tells of the others. ----------------------------------------------------


@survived
def close_standard_streams() -> None:
    sys.stdout.close()
    sys.stderr.close()


@survived
def replace_standard_descriptors() -> None:
    for fd in (1, 2):
        os.dup2(os.open(os.devnull, os.O_WRONLY), fd)


@survived
def silence_logging() -> None:
    logging.disable(logging.CRITICAL)
    logging.shutdown()
    logging.getLogger().handlers.clear()


# They do not let go. ----------------------------------------------------------------------------------------------------


@stubborn
def wait_for_a_lock_twice() -> None:
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


@stubborn
def hold_the_interpreter() -> None:
    ctypes.PyDLL(None).sleep(LONG_S)


@stubborn
def swallow_everything() -> None:
    while True:
        with contextlib.suppress(BaseException):
            time.sleep(0.01)


@stubborn
def sleep_for_ever(ctx: Context) -> None:
    ctx.log.info("good night")
    time.sleep(LONG_S)


# They harm their worker after they have ended: last, so that others beside them are not harmed twice. --------------------


@harmful
def exit_after_the_end() -> None:
    threading.Timer(0.1, os._exit, (9,)).start()


@harmful
async def close_the_control_channel() -> None:
    with contextlib.suppress(OSError, ValueError, IndexError):
        os.close(int(sys.argv[1]))
