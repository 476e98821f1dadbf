"""A real Valkey as a child process, for development and tests: an accelerator, so nothing of it is kept on disk.

    with EmbeddedValkey(Path("data/valkey")) as valkey:
        client = redis.asyncio.from_url(valkey.url)

Connections come over a socket in a private folder, or over loopback with a random password. Over loopback it is started again
at the same address: who was told of it need not be told again.
"""

import contextlib
import secrets
import signal
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Literal
from urllib.parse import quote

from windlass.embedded.binaries import find_valkey
from windlass.embedded.folder import DataFolder, folder_errors
from windlass.embedded.process import Guarded, Program, Refused, free_port, poll_until, tail
from windlass.embedded.server import EmbeddedServer
from windlass.errors import Misconfigured

_SOCKET = "valkey.sock"
_START_TIMEOUT_S = 30.0
_STOP = ((signal.SIGTERM, 10.0),)  # SIGKILL comes last
_OURS = ("port", "bind", "unixsocket", "unixsocketperm", "requirepass", "daemonize", "logfile", "dir")


class EmbeddedValkey(EmbeddedServer):
    """Valkey in `data_dir`, which holds its log and its socket. `settings` are lines of its configuration file."""

    log_name = "valkey.log"

    def __init__(
        self,
        data_dir: Path,
        *,
        bin_dir: Path | None = None,
        settings: Mapping[str, str] | None = None,
        listen: Literal["socket", "tcp"] = "socket",
    ) -> None:
        super().__init__(data_dir)
        self._bin_dir = bin_dir
        self._settings = _checked(settings or {})
        self._listen = listen
        self._port_and_password: tuple[int, str] | None = None  # of the last start: the next is at the same address

    def _launch(self, folder: DataFolder, lock_fd: int) -> None:
        program = find_valkey(self._bin_dir)
        with folder_errors(self.data_dir):
            # Another process may take a free port between our look and Valkey's: look again, a few times.
            for _ in range(5):
                address, self._url = self._choose_address(folder)
                self._guarded = self._guard(program, address, lock_fd)
                if self._came_up(self._guarded, address):
                    if self._listen == "tcp":
                        self._port_and_password = int(address["port"]), address["requirepass"]
                    return
                self._guarded.stop()
                self._guarded.release()
                if "Address already in use" not in tail(self.log):
                    break
        raise self._failed("Valkey did not start", self.log)

    def _choose_address(self, folder: DataFolder) -> tuple[dict[str, str], str]:
        """The settings that say where it listens, and the same as a URL."""
        if self._listen == "tcp":
            port, password = self._port_and_password or (free_port(), secrets.token_urlsafe(24))
            address = {"bind": "127.0.0.1", "port": str(port), "requirepass": password}
            return address, f"redis://:{password}@127.0.0.1:{port}/0"
        if self._run_dir is None:
            self._run_dir = folder.make_run_dir(_SOCKET)
        path = self._run_dir / _SOCKET
        return {"port": "0", "unixsocket": str(path), "unixsocketperm": "700"}, f"unix://{quote(str(path))}?db=0"

    def _guard(self, program: Path, address: Mapping[str, str], lock_fd: int) -> Guarded:
        config = {"save": "", "appendonly": "no", "daemonize": "no", "logfile": "", "dir": str(self.data_dir)}
        lines = "".join(f"{name} {_quoted(value)}\n" for name, value in {**config, **self._settings, **address}.items())
        # The configuration goes in by standard input: the password shows neither on disk nor in the process list.
        argv = (program, "-")
        try:
            return Guarded(
                Program(argv, self._new_log(), _STOP, signal.SIGTERM, stdin=lines.encode(), run_dir=self._run_dir),
                lock_fd,
            )
        except Refused as refused:
            raise Misconfigured(f"cannot run {program}: {refused}") from refused

    def _came_up(self, guarded: Guarded, address: Mapping[str, str]) -> bool:
        """Whether it answers a ping; False if it has ended instead."""
        for _ in poll_until(time.monotonic() + _START_TIMEOUT_S):
            if not guarded.alive:
                return False
            with contextlib.suppress(OSError):
                if _ping(address):
                    return True
        raise self._failed(f"Valkey was not ready after {_START_TIMEOUT_S:g} s", self.log)


def _checked(settings: Mapping[str, str]) -> Mapping[str, str]:
    for name in settings:
        if name in _OURS or not name.replace("-", "").isalnum():
            raise Misconfigured(f"settings may not hold {name!r}: it is no Valkey setting, or one that we choose")
    return settings


def _quoted(value: str) -> str:
    """A value as Valkey's configuration reads it back."""
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _ping(address: Mapping[str, str]) -> bool:
    path = address.get("unixsocket")
    with socket.socket(socket.AF_UNIX if path else socket.AF_INET) as client:
        client.settimeout(1.0)
        client.connect(path or ("127.0.0.1", int(address["port"])))
        if password := address.get("requirepass"):
            client.sendall(f"AUTH {password}\r\n".encode())
            if not client.recv(64).startswith(b"+OK"):
                return False
        client.sendall(b"PING\r\n")
        return client.recv(64).startswith(b"+PONG")
