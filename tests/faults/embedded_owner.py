"""A process that owns an embedded server, for tests that kill it: prints one JSON line once the server is up.

    python embedded_owner.py postgres|valkey DATA_DIR [wait|leave|crash|fork] [seccomp] [tcp]

`leave` returns without stopping the server, `crash` raises; `fork` leaves a forked and an executed child that outlive it.
"""

import ctypes
import json
import os
import platform
import signal
import struct
import subprocess
import sys
from pathlib import Path

from windlass.embedded.postgres import EmbeddedPostgres
from windlass.embedded.server import EmbeddedServer
from windlass.embedded.valkey import EmbeddedValkey


def main() -> None:
    kind, folder, then, *options = sys.argv[1:]
    if "seccomp" in options:
        forbid_namespaces()
    listen = "tcp" if "tcp" in options else "socket"
    make = {"postgres": EmbeddedPostgres, "valkey": EmbeddedValkey}[kind]
    server = make(Path(folder), listen=listen)
    server.start()
    children = leave_children() if then == "fork" else []
    print(json.dumps(news(server, children)), flush=True)
    if then == "crash":
        raise RuntimeError("as asked")
    if then != "leave":
        signal.pause()


def news(server: EmbeddedServer, children: list[int]) -> dict[str, object]:
    return {"pid": server.pid, "guardian_pid": server.guardian_pid, "url": server.url, "children": children}


def leave_children() -> list[int]:
    forked = os.fork()
    if forked == 0:
        os.close(1)
        signal.pause()
    executed = subprocess.Popen(["sleep", "600"], close_fds=False, stdout=subprocess.DEVNULL)
    return [forked, executed.pid]


def forbid_namespaces() -> None:
    """What Docker does: a seccomp filter under which unshare() fails with EPERM, for this process and its children."""
    number = {"x86_64": 272, "aarch64": 97}[platform.machine()]
    load, jump_if_equal, answer = 0x20, 0x15, 0x06
    refuse, allow = 0x00050001, 0x7FFF0000
    rules = [(load, 0, 0, 0), (jump_if_equal, 0, 1, number), (answer, 0, 0, refuse), (answer, 0, 0, allow)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *rule) for rule in rules))
    program = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(rules), ctypes.addressof(code)))
    assert ctypes.CDLL(None).prctl(22, 2, program, 0, 0) == 0


if __name__ == "__main__":
    main()
