"""Handlers for jobs in processes of their own: good, bad and deadly ones."""

import asyncio
import contextlib
import ctypes
import logging
import os
import random
import resource
import signal
import subprocess
import sys
import threading
import time
from datetime import date
from decimal import Decimal
from typing import Any
from uuid import UUID

from windlass.app import App
from windlass.errors import Cancel, Fail, Retry, Snooze
from windlass.worker.context import AsyncContext, Context

_hoard: list[bytes] = []
_stay = threading.Event()


app = App()


@app.job
def echo(payload: Any) -> Any:
    return payload


@app.job
async def aecho(payload: Any) -> Any:
    await asyncio.sleep(0)
    return payload


@app.job
def pid() -> int:
    return os.getpid()


@app.job
def parent() -> int:
    return os.getppid()


@app.job
def draw() -> list[float]:
    """Numbers from the generators that everybody shares."""
    numpy = sys.modules.get("numpy")
    return [random.random(), *([] if numpy is None else [numpy.random.random()])]


@app.job
async def loop_id() -> list[int]:
    return [os.getpid(), id(asyncio.get_running_loop())]


@app.job
def add(a: int, b: int) -> int:
    return a + b


@app.job
def unstorable() -> Any:
    return object()


@app.job
def typed(day: date) -> dict[UUID, Decimal]:
    return {UUID(int=day.day): Decimal("1.50")}


@app.job
def ask(ctx: Context, how: str) -> None:
    """Say what shall become of the job."""
    match how:
        case "fail":
            raise ValueError("no such thing \ud800")
        case "retry":
            raise Retry(7.5, "later")
        case "snooze":
            raise Snooze(60)
        case "cancel":
            raise Cancel("not needed")
        case "give up":
            raise Fail("hopeless")
        case "exit":
            sys.exit(5)
        case "nonsense":
            raise Retry("soon")  # type: ignore[arg-type]
        case "endless":
            raise ValueError("x" * 50_000_000)


@app.job
async def aexit() -> None:
    await asyncio.sleep(0)
    sys.exit(5)


@app.job
def die(ctx: Context, how: str) -> None:
    ctx.log.info("about to die", how=how)
    match how:
        case "exit 0":
            os._exit(0)
        case "exit 3":
            os._exit(3)
        case "segfault":
            ctypes.string_at(0)
        case "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        case "memory":
            exhaust_memory()
        case "recursion":
            exhaust_stack()
        case "orphan":
            leave_orphan(ctx)
        case "channel":
            os.closerange(3, 64)
            _stay.wait()
        case "slow exit":
            os.closerange(3, 64)
            time.sleep(0.3)
            os._exit(4)


def leave_orphan(ctx: Context) -> None:
    """Leave a process that is in no group of ours, and holds everything open that we had open."""
    if orphan := os.fork():
        ctx.log.info("left", orphan=orphan)
        os._exit(3)
    os.setsid()
    _stay.wait(60)
    os._exit(0)


def exhaust_memory() -> None:
    """As the kernel does it: no room is left, and no exception helps."""
    resource.setrlimit(resource.RLIMIT_AS, (512 << 20, 512 << 20))
    with contextlib.suppress(MemoryError):
        while True:
            _hoard.append(bytes(16 << 20))
    os.kill(os.getpid(), signal.SIGKILL)


def exhaust_stack() -> None:
    """Recursion inside the C library, by nested parentheses: the interpreter counts its own calls and, since 3.12, those of its C
    code, and raises RecursionError before the stack is used up."""
    ctypes.CDLL(None).regcomp(ctypes.create_string_buffer(256), b"(" * 1_000_000, 1)


@app.job
def spin(ctx: Context) -> None:
    ctx.log.info("spinning")
    while True:
        pass


@app.job
def sleep(ctx: Context) -> None:
    ctx.log.info("sleeping")
    time.sleep(1e6)


@app.job
def family(ctx: Context) -> None:
    """Start a process, and wait for ever."""
    started = subprocess.Popen(["sleep", "1000"])
    ctx.log.info("started", pid=started.pid)
    started.wait()


@app.job
def terminate() -> int:
    """What a handler starts can be ended by the usual signal."""
    started = subprocess.Popen(["sleep", "1000"])
    started.terminate()
    return started.wait(10)


@app.job
def fork() -> str:
    """Return in both processes."""
    return "parent" if os.fork() else "child"


@app.job
async def fork_and_wait() -> str:
    """Return in both processes, after waiting in both."""
    pid = os.fork()
    await asyncio.sleep(0)
    return "parent" if pid else "child"


@app.job
async def end_the_loop(how: str) -> str:
    if how == "stop":
        asyncio.get_running_loop().stop()
    elif how == "exit":
        asyncio.get_running_loop().call_soon(sys.exit, 5)
    await asyncio.sleep(0.01)
    return how


@app.job
def hoard(mib: int) -> int:
    _hoard.append(b"x" * (mib << 20))
    return os.getpid()


@app.job
def logs(ctx: Context, lines: int) -> None:
    print("to standard output")
    logging.getLogger("library").info("from a library")
    for n in range(lines):
        ctx.log.info("line", n=n)
    threading.Thread(target=lambda: ctx.log.info("from a thread")).start()


@app.job
def stray(ctx: Context) -> int:
    """Leave a thread behind that goes on logging."""

    def go_on() -> None:
        while True:
            ctx.log.info("still here")

    threading.Thread(target=go_on, daemon=True).start()
    return os.getpid()


@app.job
def advance(ctx: Context) -> None:
    for n in range(1001):
        ctx.progress(n / 1000, f"{n} of 1000")


@app.job
async def steps(ctx: AsyncContext) -> list[int]:
    async def work(n: int) -> int:
        return n

    return [await ctx.once("a", work, 1), await ctx.once("a", work, 2)]


@app.job
def plain_steps(ctx: Context) -> list[int]:
    def work(n: int) -> int:
        return n

    return [ctx.once("a", work, 1), ctx.once("a", work, 2)]


@app.job
async def pay(ctx: AsyncContext) -> None:
    async with ctx.transaction() as tx:
        await tx.execute("create table paid (id text)")
        ctx.finish({"paid": True})


@app.job
def follow() -> str:
    return str(echo.enqueue({"from": "a child"}).id)


@app.job
async def afollow() -> str:
    return str((await echo.aenqueue({"from": "a child"})).id)


@app.job
async def pays(ctx: AsyncContext, times_out: bool) -> bool:
    async with ctx.effect("pay") as effect:
        if times_out:
            raise TimeoutError("no answer")
    return effect.needed


@app.job
def plainly_pays(ctx: Context, times_out: bool) -> bool:
    with ctx.effect("pay") as effect:
        if times_out:
            raise TimeoutError("no answer")
    return effect.needed


@app.job
async def gathers_payments(ctx: AsyncContext, times_out: bool) -> bool:
    """Goes on, whatever becomes of them."""
    ends: list[Any] = await asyncio.gather(pays(ctx, times_out=times_out), return_exceptions=True)
    return ends == [True]


@app.job(at_most_once=True)
def begins_once() -> str:
    return "begun"


@app.job(at_most_once=True)
async def asynchronously_begins_once() -> str:
    return "begun"


@app.job(isolation="process", memory_limit_mb=64)
def limited(mib: int) -> int:
    """Allocates at once, and keeps nothing."""
    return len(bytes(mib << 20))


@app.job(isolation="process", memory_limit_mb=64)
async def alimited(mib: int) -> int:
    await asyncio.sleep(0)
    return len(bytes(mib << 20))
