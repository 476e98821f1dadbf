"""Handlers that print, log and wait: in a thread, on the loop, and in a process of their own."""

import asyncio
import logging
import sys
import time
from pathlib import Path

from windlass import App

app = App()
print("printed while the app was imported")  # outside of jobs


def _talk(how: str) -> None:
    print("printed", how, flush=True)
    print("half a line, ", end="")
    sys.stdout.write("and its end\nsecond line\n")
    logging.getLogger("shop").warning("logged %s", how)
    print("no line end", end="")


@app.job
def in_thread(file: str) -> None:
    _talk("in a thread")
    while not Path(file).exists():
        time.sleep(0.01)


@app.job
async def on_loop(file: str) -> None:
    _talk("on the loop")
    while not Path(file).exists():  # noqa: ASYNC110, ASYNC240 - the test that makes the file is another process
        await asyncio.sleep(0.01)


@app.job(isolation="process")
def in_child(file: str) -> None:
    _talk("in a child")
    while not Path(file).exists():
        time.sleep(0.01)
