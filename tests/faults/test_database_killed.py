"""PostgreSQL is killed with SIGKILL while clients enqueue, claim and settle: what was acknowledged is there afterwards,
once; what was not is settled by repeating it. Clients see Unavailable and nothing else, and go on with the same store.

Default durability. Nothing waits for time to pass: kills come after so many answers, repetitions until they are answered.
"""

import asyncio
import contextlib
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar
from uuid import UUID, uuid4

import asyncpg
import psutil
import pytest

from tests.eventually import aeventually, eventually
from windlass.config import StoreConfig
from windlass.embedded.postgres import EmbeddedPostgres
from windlass.errors import Unavailable
from windlass.leader.chores import reap
from windlass.lifecycle import Completed, Settlement, settle
from windlass.model import Lease, NewJob, NewWorker, Status
from windlass.store import migrate
from windlass.store.claims import Claims
from windlass.store.ids import Ids
from windlass.store.protocol import Ask, Settled
from windlass.store.store import Store, open_store

T = TypeVar("T")

KILLS: Final = 3
CLIENTS: Final = 6
TYPES: Final = ("echo",)
QUEUES: Final = ("default",)


@dataclass
class Plant:
    """A database that gets killed, the one store that its clients use all the while, and what they saw."""

    server: EmbeddedPostgres
    store: Store
    up: asyncio.Event = field(default_factory=asyncio.Event)
    down: asyncio.Event = field(default_factory=asyncio.Event)
    done: asyncio.Event = field(default_factory=asyncio.Event)
    progress: asyncio.Condition = field(default_factory=asyncio.Condition)
    answered: int = 0
    kills: int = 0
    epoch: int = 0  # grows with every kill and every start: for a moment the processes outlive their postmaster
    seen: "Counter[str]" = field(default_factory=Counter)

    async def until_answered(self, call: Callable[[], Awaitable[T]]) -> tuple[T, int]:
        """The answer, and how often it was lost before. Any error but Unavailable ends the test."""
        lost = 0
        while True:
            try:
                answer = await call()
            except Unavailable:
                lost += 1
                await self.up.wait()
            else:
                await self.count()
                return answer, lost

    async def count(self) -> None:
        async with self.progress:
            self.answered += 1
            self.progress.notify_all()

    async def kill_in_between(self, *, every: int, everything: bool) -> None:
        """Kill after so many answers, bring it up again from the same folder, and so on; then say that it is done."""
        for _ in range(KILLS):
            await self._more_answers(every)
            self.up.clear()
            self.down.set()
            self.kills += 1
            self.epoch += 1
            self._kill_every_process() if everything else self._kill_postmaster_and_network()
            await asyncio.to_thread(self._start_again)
            self.down.clear()
            self.epoch += 1
            self.up.set()
        await self._more_answers(every)
        self.done.set()
        self.down.set()

    async def _more_answers(self, count: int) -> None:
        enough = self.answered + count
        async with self.progress:
            await self.progress.wait_for(lambda: self.answered >= enough)

    def _kill_every_process(self) -> None:
        pids = [child.pid for child in psutil.Process(self.server.pid).children()]
        self.server.kill()
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):  # it has seen its parent's end
                os.kill(pid, signal.SIGKILL)

    def _kill_postmaster_and_network(self) -> None:
        """Commits in progress succeed, as its children end with the statement they are in, but nobody hears of it."""
        pool: Any = self.store.postgres._pool
        for holder in pool._holders:
            if holder._con is not None and holder._con._transport is not None:
                holder._con._transport.abort()
        self.server.kill()

    def _start_again(self) -> None:
        eventually(lambda: not self.server.alive)
        self.server.start()

    async def look_on(self) -> None:
        """A reader that does not wait for better times: down, starting or up, it sees Unavailable or an answer."""
        while not self.done.is_set():
            await aeventually(self._can_read, timeout_s=60)
            await self.down.wait()

    async def _can_read(self) -> bool:
        try:
            await self.store.views.counts()
        except Unavailable:
            self.seen["reads refused"] += 1
            return False
        return True


@pytest.fixture
async def plant(in_memory: Path) -> AsyncIterator[Plant]:
    # A short path: the socket is then in the folder itself, and in the same place after every start.
    with EmbeddedPostgres(in_memory / f"killed-{uuid4().hex[:6]}") as server:
        connection = await asyncpg.connect(server.url)
        for setting in ("fsync", "synchronous_commit", "full_page_writes"):
            assert await connection.fetchval("select current_setting($1)", setting) == "on"
        await migrate.upgrade(connection)
        await connection.close()
        async with open_store(StoreConfig(database_url=server.url, pool_min=0, pool_max=CLIENTS + 2)) as store:
            plant = Plant(server, store)
            plant.up.set()
            yield plant
            assert plant.kills == KILLS
            assert plant.seen["reads refused"] >= KILLS
            assert store.postgres.config.database_url == server.url, "the store was not given a new address"
            assert (await store.views.check()).clean, await store.views.check()
            print(f"\n{plant.kills} kills, {plant.answered} calls answered; {dict(plant.seen)}")


