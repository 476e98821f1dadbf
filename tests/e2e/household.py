"""`windlass up` as a newcomer runs it, in a process of its own; and what is asked of it and done to it."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx2
import psutil

from tests.eventually import eventually
from tests.pressure import Stopwatch
from windlass.auth.tokens import Signer
from windlass.config import AuthConfig

ROOT = Path(__file__).parents[2]
WINDLASS = Path(sys.executable).with_name("windlass")
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith(("WINDLASS_", "DATABASE_"))}


class Up:
    """One `windlass up`, once it has told that it is up."""

    def __init__(self, *args: str, folder: Path, cwd: Path = ROOT, **environ: str) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)
        self._said = folder / f"said-{os.urandom(3).hex()}.log"
        watch = Stopwatch()
        with self._said.open("w") as said:
            self.process = subprocess.Popen(
                [WINDLASS, "up", "--json", "--port", "0", *args],
                env={**CLEAN, "WINDLASS_DATA_DIR": str(folder), **environ},
                cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=said, text=True,
                preexec_fn=_as_from_a_terminal,  # noqa: PLW1509 - it only sets a signal's action
            )  # fmt: skip
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"it ended with {self.process.wait(10)}: {self.said}"
        self.came_up_s = watch.free_s
        self.report: dict[str, Any] = json.loads(line)
        self.url: str = self.report["url"]

    @property
    def said(self) -> str:
        """What it and its processes have written to stderr so far."""
        return self._said.read_text()

    @property
    def api(self) -> psutil.Process:
        return self.part("api")

    @property
    def worker(self) -> psutil.Process:
        return self.part("worker")

    def part(self, name: str) -> psutil.Process:
        (found,) = [
            each for each in psutil.Process(self.process.pid).children() if _words(each)[2:4] == ["windlass", name]
        ]
        return found

    def everyone(self) -> list[psutil.Process]:
        found = psutil.Process(self.process.pid)
        return [found, *found.children(recursive=True)]

    def token(self, *scopes: Any) -> str:
        secret = (self.folder / "auth-secret").read_text()
        return Signer.of(AuthConfig(auth_secret=secret)).sign("test", scopes or ("admin",), 600)

    def asked(self, method: str, path: str, **said: Any) -> httpx2.Response:
        headers = {"Authorization": f"Bearer {self.token()}"}
        return httpx2.request(method, self.url + path, headers=headers, timeout=20, **said)

    def submit(self, type_: str, **payload: Any) -> str:
        answer = self.asked("POST", "/v1/jobs", json={"type": type_, "payload": payload})
        assert answer.status_code == 202, answer.text
        job_id: str = answer.json()["id"]
        return job_id

    def job(self, job_id: str) -> dict[str, Any]:
        found: dict[str, Any] = self.asked("GET", f"/v1/jobs/{job_id}").json()
        return found

    def until(self, job_id: str, *statuses: str) -> dict[str, Any]:
        def there() -> dict[str, Any] | None:
            job = self.job(job_id)
            return job if job["status"] in statuses else None

        found = eventually(there, 30)
        assert found is not None
        return found

    def signal(self, number: signal.Signals = signal.SIGINT) -> None:
        self.process.send_signal(number)

    def ended(self, timeout_s: float = 30) -> int:
        return self.process.wait(timeout_s)


def _words(process: psutil.Process) -> list[str]:
    with suppress(psutil.NoSuchProcess):
        return process.cmdline()
    return []


def _as_from_a_terminal() -> None:
    """Under nohup, and some runners of tests, a hang-up would be ignored by everything that is started."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def gone(processes: list[psutil.Process]) -> bool:
    return not any(map(_lives, processes))


def _lives(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):  # it ends while we look
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def programs(processes: list[psutil.Process]) -> set[str]:
    """What runs in these processes, by name: postgres, python."""
    found = set()
    for each in processes:
        with suppress(psutil.NoSuchProcess):
            found.add(re.sub(r"\d.*", "", each.name()))
    return found


@contextmanager
def up(*args: str, folder: Path, cwd: Path = ROOT, **environ: str) -> Iterator[Up]:
    """Runs while the block lasts, and leaves nothing behind."""
    made = Up(*args, folder=folder, cwd=cwd, **environ)
    everyone = made.everyone()
    try:
        yield made
    finally:
        if made.process.poll() is None:
            made.signal(signal.SIGTERM)
            made.signal(signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                made.process.wait(20)
        made.process.kill()
        made.process.communicate()
    eventually(lambda: gone(everyone), 20)
