"""The link finds its server under Sentinel, in a cluster, and behind a password; each is used as any other."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import redis

from tests.eventually import aeventually, eventually
from tests.shortcuts import behind, client
from windlass.clock import steady_s
from windlass.embedded.binaries import find_valkey
from windlass.embedded.process import free_port
from windlass.embedded.valkey import EmbeddedValkey
from windlass.model import Enqueued, NewJob
from windlass.store.store import Store


async def is_used(url: str, store: Store) -> None:
    jobs = [NewJob("echo", idempotency_key=f"k{n}") for n in range(50)]
    async with behind(url, store) as door:
        first = await door.intake.enqueue(jobs)
        keys = [job.idempotency_key or "" for job in jobs]

        async def known() -> bool:
            return len((await door.shortcuts.keys.recall(keys)).found) == len(keys)

        await aeventually(known)
        assert await door.intake.enqueue(jobs) == [Enqueued(one.id, duplicate=True) for one in first]
        door.shortcuts.jobs.keep(first[0].id, b"{}", read_s=steady_s())

        async def kept() -> bool:
            return await door.shortcuts.jobs.look(first[0].id) == b"{}"

        await aeventually(kept)
        await door.shortcuts.jobs.drop([one.id for one in first])
        assert await door.shortcuts.jobs.look(first[0].id) is None


async def test_over_tcp_with_a_password(store: Store, tmp_path: Path) -> None:
    with EmbeddedValkey(tmp_path / "valkey", listen="tcp") as server:
        await is_used(server.url, store)


async def test_in_a_cluster(store: Store, tmp_path: Path) -> None:
    settings = {"cluster-enabled": "yes", "cluster-port": str(free_port()), "cluster-config-file": "nodes.conf"}
    with EmbeddedValkey(tmp_path / "valkey", listen="tcp", settings=settings) as server:
        with client(server.url) as connection:
            connection.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16_383)
            eventually(lambda: b"cluster_state:ok" in _info(connection))
        await is_used(server.url.replace("redis://", "redis+cluster://"), store)


def _info(connection: Any) -> bytes:
    said = connection.execute_command("CLUSTER", "INFO")
    return said if isinstance(said, bytes) else b"cluster_state:%b" % said["cluster_state"].encode()


async def test_under_sentinel(store: Store, tmp_path: Path) -> None:
    with EmbeddedValkey(tmp_path / "valkey", listen="tcp") as server, sentinel(server, tmp_path) as port:
        login = urlsplit(server.url).netloc.partition("@")[0]
        await is_used(f"redis+sentinel://{login}@127.0.0.1:{port}/main/0", store)


@contextmanager
def sentinel(server: EmbeddedValkey, folder: Path) -> Iterator[int]:
    port, main = free_port(), urlsplit(server.url)
    config = folder / "sentinel.conf"
    config.write_text(
        f"port {port}\nbind 127.0.0.1\ndir {folder}\nsentinel monitor main 127.0.0.1 {main.port} 1\n"
        f"sentinel auth-pass main {main.password}\n"
    )
    with (folder / "sentinel.log").open("wb") as log:
        process = subprocess.Popen([find_valkey(None), config, "--sentinel"], stdout=log, stderr=log)
    try:
        with redis.Redis(port=port) as connection:
            eventually(lambda: _pong(connection))
        yield port
    finally:
        process.terminate()
        process.wait(10)


def _pong(connection: "redis.Redis") -> bool:
    try:
        return bool(connection.ping())
    except redis.ConnectionError:
        return False
