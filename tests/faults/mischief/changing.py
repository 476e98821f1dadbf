"""Handlers that change what the process is made of."""

import asyncio
import atexit
import builtins
import contextlib
import gc
import json
import locale
import os
import random
import resource
import socket
import sys
import tempfile
import threading
import time
import warnings

from tests.faults.mischief.groups import LONG_S, harmful, survived


@survived
def change_to_a_directory_that_goes() -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
    os.umask(0o777)


@survived
async def clear_the_environment() -> None:
    os.environ.clear()
    os.environ["TZ"] = "Pacific/Kiritimati"
    time.tzset()


@survived
def change_the_locale() -> None:
    with contextlib.suppress(locale.Error):
        locale.setlocale(locale.LC_ALL, "C")


@harmful
async def lower_the_recursion_limit() -> None:
    for limit in range(20, 1000):
        with contextlib.suppress(RecursionError):
            sys.setrecursionlimit(limit)
            return


@survived
def recurse_without_end() -> None:
    recurse_without_end()


@survived
def turn_warnings_into_errors() -> None:
    warnings.simplefilter("error")
    warnings.warn("as asked", stacklevel=1)


@survived
async def play_with_the_garbage_collector() -> None:
    gc.disable()
    gc.freeze()
    gc.callbacks.append(lambda *_: 1 / 0)
    gc.collect()


@survived
async def set_a_failing_profile_function() -> None:
    sys.setprofile(lambda *_: 1 / 0)
    await asyncio.sleep(0.02)


@survived
def seed_the_same_random_numbers() -> None:
    random.seed(0)


@survived
def leave_threads_behind() -> None:
    threading.excepthook = lambda _: 1 / 0
    for _ in range(50):
        threading.Thread(target=time.sleep, args=(LONG_S,)).start()
    threading.Thread(target=lambda: 1 / 0).start()


@survived
def hang_at_exit() -> None:
    atexit.register(time.sleep, LONG_S)


@survived
def set_a_default_timeout_for_sockets() -> None:
    socket.setdefaulttimeout(0.000_001)


@survived
async def break_time() -> None:
    time.monotonic = time.time = time.perf_counter = lambda: 0.0


@survived
def break_printing() -> None:
    builtins.print = builtins.input = None  # type: ignore[assignment]


@harmful
async def break_asyncio() -> None:
    asyncio.sleep = asyncio.wait = asyncio.Event = None  # type: ignore[assignment,misc]


@harmful
async def break_builtins() -> None:
    builtins.len = builtins.isinstance = None  # type: ignore[assignment]


@harmful
async def break_json() -> None:
    json.dumps = json.loads = None  # type: ignore[assignment]


@harmful
def run_out_of_descriptors() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (16, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
