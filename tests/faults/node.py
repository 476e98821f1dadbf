"""A node as users run it: `windlass worker` in a process of its own, with its workers, guard and leader; and its killers.

Handlers are those of tests/faults/ledger.py, which write down what really ran.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

from tests.eventually import eventually

APP = "tests.faults.ledger:app"


class Node:
    """One supervisor and everything below it."""

    def __init__(self, url: str, ledger: Path, *, app: str = APP, **settings: Any) -> None:
        said = {f"WINDLASS_{name.upper()}": str(value) for name, value in settings.items()}
        self.ledger = ledger
        self.log = ledger.with_name(f"{ledger.stem}-{os.urandom(3).hex()}.log")
        environment = {**os.environ, "WINDLASS_LOG_FORMAT": "json", **said}
        environment |= {"WINDLASS_DATABASE_URL": url, "LEDGER": str(ledger)}
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "windlass", "worker", "--app", app],
                env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=log, start_new_session=True,
            )  # fmt: skip
        self.pid = self.process.pid

    def below(self, program: str = "") -> list[psutil.Process]:
        """The processes below the supervisor that run `program`."""
        with suppress(psutil.NoSuchProcess):
            everyone = psutil.Process(self.pid).children(recursive=True)
            return [one for one in everyone if program in _command(one) and one.status() != psutil.STATUS_ZOMBIE]
        return []

    @property
    def workers(self) -> list[psutil.Process]:
        return self.below("windlass.worker.main")

    @property
    def guards(self) -> list[psutil.Process]:
        return self.below("windlass.worker.guard")

    def ready(self, workers: int = 1, timeout_s: float = 30) -> None:
        """Wait until that many of its workers have been let loose, and its guard is there."""

        def there() -> bool:
            assert self.process.poll() is None, self.log.read_text()
            return self.log.read_text().count("is ready") >= workers and bool(self.guards)

        eventually(there, timeout_s)

    def everyone(self) -> list[psutil.Process]:
        with suppress(psutil.NoSuchProcess):
            return [psutil.Process(self.pid), *self.below()]
        return []

    def freeze(self) -> list[psutil.Process]:
        """Stop the whole node in its tracks; thaw with resume()."""
        stopped = self.everyone()
        for one in stopped:
            with suppress(psutil.NoSuchProcess):
                one.suspend()
        return stopped

    def signal(self, number: signal.Signals = signal.SIGTERM) -> None:
        self.process.send_signal(number)

    def ended(self, timeout_s: float = 60) -> int:
        return self.process.wait(timeout_s)

    def destroy(self) -> None:
        """As when the machine loses power."""
        everyone = self.everyone()
        for one in everyone:
            with suppress(psutil.NoSuchProcess):
                one.kill()
        self.process.wait(10)
        psutil.wait_procs(everyone, 10)


def _command(process: psutil.Process) -> str:
    with suppress(psutil.Error):
        return " ".join(process.cmdline())
    return ""


@contextmanager
def node(url: str, ledger: Path, **settings: Any) -> Iterator[Node]:
    made = Node(url, ledger, **settings)
    try:
        yield made
    finally:
        for one in made.everyone():
            with suppress(psutil.NoSuchProcess):
                one.resume()
        made.destroy()
