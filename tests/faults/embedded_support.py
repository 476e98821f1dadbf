"""Owners in processes of their own, and a look at which processes belong to a data folder."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

SCRIPT = Path(__file__).with_name("embedded_owner.py")


class Owner:
    """`embedded_owner.py` as a process. Killed with everything it may have left when the test is over."""

    def __init__(
        self, kind: str, data_dir: Path, then: str = "wait", *options: str, prefix: Sequence[str] = ()
    ) -> None:
        command = [*(prefix or [sys.executable]), str(SCRIPT), kind, str(data_dir), then, *options]
        self.data_dir = data_dir
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.news: dict[str, Any] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()
        for pid in (*self.news.get("children", []), *processes_of(self.data_dir)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def up(self) -> Self:
        """Wait until the server takes connections."""
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        line = self.process.stdout.readline()
        assert line, self.process.stderr.read()
        self.news = json.loads(line)
        return self

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


def processes_of(data_dir: Path) -> set[int]:
    """Every live process of the server in this folder, owners aside: those that hold its lock, and those that name it."""
    folder, found = data_dir.resolve(), set()
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # ended while we look
            command = (process / "cmdline").read_bytes().decode(errors="replace")
            named = str(folder) in command and SCRIPT.name not in command
            if named or any(fd.readlink() == folder / "server.lock" for fd in (process / "fd").iterdir()):
                found.add(int(process.name))
    return found - {os.getpid()}


def exists(pid: int) -> bool:
    """Whether a process with this pid runs (a zombie has ended)."""
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
