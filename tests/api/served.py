"""The API as users run it: `windlass api` in a process of its own."""

import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from tests.eventually import eventually
from windlass.auth.tokens import Signer
from windlass.config import AuthConfig

SECRET = "of the tests, and long enough: 0123456789abcdef"


class Served:
    """One API process, ready to answer."""

    def __init__(self, url: str, folder: Path, **settings: Any) -> None:
        said = {f"WINDLASS_{name.upper()}": str(value) for name, value in settings.items()}
        environment = {
            **os.environ,
            "WINDLASS_LOG_FORMAT": "json",
            "WINDLASS_UNKNOWN_TYPES": "accept",
            "WINDLASS_UNREADY_S": "0",
        }
        environment |= {"WINDLASS_DATABASE_URL": url, "WINDLASS_AUTH_SECRET": SECRET, **said}
        self.port = free_port()
        self.log = folder / f"api-{self.port}.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "windlass", "api", "--port", str(self.port)],
                env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        eventually(self._is_ready, 30)

    def _is_ready(self) -> bool:
        assert self.process.poll() is None, self.log.read_text()
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/readyz", timeout=5) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(10)

    @property
    def memory_mb(self) -> float:
        return psutil.Process(self.process.pid).memory_info().rss / 1e6

    def stop(self, timeout_s: float = 20) -> int:
        if self.process.poll() is None:
            self.process.terminate()
        try:
            return self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise


@contextmanager
def served(url: str, folder: Path, **settings: Any) -> Iterator[Served]:
    api = Served(url, folder, **settings)
    try:
        yield api
    finally:
        api.stop()


def token(*scopes: Any, subject: str = "tester", ttl_s: float = 3600) -> str:
    return Signer.of(AuthConfig(auth_secret=SECRET)).sign(subject, scopes, ttl_s)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
