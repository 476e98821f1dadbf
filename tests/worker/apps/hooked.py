"""An app whose hooks note what they hear of, and in which process, in the file that NOTES names."""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from windlass import App, AsyncContext, Context, JobEvent
from windlass.model import RetryPolicy

app = App("hooked")
_loops: list[asyncio.AbstractEventLoop] = []


def note(*words: object) -> None:
    with Path(os.environ["NOTES"]).open("a") as file:
        file.write(f"{' '.join(map(str, (*words, os.getpid())))}\n")


@app.on_worker_start
async def open_up() -> None:
    if os.environ.get("NOTES_FAIL"):
        raise OSError("no such host")
    _loops.append(asyncio.get_running_loop())
    note("worker-start")


@app.on_worker_stop
def close_down() -> None:
    note("worker-stop")


@app.on_start
def started(event: JobEvent) -> None:
    note("start", event.type)


@app.on_success
def succeeded(event: JobEvent) -> None:
    note("success", event.type, event.result)


@app.on_failure
async def failed(event: JobEvent) -> None:
    error = event.error
    assert error is not None
    note("failure", event.type, error.type, event.exception)


@app.on_dead
def died(event: JobEvent) -> None:
    error = event.error
    assert error is not None
    note("dead", event.type, error.type)


@app.middleware
async def around(ctx: AsyncContext, call: Callable[[], Awaitable[Any]]) -> Any:
    note("around", ctx.type)
    return await call()


@app.middleware
def plain_around(ctx: Context, call: Callable[[], Any]) -> Any:
    note("around", ctx.type)
    return call()


@app.job(isolation="process")
async def alone() -> bool:
    return asyncio.get_running_loop() in _loops


@app.job
async def together() -> bool:
    return asyncio.get_running_loop() in _loops


@app.job(isolation="process", max_attempts=1)
def fails_alone() -> None:
    raise ValueError("no")


@app.job(isolation="process", retry=RetryPolicy(base_s=0.01, cap_s=0.01))
def crashes() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
