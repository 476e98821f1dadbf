"""Types to try a cluster with: they compute, write files, talk over sockets or wait, for as long as they are told, and
fail on request. What they do is real, so that what is measured is, too; it stays on this machine.

`fail` is true, or the chance that an attempt fails (0.2); a task whose text contains "fail" fails as well.
"""

import asyncio
import hashlib
import os
import random
import socket
import tempfile
from typing import Annotated, Any, Final

from msgspec import Meta

from windlass import AsyncContext, Context, Stopped
from windlass.clock import steady_s
from windlass.jobs.home import app

Duration = Annotated[float, Meta(ge=0, le=3600, description="seconds")]
Chance = Annotated[float, Meta(ge=0, le=1)]
Task = Annotated[str, Meta(max_length=10_000)]

_rounds: Final = 2_000  # of hashing: about a millisecond
_file_bytes: Final = 262_144
_message: Final = b"windlass" * 128
_pause_s: Final = 0.01


class AskedToFail(RuntimeError):
    """This attempt fails because its payload says so."""


@app.job(timeout=3660)
def cpu_intensive(
    ctx: Context, task: Task = "", duration_s: Duration = 0.5, fail: bool | Chance = False
) -> dict[str, Any]:
    """Compute for `duration_s` seconds: hash after hash."""
    until_s = steady_s() + duration_s
    digest, hashes = task.encode(), 0
    while steady_s() < until_s:
        _heed(ctx)
        digest = _hashed(digest)
        hashes += _rounds
    _fail_if_asked(task, fail)
    return {"task": task, "hashes": hashes, "digest": digest.hex()[:64]}


@app.job(timeout=3660)
def io_intensive(
    ctx: Context, task: Task = "", duration_s: Duration = 0.5, fail: bool | Chance = False
) -> dict[str, Any]:
    """Write a file, wait for the disk, and read it again, for `duration_s` seconds."""
    until_s = steady_s() + duration_s
    written = 0
    with tempfile.TemporaryFile() as file:
        while steady_s() < until_s:
            _heed(ctx)
            written += _written_and_read(file)
    _fail_if_asked(task, fail)
    return {"task": task, "bytes": written}


@app.job(timeout=3660)
def mixed_workload(
    ctx: Context, task: Task = "", duration_s: Duration = 0.5, fail: bool | Chance = False
) -> dict[str, Any]:
    """Compute and write files by turns, for `duration_s` seconds."""
    until_s = steady_s() + duration_s
    digest, hashes, written = task.encode(), 0, 0
    with tempfile.TemporaryFile() as file:
        while steady_s() < until_s:
            _heed(ctx)
            digest = _hashed(digest)
            hashes += _rounds
            written += _written_and_read(file)
    _fail_if_asked(task, fail)
    return {"task": task, "hashes": hashes, "bytes": written}


@app.job(timeout=3660)
async def network_task(
    ctx: AsyncContext, task: Task = "", duration_s: Duration = 0.5, fail: bool | Chance = False
) -> dict[str, Any]:
    """Send messages over a socket and await their echo, for `duration_s` seconds. No other machine is asked."""
    return await _exchange_messages(ctx, task, duration_s, fail)


@app.job(timeout=3660)
async def network_intensive(
    ctx: AsyncContext, task: Task = "", duration_s: Duration = 0.5, fail: bool | Chance = False
) -> dict[str, Any]:
    """Another name of `network_task`."""
    return await _exchange_messages(ctx, task, duration_s, fail)


async def _exchange_messages(ctx: AsyncContext, task: str, duration_s: float, fail: bool | float) -> dict[str, Any]:
    ours, theirs = socket.socketpair()
    until_s = steady_s() + duration_s
    messages = 0
    echo = asyncio.create_task(_echo(theirs))
    reader, writer = await asyncio.open_connection(sock=ours)
    try:
        while steady_s() < until_s and not ctx.cancelled:
            writer.write(_message)
            await reader.readexactly(len(_message))
            messages += 1
            await asyncio.sleep(min(_pause_s, max(0.0, until_s - steady_s())))
    finally:
        writer.close()
        await writer.wait_closed()
        await echo
    if ctx.cancelled:
        raise Stopped
    _fail_if_asked(task, fail)
    return {"task": task, "messages": messages}


@app.job(timeout=3660)
async def default(task: Task = "", duration_s: Duration = 0.1, fail: bool | Chance = False) -> dict[str, Any]:
    """Wait for `duration_s` seconds and give the task back."""
    await asyncio.sleep(duration_s)
    _fail_if_asked(task, fail)
    return {"task": task}


def _heed(ctx: Context) -> None:
    if ctx.cancelled:
        raise Stopped


def _fail_if_asked(task: str, fail: bool | float) -> None:
    if fail is True or (fail is not False and random.random() < fail):
        raise AskedToFail("the payload asks this attempt to fail")
    if "fail" in task.lower():
        raise AskedToFail('the task contains "fail"')


def _hashed(digest: bytes) -> bytes:
    return hashlib.pbkdf2_hmac("sha256", digest, b"windlass", _rounds)


def _written_and_read(file: Any) -> int:
    file.seek(0)
    file.write(os.urandom(_file_bytes))
    file.flush()
    os.fsync(file.fileno())
    file.seek(0)
    return len(file.read())


async def _echo(far: socket.socket) -> None:
    reader, writer = await asyncio.open_connection(sock=far)
    try:
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    except ConnectionError:
        pass  # the job was stopped in the middle of a message
    finally:
        writer.close()
        await writer.wait_closed()
