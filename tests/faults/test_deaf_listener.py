"""A network that goes silent: listeners are replaced, jobs are found without them, and no connection hangs for long."""

import logging
import socket
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import pytest

from tests.eventually import aeventually
from tests.factory import Rig, WorkerRig
from tests.faults.proxy import Proxy, proxied
from tests.pressure import Stopwatch
from windlass.bus.postgres import Listener, PostgresWaker
from windlass.bus.waking import Waking
from windlass.config import StoreConfig
from windlass.embedded.postgres import EmbeddedPostgres
from windlass.errors import Unavailable
from windlass.model import NewJob
from windlass.store.connections import connect, open_postgres
from windlass.store.postgres import Connection
from windlass.store.protocol import channel
from windlass.store.store import Store

PROBE_S: Final = 0.2
DEAF_AFTER_S: Final = 0.4


@pytest.fixture
async def proxy(url: str) -> AsyncIterator[Proxy]:
    async with proxied(url) as opened:
        yield opened


@pytest.fixture
async def intake(store: Store) -> AsyncIterator[Waking]:
    waker = PostgresWaker(store.hints)
    yield Waking(store.intake, waker, store.hints)
    await waker.aclose()


async def rest(store: Store, worker: WorkerRig) -> None:
    await store.hints.rest(worker.id, queues=worker.queues, types=worker.types, free=worker.threads)


async def claimed(worker: WorkerRig, job_id: UUID) -> bool:
    """One poll of a worker."""
    return job_id in {lease.job_id for lease in await worker.claim()}


@pytest.mark.parametrize("how", ["blackhole", "to_server", "to_client"])
async def test_a_deaf_listener_is_replaced_and_jobs_are_found_by_polling_meanwhile(
    config: StoreConfig, proxy: Proxy, rig: Rig, intake: Waking, caplog: pytest.LogCaptureFixture, how: Any
) -> None:
    caplog.set_level(logging.INFO, logger="windlass")
    worker = await rig.worker()
    heard: list[tuple[str, str]] = []
    ours = channel(worker.id)
    direct = replace(config, direct_url=proxy.url)
    listening = Listener(direct, [ours], lambda *hint: heard.append(hint), probe_s=PROBE_S, deaf_after_s=DEAF_AFTER_S)
    async with listening as listener:
        await rest(rig.store, worker)
        proxy.blackhole() if how == "blackhole" else proxy.drop(how)
        (job,) = await intake.enqueue([NewJob("echo", {})])
        watch = Stopwatch()
        await aeventually(lambda: claimed(worker, job.id))
        await aeventually(lambda: _true((ours, "reconnected") in heard))
        assert watch.free_s < 10 * (PROBE_S + DEAF_AFTER_S)
        assert listener.listening
        heard.clear()
        await rest(rig.store, worker)
        await intake.enqueue([NewJob("echo", {})])
        await aeventually(lambda: _true(heard == [(ours, "")]))
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]


async def test_a_listener_that_is_cut_off_comes_back_without_waiting_for_its_probe(
    config: StoreConfig, proxy: Proxy
) -> None:
    heard: list[tuple[str, str]] = []
    direct = replace(config, direct_url=proxy.url)
    async with Listener(direct, ["a"], lambda *hint: heard.append(hint), probe_s=3600):
        proxy.cut()
        await aeventually(lambda: _true(heard == [("a", "reconnected")]))


async def test_a_listener_with_a_loop_that_was_held_up_is_not_deaf(
    config: StoreConfig, sql: Connection, caplog: pytest.LogCaptureFixture
) -> None:
    async with Listener(config, ["a"], lambda *_: None, probe_s=0, deaf_after_s=1) as listener:
        for _ in range(3):
            _hold_up(0.8)  # most of the probe's patience; three of them are more than all of it
            for _ in range(20):
                await sql.execute("select")
        assert listener.listening
    assert not caplog.records


async def test_a_connection_that_has_gone_silent_is_given_up_within_15_s_and_replaced(
    config: StoreConfig, proxy: Proxy
) -> None:
    far = replace(config, database_url=proxy.url, statement_timeout_s=60)
    idle = await connect(far)
    async with open_postgres(far) as postgres:
        assert await postgres.fetch("anyone_idle")
        await aeventually(lambda: _true(not postgres._giving))  # the next one gets the same connection
        proxy.blackhole()
        watch = Stopwatch()
        with pytest.raises(Unavailable):
            await postgres.fetch("anyone_idle")
        print(f"in use: noticed after {watch.free_s:.1f} s")
        await aeventually(lambda: _true(idle.is_closed()), timeout_s=30)
        print(f"idle: noticed after {watch.free_s:.1f} s")
        assert watch.free_s < 15
        assert await postgres.fetch("anyone_idle")


async def test_every_connection_of_ours_is_kept_alive_on_both_sides(data_dir: Path) -> None:
    with EmbeddedPostgres(data_dir, listen="tcp") as server:
        config = StoreConfig(database_url=server.url, pool_min=0)
        async with open_postgres(config) as postgres, postgres.connection() as pooled:
            lone = await connect(config, direct=True)
            for connection in (pooled, lone):
                ours = connection._transport.get_extra_info("socket")  # type: ignore[union-attr]
                assert ours.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
                options = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT, socket.TCP_USER_TIMEOUT)
                assert [ours.getsockopt(socket.IPPROTO_TCP, option) for option in options] == [5, 2, 3, 10_000]
                rows = await connection.fetch("select setting from pg_settings where name ~ '^tcp_' order by name")
                assert [row["setting"] for row in rows] == ["3", "5", "2", "10000"]
            await lone.close()


async def test_a_pooler_that_refuses_our_settings_is_used_without_them(config: StoreConfig, url: str) -> None:
    async with proxied(url, refused="tcp_keepalives_idle") as pooler:
        async with open_postgres(replace(config, database_url=pooler.url)) as postgres:
            assert await postgres.fetch("anyone_idle")
        both = replace(config, database_url=pooler.url, direct_url=url)
        async with open_postgres(both) as postgres:  # told of the pooler, we do not even try
            assert await postgres.fetch("anyone_idle")


def _hold_up(seconds: float) -> None:
    """As a handler that does not yield."""
    until_s = time.monotonic() + seconds
    while time.monotonic() < until_s:
        pass


async def _true(value: object) -> bool:
    return bool(value)