@pytest.mark.parametrize("everything", [False, True], ids=["postmaster and network", "every process"])
async def test_an_acknowledged_enqueue_survives_and_a_repeated_one_does_not_double(
    plant: Plant, everything: bool
) -> None:
    ids = Ids(plant.store.postgres.now_ms)
    acknowledged: set[UUID] = set()

    async def client(number: int) -> None:
        batch_number = 0
        while not plant.done.is_set():
            batch_number += 1
            batch = [NewJob("echo", {"client": number, "n": n}, id=job_id) for n, job_id in enumerate(ids.make(3))]
            if number % 2:  # by key instead: then the store makes the ids, other ones in every repetition
                batch = [
                    job._replace(id=None, idempotency_key=f"{number}-{batch_number}-{n}") for n, job in enumerate(batch)
                ]
            answers, lost = await plant.until_answered(partial(plant.store.intake.enqueue, batch))
            duplicates = {answer.duplicate for answer in answers}
            assert len(duplicates) == 1, "a batch was stored in part"
            assert lost or duplicates == {False}, "a job that nobody repeated was there already"
            if lost:
                plant.seen["stored although unanswered" if duplicates == {True} else "not stored, and unanswered"] += 3
            new = {answer.id for answer in answers}
            assert len(new) == 3
            assert not new & acknowledged, "two submissions got one job"
            acknowledged.update(new)

    async with asyncio.TaskGroup() as group:
        group.create_task(plant.look_on())
        for number in range(CLIENTS):
            group.create_task(client(number))
        group.create_task(plant.kill_in_between(every=150, everything=everything))

    async with plant.store.postgres.connection() as connection:
        stored = [row["id"] for row in await connection.fetch("select id from windlass.job")]
    assert sorted(stored) == sorted(acknowledged)
    assert await plant.store.views.counts() == {("default", "echo", Status.READY): len(acknowledged)}
    plant.seen["acknowledged"] = len(acknowledged)


@dataclass
class Hand:
    """One worker: claims, runs and settles its jobs, and follows the rules when an answer is lost."""

    plant: Plant
    stored: dict[UUID, UUID]  # job and token of every settlement that was acknowledged, by any hand
    id: UUID = field(default_factory=uuid4)

    async def work(self, *, all_jobs: int, mortal: bool) -> None:
        claims = await self._join()
        while len(self.stored) < all_jobs:
            epoch = self.plant.epoch
            leases = await self._claim(claims)
            settlements = [settle(lease, Completed({"by": str(self.id)}), jitter=0.5) for lease in leases]
            try:
                receipt, lost = await claims.settle(settlements), 0
            except Unavailable:
                if mortal:
                    await self._die_and_be_replaced()
                receipt, lost = await self.plant.until_answered(partial(claims.settle, settlements))
                lost += 1
            for settlement in settlements:
                self._note(settlement, receipt.of(settlement.job_id), lost=lost, killed=epoch != self.plant.epoch)
            await (self.plant.count() if leases else asyncio.sleep(0))

    async def _join(self) -> Claims:
        new = NewWorker(self.id, "hand", 8, QUEUES, TYPES)
        await self.plant.until_answered(partial(self.plant.store.upkeep.register, new, lease_ttl_s=600))
        return self.plant.store.claims()

    async def _claim(self, claims: Claims) -> list[Lease]:
        try:
            return await claims.claim(Ask(self.id, QUEUES, TYPES, free=8, most=5))
        except Unavailable:
            strays, _ = await self.plant.until_answered(partial(claims.strays, self.id, [], older_than_s=0))
            back, _ = await self.plant.until_answered(partial(claims.release, strays))
            self.plant.seen["claimed although unanswered, given back"] += len(back.moved)
            return []

    async def _die_and_be_replaced(self) -> None:
        """Its supervisor says so and the leader reaps; the process lives on a little, and settles too late."""
        plant = self.plant
        await plant.until_answered(partial(plant.store.upkeep.bury, [self.id], "crashed"))
        reaped, _ = await plant.until_answered(partial(reap, plant.store.upkeep, plant.store.claims(), lambda: 0.5))
        plant.seen["reaped"] += reaped
        self.id = uuid4()
        await self._join()

    def _note(self, settlement: Settlement, answer: Settled, *, lost: int, killed: bool) -> None:
        assert answer is Settled.ACCEPTED or killed, f"{answer} although the database was up all the while"
        assert answer is not Settled.REPEATED or lost, "repeated, but it was said once"
        self.plant.seen[f"settled: {answer.value}{', repeating' if lost else ''}"] += 1
        if answer is not Settled.REFUSED:
            assert settlement.job_id not in self.stored, "one job was finished twice"
            self.stored[settlement.job_id] = settlement.token


@pytest.mark.parametrize("everything", [False, True], ids=["postmaster and network", "every process"])
async def test_an_acknowledged_settlement_survives_and_every_job_is_completed_once(
    plant: Plant, everything: bool
) -> None:
    all_jobs, stored = 6_000, dict[UUID, UUID]()
    await plant.store.intake.enqueue([NewJob("echo")] * all_jobs)
    async with asyncio.TaskGroup() as group:
        group.create_task(plant.look_on())
        for number in range(CLIENTS):
            group.create_task(Hand(plant, stored).work(all_jobs=all_jobs, mortal=number < 2))
        group.create_task(plant.kill_in_between(every=150, everything=everything))

    async with plant.store.postgres.connection() as connection:
        outcomes = await connection.fetch("select job_id, token from windlass.outcome")
    assert {row["job_id"]: row["token"] for row in outcomes} == stored
    assert await plant.store.views.counts() == {("default", "echo", Status.COMPLETED): all_jobs}
    assert all(worker.jobs == 0 for worker in await plant.store.views.workers())
