"""A worker that hears no notifications is woken through Redis, if there is one; one that hears them is not."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from tests.eventually import aeventually
from tests.factory import Rig, WorkerRig
from tests.shortcuts import client
from tests.worker.placed import SOON, placed
from tests.worker.supervised import supervised
from windlass.bus.postgres import PostgresWaker
from windlass.bus.redis.opening import open_link
from windlass.bus.redis.popping import Popper, RedisPusher, open_popper, open_pusher
from windlass.bus.waking import Waking
from windlass.config import RedisConfig, StoreConfig
from windlass.embedded.valkey import EmbeddedValkey
from windlass.model import NewJob, Status, Want
from windlass.store.hints import Hints
from windlass.store.protocol import Ear as Told
from windlass.store.store import open_store

Sql = asyncpg.Connection
ONE = Want("default", "echo", 1, 1)


class Ear:
    """A resting worker's: how often it was told."""

    def __init__(self, worker: WorkerRig, pusher: RedisPusher, popper: Popper, hints: Hints) -> None:
        self.worker = worker
        self.pusher = pusher
        self.popper = popper
        self.told = 0
        popper.on_hint = self._hear
        self._hints = hints

    def _hear(self) -> None:
        self.told += 1

    async def rest(self) -> None:
        worker = self.worker
        await self._hints.rest(worker.id, queues=worker.queues, types=worker.types, free=worker.threads)

    async def pops(self) -> bool:
        return self.popper.popping

    async def is_told(self) -> bool:
        return self.told > 0


@pytest.fixture
async def ear(rig: Rig, valkey: EmbeddedValkey) -> AsyncIterator[Ear]:
    worker = await rig.worker()
    async with open_link(RedisConfig(redis_url=valkey.url)) as link, open_popper(link, worker.id) as (pusher, popper):
        made = Ear(worker, pusher, popper, rig.store.hints.through(pusher, lambda: Told.POPS))
        await aeventually(made.pops)
        await aeventually(lambda: _well(pusher))
        await made.rest()
        made.told = 0
        yield made


async def _well(pusher: RedisPusher) -> bool:
    return pusher._link.well


async def test_a_worker_that_pops_is_told_by_redis_and_not_by_the_commit(rig: Rig, ear: Ear) -> None:
    (stored,) = await rig.store.intake.enqueue([NewJob("echo")])
    assert not stored.woken
    assert await rig.store.hints.through(ear.pusher).rouse([ONE]) == [ear.worker.id]
    await aeventually(ear.is_told)
    await ear.rest()
    ear.told = 0
    assert await rig.store.hints.through(ear.pusher).rouse([ONE._replace(count=5)]) == [ear.worker.id]
    await aeventually(ear.is_told)


async def test_all_who_pop_are_told_of_work_for_anyone(rig: Rig, ear: Ear) -> None:
    await rig.store.hints.through(ear.pusher).call_all()
    await aeventually(ear.is_told)


async def test_a_worker_says_anew_each_time_how_it_is_to_be_told(rig: Rig, ear: Ear, sql: Sql) -> None:
    worker = ear.worker
    await rig.store.hints.rest(worker.id, queues=worker.queues, types=worker.types, free=worker.threads)
    assert await sql.fetchval("select pops from windlass.idle") is False
    assert (await rig.store.intake.enqueue([NewJob("echo")]))[0].woken


async def test_hints_are_popped_again_when_redis_is_back_and_one_is_given_for_what_was_missed(
    rig: Rig, tmp_path: Path
) -> None:
    worker = await rig.worker()
    with EmbeddedValkey(tmp_path) as server:
        async with (
            open_link(RedisConfig(redis_url=server.url)) as link,
            open_popper(link, worker.id) as (pusher, popper),
        ):
            ear = Ear(worker, pusher, popper, rig.store.hints)
            await aeventually(ear.pops)
            server.stop()
            await aeventually(lambda: _not(ear.pops()))
            ear.told = 0
            await pusher.push([worker.id])  # nobody is there, and nobody is kept waiting
            server.start()
            await aeventually(ear.is_told, 30)
            await aeventually(lambda: _well(pusher), 30)
            ear.told = 0
            await pusher.push([worker.id])
            await aeventually(ear.is_told)


