"""What the embedded servers have in common: owning the folder, starting, stopping, and every way of ending.

A server is up from `start()` to `stop()`, or to the end of this process, whichever is first and however it comes. A
forked child of this process may use the server but never stops it.
"""

import atexit
import os
import signal
from abc import ABC, abstractmethod
from pathlib import Path
from typing import ClassVar, Self

from windlass.embedded.folder import DataFolder
from windlass.embedded.guardian import remove_run_dir
from windlass.embedded.held import close_held
from windlass.embedded.process import Guarded, tail
from windlass.errors import Misconfigured


class EmbeddedServer(ABC):
    """A server that is a child of ours, in a data folder of ours."""

    log_name: ClassVar[str] = "server.log"
    # A dead owner's guardian needs up to its stop steps to end the server; a new owner waits a little longer than that.
    earlier_server_timeout_s: float = 60.0

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = Path(data_dir).absolute()
        self.log = self.data_dir / self.log_name
        self._owner_pid = 0
        self._folder: DataFolder | None = None
        self._run_dir: Path | None = None
        self._guarded: Guarded | None = None
        self._url: str | None = None

    @abstractmethod
    def _launch(self, folder: DataFolder, lock_fd: int) -> None:
        """Bring the server up until it takes connections, setting `_guarded` and `_url`."""

    @property
    def url(self) -> str:
        """Where to connect, while the server is up."""
        if self._url is None:
            raise Misconfigured(f"the server in {self.data_dir} is not started")
        return self._url

    @property
    def pid(self) -> int:
        """The server's process id, while it is up."""
        return self._running().pid

    @property
    def guardian_pid(self) -> int:
        return self._running().guardian_pid

    @property
    def alive(self) -> bool:
        """Whether the server and its guardian run; False from the moment either has died."""
        return self._guarded is not None and self._guarded.alive

    def start(self) -> Self:
        """Bring the server up. Returns once it takes connections; raises InUse or Misconfigured, leaving nothing behind."""
        if self.alive:
            return self
        self.stop()
        self._folder = DataFolder(self.data_dir)
        self._owner_pid = os.getpid()
        atexit.register(self.stop)
        try:
            lock_fd = self._folder.lock_for_server(self.earlier_server_timeout_s)
            try:
                self._launch(self._folder, lock_fd)
            finally:
                close_held(lock_fd)
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Shut the server down cleanly, by force after a deadline. Safe to repeat; does nothing in a forked child."""
        if self._folder is None or self._owner_pid != os.getpid():
            return
        guarded, self._guarded, self._url = self._guarded, None, None
        if guarded is not None:
            guarded.stop()
            self._see_it_gone(self._folder, guarded)
        if self._run_dir is not None:
            remove_run_dir(self._run_dir)
            self._run_dir = None
        self._folder.release()
        self._folder = None
        atexit.unregister(self.stop)

    def kill(self) -> None:
        """Kill the server as a crash would (SIGKILL). For tests of recovery."""
        self._running().send_signal(signal.SIGKILL)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _running(self) -> Guarded:
        if self._guarded is None:
            raise Misconfigured(f"the server in {self.data_dir} is not started")
        return self._guarded

    @staticmethod
    def _see_it_gone(folder: DataFolder, guarded: Guarded) -> None:
        """A killed guardian leaves the server to its own shutdown, a killed server leaves its children to notice: wait."""
        if guarded.exit_code != 0:
            (_, patience_s), *harder = guarded.program.stop
            for number, next_patience_s in (*harder, (signal.SIGKILL, 5.0)):
                if folder.wait_for_server_end(patience_s):
                    break
                guarded.send_signal(number)
                patience_s = next_patience_s
        guarded.release()

    def _new_log(self) -> Path:
        """A fresh log for this start; the one before is kept, once."""
        if self.log.exists():
            self.log.replace(self.log.with_name(self.log.name + ".1"))
        return self.log

    def _failed(self, what: str, log: Path) -> Misconfigured:
        return Misconfigured(f"{what} in {self.data_dir}; its log ends:\n{tail(log)}")
