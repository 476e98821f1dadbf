"""An app whose handlers write down what really ran: one line at each start and end, appended to the file LEDGER names.

A line: what ("start" or "end"), job id, attempt, token, pid, seconds on the clock that all processes of a machine share.
"""

import asyncio
import os
import re
import time
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

from windlass import App
from windlass.clock import steady_s
from windlass.errors import Cancel
from windlass.worker.context import AsyncContext, Context

app = App()
_FILE = os.open(os.environ["LEDGER"], os.O_WRONLY | os.O_APPEND | os.O_CREAT) if "LEDGER" in os.environ else -1


class Entry(NamedTuple):
    what: str
    job_id: UUID
    attempt: int
    token: UUID
    pid: int
    at_s: float


def note(ctx: Context | AsyncContext, what: str) -> None:
    os.write(_FILE, f"{what} {ctx.id} {ctx.attempt} {ctx.token} {os.getpid()} {steady_s():.6f}\n".encode())


def entries(file: Path) -> list[Entry]:
    """What has been written so far."""
    lines = file.read_text().splitlines() if file.exists() else []
    words = [line.split() for line in lines]
    return [Entry(w[0], UUID(w[1]), int(w[2]), UUID(w[3]), int(w[4]), float(w[5])) for w in words]


def starts(file: Path) -> list[Entry]:
    return [entry for entry in entries(file) if entry.what == "start"]


@app.job
async def work(ctx: AsyncContext, seconds: float = 0.0) -> str:
    note(ctx, "start")
    await asyncio.sleep(seconds)
    note(ctx, "end")
    return str(ctx.token)


@app.job
def toil(ctx: Context, seconds: float = 0.0) -> str:
    note(ctx, "start")
    time.sleep(seconds)
    note(ctx, "end")
    return str(ctx.token)


@app.job(at_most_once=True)
async def launch(ctx: AsyncContext, seconds: float = 0.0) -> None:
    note(ctx, "start")
    await asyncio.sleep(seconds)
    note(ctx, "end")


@app.job(at_most_once=True)
def launch_blocking(ctx: Context, seconds: float = 0.0) -> None:
    note(ctx, "start")
    time.sleep(seconds)
    note(ctx, "end")


@app.job
def fail(ctx: Context) -> None:
    note(ctx, "start")
    raise ValueError("as asked")


@app.job
def hold_interpreter(ctx: Context, size: int) -> bool:
    """A regular expression that backtracks: in C, and the interpreter is never let go."""
    note(ctx, "start")
    return re.match(r"(a+)+$", "a" * size + "b") is None


@app.job
def spin(ctx: Context) -> None:
    note(ctx, "start")
    while True:
        pass


@app.job
def doze(ctx: Context) -> None:
    note(ctx, "start")
    time.sleep(1e6)


@app.job
async def block_the_loop(ctx: AsyncContext) -> None:
    note(ctx, "start")
    time.sleep(1e6)  # noqa: ASYNC251 - what must not be done


@app.job
def kill_own_process(ctx: Context) -> None:
    note(ctx, "start")
    os._exit(9)


@app.job
def give_up(ctx: Context) -> None:
    note(ctx, "start")
    raise Cancel("not needed any more")
