"""The app of isolated.py, whose import leaves something behind: what LEAVES names."""

import asyncio
import os
import signal
import socket
import sqlite3
import sys
import threading
from pathlib import Path
from typing import Any

from tests.worker.apps.isolated import app

__all__ = ["app"]

left: list[Any] = []


def leave(what: str) -> None:
    match what:
        case "thread":
            threading.Thread(target=threading.Event().wait, daemon=True).start()
        case "signal":
            signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        case "socket":
            left.append(socket.socketpair())
        case "pipe":
            left.append(os.pipe())
        case "loop":
            left.append(asyncio.new_event_loop())
        case "database":
            left.append(sqlite3.connect(os.environ["LEAVES_AT"]))
            left[0].execute("create table if not exists t (id int)")
        case "log":
            left.append(Path(os.environ["LEAVES_AT"]).open("a"))  # noqa: SIM115
        case "null":
            left.append(os.open(os.devnull, os.O_RDWR))
        case "text":
            sys.stdout.write("imported\n")
        case "numpy":
            import numpy as np

            left.append(np)
        case "nobody":
            os._exit(3)


leave(os.environ["LEAVES"])
