"""Handlers that fork, leave processes behind, or close what is not theirs."""

import asyncio
import contextlib
import multiprocessing
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

from tests.faults.mischief.groups import KEPT, LONG_S, deadly, harmful, survived

# Forks. -----------------------------------------------------------------------------------------------------------------


@survived
async def fork_and_return() -> None:
    os.fork()


@survived
async def fork_and_wait() -> None:
    loop = asyncio.get_running_loop()
    later = loop.create_future()
    loop.call_later(0.02, later.set_result, None)
    os.fork()
    await later


async def _forks() -> None:
    os.fork()
    await asyncio.sleep(0)


@survived
async def fork_in_gather() -> None:
    await asyncio.gather(_forks(), _forks())


@survived
async def fork_in_callback() -> None:
    asyncio.get_running_loop().call_soon(os.fork)
    await asyncio.sleep(0.02)


@survived
async def fork_beside_the_loop() -> None:
    await asyncio.to_thread(os.fork)


@survived
async def fork_and_exit() -> None:
    if os.fork() == 0:
        sys.exit(0)


@survived
def fork_in_thread() -> None:
    os.fork()


@survived
def fork_in_thread_and_raise() -> None:
    if os.fork() == 0:
        raise KeyboardInterrupt


@survived
def leave_a_program_behind() -> None:
    KEPT.append(subprocess.Popen(["sleep", str(LONG_S)], stdout=subprocess.DEVNULL))


@survived
def leave_a_forked_process_behind() -> None:
    process = multiprocessing.get_context("fork").Process(target=time.sleep, args=(LONG_S,), daemon=True)
    process.start()
    KEPT.append(process)


@survived
def leave_a_process_that_ignores_signals() -> None:
    program = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(1_000_000)"
    KEPT.append(subprocess.Popen([sys.executable, "-S", "-c", program]))


# Descriptors. -----------------------------------------------------------------------------------------------------------


def _sockets() -> dict[int, socket.socket]:
    """Copies of the sockets of this process, by descriptor."""
    found = {}
    for fd in [int(one.name) for one in Path("/proc/self/fd").iterdir()]:
        with contextlib.suppress(OSError):
            found[fd] = socket.socket(fileno=os.dup(fd))
    return found


def _is_of_database(one: socket.socket) -> bool:
    with contextlib.suppress(OSError):
        return ".s.PGSQL" in str(one.getpeername())
    return False


@deadly
async def close_every_descriptor() -> None:
    os.closerange(3, 1024)
    await asyncio.sleep(LONG_S)


@deadly
def close_every_descriptor_in_thread() -> None:
    os.closerange(0, 1024)
    time.sleep(LONG_S)


@harmful
async def close_database_sockets() -> None:
    for fd, one in _sockets().items():
        if _is_of_database(one):
            os.close(fd)
        one.close()


@harmful
def shut_database_sockets_down_in_thread() -> None:
    for one in _sockets().values():
        if _is_of_database(one):
            one.shutdown(socket.SHUT_RDWR)
        one.close()


@survived
def leave_a_thousand_descriptors_open() -> None:
    with contextlib.suppress(OSError):
        KEPT.extend(os.open(os.devnull, os.O_RDONLY) for _ in range(1000))
