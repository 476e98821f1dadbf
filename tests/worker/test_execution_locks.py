"""Locks on executions in a real Valkey: taken late, released by their owner alone, reported where held, and needed by nobody."""

import logging
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import uuid4

import pytest

from tests.eventually import aeventually
from tests.shortcuts import client, values
from tests.unit.values import lease
from tests.worker.supervised import begun, supervised
from windlass.bus.redis.link import Link
from windlass.bus.redis.locks import RedisExecutionLocks
from windlass.bus.redis.opening import open_link
from windlass.bus.redis.seals import Seals
from windlass.config import RedisConfig, StoreConfig
from windlass.embedded.valkey import EmbeddedValkey
from windlass.model import Status
from windlass.store.store import Store


@pytest.fixture
async def link(valkey: EmbeddedValkey) -> AsyncIterator[Link]:
    with client(valkey.url) as connection:
        connection.flushall()
    async with open_link(RedisConfig(redis_url=valkey.url, redis_timeout_s=1)) as link:

        async def is_well() -> bool:
            return link.well

        await aeventually(is_well)
        yield link


@pytest.fixture
async def seals(store: Store) -> AsyncIterator[Seals]:
    async with Seals(store.identities) as seals:
        yield seals


def locked(valkey: EmbeddedValkey) -> dict[str, str]:
    """The token of each lock, by its job."""
    found = values(valkey.url).items()
    return {name.decode().partition(":lock:")[2]: value.decode() for name, value in found if b":lock:" in name}


async def until_locked(valkey: EmbeddedValkey, **wanted: str) -> None:
    async def there() -> bool:
        return locked(valkey) == wanted

    await aeventually(there)


async def test_what_runs_for_a_while_is_locked_until_it_ends(link: Link, seals: Seals, valkey: EmbeddedValkey) -> None:
    locks = RedisExecutionLocks(link, seals, locks=True, cache_s=0)
    long, other = lease(job_id=uuid4(), token=uuid4()), lease(job_id=uuid4(), token=uuid4())
    locks.acquire([long, other])
    await until_locked(valkey, **{one.job_id.hex: one.token.hex for one in (long, other)})
    with client(valkey.url) as connection:
        (name,) = [name for name in connection.keys("*:lock:*") if long.job_id.hex.encode() in name]
        assert 0 < connection.pttl(name) <= (long.timeout_s + 60) * 1000
    locks.release([other])
    await until_locked(valkey, **{long.job_id.hex: long.token.hex})
    locks.release([long])
    await until_locked(valkey)
    await locks.aclose()


async def test_what_ends_at_once_is_never_sent(link: Link, seals: Seals) -> None:
    locks = RedisExecutionLocks(link, seals, locks=True, cache_s=0)
    asked: list[str] = []
    link.ask = lambda what, _: asked.append(what)  # type: ignore[method-assign,assignment,return-value]
    for _ in range(3):
        quick = [lease(job_id=uuid4(), token=uuid4()) for _ in range(10)]
        locks.acquire(quick)
        locks.release(quick)
    await locks.aclose()
    assert asked == []


async def test_a_held_lock_is_taken_over_and_reported_and_its_late_release_does_nothing(
    link: Link, seals: Seals, valkey: EmbeddedValkey, caplog: pytest.LogCaptureFixture
) -> None:
    job_id = uuid4()
    dead = RedisExecutionLocks(link, seals, locks=True, cache_s=0)
    first, second = lease(job_id=job_id, token=uuid4()), lease(job_id=job_id, token=uuid4(), attempt=2)
    dead.acquire([first])
    await until_locked(valkey, **{job_id.hex: first.token.hex})
    living = RedisExecutionLocks(link, seals, locks=True, cache_s=0)
    with caplog.at_level(logging.WARNING):
        living.acquire([second])
        await until_locked(valkey, **{job_id.hex: second.token.hex})

        async def is_said() -> bool:
            return f"the first is {job_id}, attempt 2" in caplog.text

        await aeventually(is_said)
    dead.release([first])
    await dead.aclose()
    assert locked(valkey) == {job_id.hex: second.token.hex}
    living.release([second])
    await until_locked(valkey)
    await living.aclose()


async def test_a_job_claimed_again_is_locked_by_its_second_claim(
    link: Link, seals: Seals, valkey: EmbeddedValkey, caplog: pytest.LogCaptureFixture
) -> None:
    job_id = uuid4()
    locks = RedisExecutionLocks(link, seals, locks=True, cache_s=0)
    first, second = lease(job_id=job_id, token=uuid4()), lease(job_id=job_id, token=uuid4())
    locks.acquire([first])
    await until_locked(valkey, **{job_id.hex: first.token.hex})
    locks.acquire([second])
    locks.release([first])
    await until_locked(valkey, **{job_id.hex: second.token.hex})
    assert "locked" not in caplog.text
    await locks.aclose()


async def test_what_was_submitted_a_moment_ago_is_void_once_it_begins(
    link: Link, seals: Seals, valkey: EmbeddedValkey
) -> None:
    seal = seals.current
    assert seal is not None
    fresh, old = lease(job_id=uuid4(), waited_s=0.1), lease(job_id=uuid4(), waited_s=40.0)
    names = [seal.job_name(one.job_id) for one in (fresh, old)]
    with client(valkey.url) as connection:
        for name in names:
            connection.set(name, b"as it was")
        locks = RedisExecutionLocks(link, seals, locks=False, cache_s=30)
        locks.acquire([fresh, old])

        async def is_void() -> bool:
            return list(connection.mget(names)) == [b"-", b"as it was"]

        await aeventually(is_void)
    await locks.aclose()
    assert locked(valkey) == {}


async def test_a_redis_that_hangs_or_lies_keeps_no_job_from_running(
    config: StoreConfig, store: Store, tmp_path: Path
) -> None:
    with EmbeddedValkey(tmp_path / "valkey") as server:
        async with supervised(config, redis=RedisConfig(redis_url=server.url)) as crew:
            await crew.living()
            first = await crew.enqueue("wait", file=str(tmp_path / "go"), begun=str(tmp_path / "begun"))
            await begun(tmp_path / "begun")

            async def is_locked() -> bool:
                return list(locked(server)) == [first.hex]

            await aeventually(is_locked)
            with client(server.url) as connection:
                for name in connection.keys("*:lock:*"):
                    connection.delete(name)
                    connection.rpush(name, b"of another kind")
            os.kill(server.pid, signal.SIGSTOP)
            (tmp_path / "go").touch()
            await crew.until(first, Status.COMPLETED)
            for _ in range(3):
                await crew.until(await crew.enqueue("echo"), Status.COMPLETED)
            os.kill(server.pid, signal.SIGCONT)


async def test_a_worker_locks_what_it_runs(
    config: StoreConfig, store: Store, valkey: EmbeddedValkey, tmp_path: Path
) -> None:
    with client(valkey.url) as connection:
        connection.flushall()
    async with supervised(config, redis=RedisConfig(redis_url=valkey.url)) as crew:
        await crew.living()
        job_id = await crew.enqueue("wait", file=str(tmp_path / "go"), begun=str(tmp_path / "begun"))
        await begun(tmp_path / "begun")

        async def is_locked() -> bool:
            return list(locked(valkey)) == [job_id.hex]

        await aeventually(is_locked)
        (tmp_path / "go").touch()
        await crew.until(job_id, Status.COMPLETED)
        await until_locked(valkey)