async def test_a_worker_that_begins_to_pop_while_it_lies_down_says_so_without_waiting_for_its_poll(
    config: StoreConfig, sql: Sql
) -> None:
    asked = 0

    def ear() -> Told:
        nonlocal asked
        asked += 1
        if (
            asked == 1
        ):  # the first hint of a popper that has just connected comes before the claim, which takes it for itself
            asyncio.get_running_loop().call_soon(site.worker.hint)
        return Told.POPS if asked > 1 else Told.LISTENS

    patient = replace(SOON, poll_s=60)
    async with placed(config, {}, worker=patient, hinting=lambda hints: hints.through(Deaf(), ear)) as site:

        async def says_so() -> bool:
            return bool(await sql.fetchval("select pops from windlass.idle"))

        await aeventually(says_so, 20)


class Deaf:
    async def push(self, worker_ids: Sequence[UUID]) -> None:
        """Nobody."""


async def test_where_popping_is_not_allowed_it_is_said_once_and_no_hint_is_given(
    rig: Rig, valkey: EmbeddedValkey, caplog: pytest.LogCaptureFixture
) -> None:
    worker = await rig.worker()
    with client(valkey.url) as connection:
        connection.execute_command("ACL", "SETUSER", "looker", "on", ">pw", "~*", "&*", "+@all", "-blpop")
        try:
            url = valkey.url.replace("?", "?username=looker&password=pw&")
            with caplog.at_level("INFO"):
                async with (
                    open_link(RedisConfig(redis_url=url)) as link,
                    open_popper(link, worker.id) as (pusher, popper),
                ):
                    ear = Ear(worker, pusher, popper, rig.store.hints)
                    await aeventually(lambda: _refused(connection, times=4), 30)
                    assert not ear.told
                    assert not popper.popping
        finally:
            connection.execute_command("ACL", "DELUSER", "looker")
    assert len([record for record in caplog.records if "no wake-ups through Redis" in record.message]) == 1


async def test_who_cannot_push_wakes_those_who_listen_instead(rig: Rig, ear: Ear) -> None:
    listener = await rig.worker()
    await rig.store.hints.rest(listener.id, queues=listener.queues, types=listener.types, free=8)
    assert await rig.store.hints.rouse([ONE]) == [listener.id]
    await rig.store.hints.rest(listener.id, queues=listener.queues, types=listener.types, free=8)
    assert await rig.store.hints.rouse([ONE._replace(count=20)]) == [listener.id]


async def test_a_worker_of_before_rests_without_saying_how_it_is_told(rig: Rig, sql: Sql) -> None:
    worker = await rig.worker()
    said = "insert into windlass.idle (worker_id, since, free, queues, types) values ($1, now(), 8, $2, $3)"
    await sql.execute(said, worker.id, worker.queues, worker.types)
    assert (await rig.store.intake.enqueue([NewJob("echo")]))[0].woken


async def test_lists_of_workers_that_are_gone_do_not_stay(rig: Rig, valkey: EmbeddedValkey) -> None:
    worker = await rig.worker()
    async with open_pusher(RedisConfig(redis_url=valkey.url)) as pusher:
        await aeventually(lambda: _well(pusher))
        for _ in range(100):
            await pusher.push([worker.id])
    with client(valkey.url) as connection:
        (name,) = connection.keys(f"*{worker.id.hex}*")
        length: Any = connection.llen(name)
        ttl: Any = connection.ttl(name)
        assert length <= 16
        assert 0 < ttl <= 10


async def test_a_worker_process_that_cannot_listen_starts_jobs_long_before_it_polls(
    config: StoreConfig, valkey: EmbeddedValkey, sql: Sql
) -> None:
    redis = RedisConfig(redis_url=valkey.url)
    deaf = replace(config, direct_url="postgresql://nobody@127.0.0.1:1/nothing")
    async with (
        supervised(deaf, redis=redis, poll_s=60) as site,
        open_store(config) as store,
        open_pusher(redis) as pusher,
    ):
        await aeventually(lambda: _well(pusher))
        waker = PostgresWaker(store.hints.through(pusher))
        intake = Waking(store.intake, waker, store.hints)

        async def rests() -> bool:
            return bool(await sql.fetchval("select count(*) from windlass.idle where pops"))

        for _ in range(3):
            await aeventually(rests, 30)
            (job,) = await intake.enqueue([NewJob("echo", {})])
            await site.until(job.id, Status.COMPLETED, timeout_s=20)
        await waker.aclose()


async def _refused(connection: Any, *, times: int) -> bool:
    stats = connection.info("commandstats").get("cmdstat_blpop", {})
    return int(stats.get("rejected_calls", 0)) >= times


async def _not(answer: Any) -> bool:
    return not await answer
