"""PgBouncer in front of a PostgreSQL, where it is installed: `apt install pgbouncer`, or WINDLASS_TEST_PGBOUNCER names it."""

import os
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import pytest

from tests.eventually import eventually


def program() -> str:
    """The program, or no test."""
    found = os.environ.get("WINDLASS_TEST_PGBOUNCER") or shutil.which("pgbouncer", path=f"{os.defpath}:/usr/sbin")
    if found is None:
        pytest.skip("PgBouncer is not installed: apt install pgbouncer, or set WINDLASS_TEST_PGBOUNCER")
    return found


def version() -> tuple[int, int]:
    said = subprocess.run([program(), "--version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"PgBouncer (\d+)\.(\d+)", said)
    assert found, said
    return int(found[1]), int(found[2])


@contextmanager
def pgbouncer(
    server_url: str, folder: Path, *, mode: str = "transaction", settings: Mapping[str, object] | None = None
) -> Iterator[str]:
    """The URL of the database of this name through a PgBouncer with its own defaults, and these settings."""
    parts = urlsplit(server_url)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    login = f"user={parts.username}" + (f" password={parts.password}" if parts.password else "")
    options = {
        "listen_addr": "127.0.0.1",
        "listen_port": port,
        "unix_socket_dir": "",
        "auth_type": "any",
        "pool_mode": mode,
        "default_pool_size": 5,
        **(settings or {}),
    }
    file = folder / f"pgbouncer-{port}.ini"
    lines = [f"{name} = {value}" for name, value in options.items()]
    database = f"* = host={parts.hostname} port={parts.port} {login}"
    file.write_text("\n".join(["[databases]", database, "[pgbouncer]", *lines, ""]))
    file.chmod(0o644)
    user = ["-u", "nobody"] if os.geteuid() == 0 else []  # it refuses to be root
    with (folder / f"pgbouncer-{port}.log").open("wb") as log:
        process = subprocess.Popen([program(), *user, str(file)], stdout=log, stderr=log, cwd="/")
    try:
        eventually(lambda: _answers(port, process))
        yield urlunsplit(("postgresql", f"{parts.username}@127.0.0.1:{port}", parts.path, "sslmode=disable", ""))
    finally:
        process.kill()
        process.wait()


def _answers(port: int, process: "subprocess.Popen[bytes]") -> bool:
    assert process.poll() is None, "PgBouncer has ended"
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
