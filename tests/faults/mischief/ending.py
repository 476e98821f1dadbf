"""Handlers that end their process or try to: exits and signals."""

import _thread
import asyncio
import ctypes
import faulthandler
import os
import signal
import socket
import sys
import threading
import time
from typing import NoReturn

from tests.faults.mischief.groups import KEPT, LONG_S, deadly, harmful, stubborn, survived


async def _exits() -> None:
    sys.exit(3)


def _interrupts(*_: object) -> NoReturn:
    raise KeyboardInterrupt


# Exits. -----------------------------------------------------------------------------------------------------------------


@survived
async def exit_in_handler() -> None:
    sys.exit(3)


@survived
def exit_in_thread() -> None:
    sys.exit(3)


@survived
async def interrupt_in_handler() -> None:
    raise KeyboardInterrupt


@survived
def interrupt_in_thread() -> None:
    raise KeyboardInterrupt


@survived
async def generator_exit_in_handler() -> None:
    raise GeneratorExit


@survived
async def exit_in_gather() -> None:
    await asyncio.gather(_exits())


@survived
async def exit_in_task() -> None:
    task = asyncio.create_task(_exits())
    await asyncio.sleep(0.02)
    await task


@survived
async def exit_in_task_left_behind() -> None:
    KEPT.append(asyncio.create_task(_exits()))


@survived
async def exit_in_task_group() -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(_exits())
        group.create_task(asyncio.sleep(1))


@survived
async def exit_in_call_soon() -> None:
    asyncio.get_running_loop().call_soon(sys.exit, 3)
    await asyncio.sleep(0.02)


@survived
async def exit_in_timer_after_the_end() -> None:
    asyncio.get_running_loop().call_later(0.02, sys.exit, 3)


@survived
async def exit_in_callback_from_thread() -> None:
    loop = asyncio.get_running_loop()
    await asyncio.to_thread(loop.call_soon_threadsafe, sys.exit, 3)
    await asyncio.sleep(0.02)


@survived
async def exit_in_done_callback() -> None:
    task = asyncio.create_task(asyncio.sleep(0))
    task.add_done_callback(lambda _: sys.exit(3))
    await task
    await asyncio.sleep(0.02)


@survived
async def interrupt_in_callback() -> None:
    asyncio.get_running_loop().call_soon(_interrupts)
    await asyncio.sleep(0.02)


@survived
async def exit_in_reader_callback() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        loop = asyncio.get_running_loop()
        loop.add_reader(ours, lambda: (loop.remove_reader(ours), sys.exit(3)))
        theirs.send(b"1")
        await asyncio.sleep(0.05)


@survived
async def exit_in_exception_handler() -> None:
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _loop, _context: sys.exit(3))
    loop.call_soon(lambda: 1 / 0)
    await asyncio.sleep(0.02)
    loop.set_exception_handler(None)


@deadly
async def exit_at_once() -> None:
    os._exit(7)


@deadly
def exit_at_once_in_thread() -> None:
    os._exit(0)


@deadly
async def abort() -> None:
    os.abort()


@deadly
def abort_in_thread() -> None:
    os.abort()


@deadly
async def exit_by_faulthandler() -> None:
    faulthandler.dump_traceback_later(0.02, exit=True)
    await asyncio.sleep(LONG_S)


@deadly
def segfault() -> None:
    ctypes.string_at(0)


# Signals. ---------------------------------------------------------------------------------------------------------------


@survived
async def terminate_itself() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


@survived
async def interrupt_itself() -> None:
    os.kill(os.getpid(), signal.SIGINT)


@survived
def hang_up_itself_in_thread() -> None:
    os.kill(os.getpid(), signal.SIGHUP)


@survived
def interrupt_the_main_thread() -> None:
    _thread.interrupt_main()


@survived
async def terminate_its_group() -> None:
    os.killpg(os.getpgid(0), signal.SIGTERM)


@survived
async def ignore_ended_children() -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)


@harmful
async def interrupt_by_its_own_handler() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Timer(0.02, os.kill, (os.getpid(), signal.SIGINT)).start()
    await asyncio.sleep(0.1)


@harmful
def throw_exit_into_the_main_thread() -> None:
    main = threading.main_thread().ident
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(main or 0), ctypes.py_object(SystemExit))
    time.sleep(0.2)


@deadly
async def kill_itself() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@deadly
def kill_its_group() -> None:
    os.killpg(os.getpgid(0), signal.SIGKILL)


@deadly
async def die_by_alarm() -> None:
    signal.setitimer(signal.ITIMER_REAL, 0.02)
    await asyncio.sleep(LONG_S)


@stubborn
async def stop_itself() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)
    await asyncio.sleep(LONG_S)


@stubborn
def stop_its_group() -> None:
    os.killpg(os.getpgid(0), signal.SIGSTOP)
    time.sleep(LONG_S)
