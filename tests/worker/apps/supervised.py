"""Handlers that do to their process what a supervisor must survive."""

import asyncio
import ctypes
import os
import re
import signal
import subprocess
import time
from pathlib import Path

from windlass import App

app = App()
_kept: list[bytes] = []


@app.job
async def echo() -> str:
    return "done"


@app.job
async def wait(file: str, begun: str = "") -> None:
    """Until the file is there. Heeds requests to stop."""
    if begun:
        _note(begun)
    there = Path(file).exists
    while not there():  # noqa: ASYNC110 - the test that makes the file is another process
        await asyncio.sleep(0.01)


@app.job
async def nap(seconds: float) -> None:
    await asyncio.sleep(seconds)


@app.job
def hold_interpreter(begun: str) -> None:
    """In C, without ever letting go."""
    _note(begun)
    re.match(r"(a+)+$", "a" * 60 + "b")


@app.job
async def block_loop(begun: str) -> None:
    _note(begun)
    time.sleep(1e6)  # noqa: ASYNC251


@app.job
def never_heeds(begun: str) -> None:
    """Blocked in C with the interpreter free: no exception gets in."""
    _note(begun)
    while True:
        ctypes.CDLL(None).sleep(1000)


@app.job
def die(how: str) -> None:
    match how:
        case "exit":
            os._exit(0)
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "segfault":
            ctypes.string_at(0)


@app.job
async def grow(mib: int) -> None:
    _kept.append(os.urandom(1024) * (mib * 1024))


@app.job
def start_program(pid_file: str) -> None:
    """A program that would go on long after this job."""
    program = subprocess.Popen(["sleep", "1000"])
    _note(pid_file, str(program.pid))
    program.wait()


@app.job(isolation="process")
def start_program_apart(pid_file: str) -> None:
    start_program(pid_file)


@app.job
def exit_when(file: str, begun: str) -> None:
    """Take the worker along, as if all were well."""
    _note(begun)
    while not Path(file).exists():
        time.sleep(0.01)
    os._exit(0)


@app.job
def leave_orphan(pid_file: str) -> None:
    """A process whose parent ends before it: it becomes a child of PID 1."""
    subprocess.run(["sh", "-c", f"sleep 1 & echo $! > {pid_file}"], check=True)


def _note(file: str, text: str = "") -> None:
    """One line, written as a whole."""
    fd = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(fd, f"{text or os.getpid()}\n".encode())
    os.close(fd)
