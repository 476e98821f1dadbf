"""Submissions in flight together share a transaction, and nobody gets another's answer."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import asyncpg
import httpx2
import pytest

from tests.eventually import aeventually
from windlass.api.gathering import Gathering
from windlass.config import StoreConfig
from windlass.errors import IdTaken, InvalidPayload, KeyBusy, KeyReused, Unavailable, WindlassError
from windlass.model import Enqueued, NewJob, Owner
from windlass.store.store import Store, open_store

Client = httpx2.AsyncClient


class Watched:
    """The real intake; notes the size of each group, and lets none begin before `gate` opens."""

    def __init__(self, store: Store) -> None:
        self._intake = store.intake
        self.groups: list[int] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.fault: Exception | None = None

    async def enqueue_each(self, jobs: Sequence[NewJob]) -> list[Enqueued | WindlassError]:
        self.groups.append(len(jobs))
        await self.gate.wait()
        if self.fault is not None:
            raise self.fault
        return await self._intake.enqueue_each(jobs)

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        return await self._intake.enqueue(jobs)


async def _begun(watched: Watched, groups: int) -> None:
    async def there() -> bool:
        return len(watched.groups) >= groups

    await aeventually(there)


async def test_those_that_come_meanwhile_go_together(store: Store) -> None:
    watched = Watched(store)
    watched.gate.clear()
    gathering = Gathering(watched, plain_lanes=1)  # type: ignore[arg-type]
    first = asyncio.ensure_future(gathering.submit(NewJob("echo", 0)))
    await _begun(watched, 1)
    rest = [asyncio.ensure_future(gathering.submit(NewJob("echo", n))) for n in range(1, 701)]
    await asyncio.sleep(0)
    watched.gate.set()
    answers = await asyncio.gather(first, *rest)
    assert watched.groups == [1, 500, 200]
    assert len({answer.id for answer in answers}) == 701
    for n in (0, 1, 350, 700):  # each caller has the id of his own job
        assert (await store.views.job(answers[n].id)).payload == str(n)


async def test_one_that_cannot_be_stored_fails_alone(store: Store) -> None:
    (taken,) = await store.intake.enqueue([NewJob("echo", "first", idempotency_key="k")])
    watched = Watched(store)
    gathering = Gathering(watched, plain_lanes=1, keyed_lanes=1)  # type: ignore[arg-type]
    jobs = [NewJob("echo", n, idempotency_key=f"k{n}") for n in range(20)]
    jobs[7] = NewJob("echo", "second", idempotency_key="k")
    jobs[9] = NewJob("echo", "first", idempotency_key="k")
    jobs[13] = NewJob("echo", "else", id=taken.id)
    jobs[15] = NewJob("echo", "\0")
    answers = await asyncio.gather(*map(gathering.submit, jobs), return_exceptions=True)
    kinds = {n: type(answer) for n, answer in enumerate(answers) if not isinstance(answer, Enqueued)}
    assert kinds == {7: KeyReused, 13: IdTaken, 15: InvalidPayload}
    assert answers[9] == Enqueued(taken.id, duplicate=True)
    assert sum((await store.views.counts()).values()) == 17


async def test_a_fault_reaches_everyone_who_waits(store: Store) -> None:
    watched = Watched(store)
    watched.fault = ZeroDivisionError()
    gathering = Gathering(watched)  # type: ignore[arg-type]
    answers = await asyncio.gather(*(gathering.submit(NewJob("echo")) for _ in range(5)), return_exceptions=True)
    assert {type(answer) for answer in answers} == {ZeroDivisionError}
    watched.fault = None
    assert isinstance(await gathering.submit(NewJob("echo")), Enqueued)


async def test_too_many_who_wait_are_turned_away(store: Store) -> None:
    watched = Watched(store)
    watched.gate.clear()
    gathering = Gathering(watched, plain_lanes=1)  # type: ignore[arg-type]
    first = asyncio.ensure_future(gathering.submit(NewJob("echo")))
    await _begun(watched, 1)
    waiting = [asyncio.ensure_future(gathering.submit(NewJob("echo"))) for _ in range(10_000)]
    await asyncio.sleep(0)
    with pytest.raises(Unavailable):
        await gathering.submit(NewJob("echo"))
    for each in waiting:
        each.cancel()
    watched.gate.set()
    await first


async def test_who_comes_just_as_a_group_ends_is_not_forgotten(store: Store) -> None:
    line = Gathering(Watched(store), plain_lanes=1)._plain  # type: ignore[arg-type]
    second: list[asyncio.Future[Enqueued]] = []
    first = line.ask(NewJob("echo"))
    # Called when the group has ended, and before anybody is told that its task has.
    first.add_done_callback(lambda _: second.append(line.ask(NewJob("echo"))))
    await first
    await asyncio.wait_for(second[0], 10)


async def test_a_caller_who_has_gone_harms_nobody(store: Store) -> None:
    watched = Watched(store)
    watched.gate.clear()
    async with Gathering(watched, plain_lanes=1) as gathering:  # type: ignore[arg-type]
        calls = [asyncio.ensure_future(gathering.submit(NewJob("echo", n))) for n in range(3)]
        await _begun(watched, 1)
        calls[0].cancel()
        calls[2].cancel()
        watched.gate.set()
        assert isinstance(await calls[1], Enqueued)


async def test_who_has_gone_before_his_turn_is_not_stored(store: Store) -> None:
    watched = Watched(store)
    watched.gate.clear()
    async with Gathering(watched, plain_lanes=1) as gathering:  # type: ignore[arg-type]
        first = asyncio.ensure_future(gathering.submit(NewJob("echo")))
        await _begun(watched, 1)
        gone = [asyncio.ensure_future(gathering.submit(NewJob("echo"))) for _ in range(1200)]
        await asyncio.sleep(0)
        for each in gone:
            each.cancel()
        watched.gate.set()
        await first
    assert watched.groups == [1]
    assert sum((await store.views.counts()).values()) == 1


async def test_a_database_that_has_fallen_silent_does_not_hold_up_the_end(store: Store) -> None:
    watched = Watched(store)
    watched.gate.clear()
    async with asyncio.timeout(10), Gathering(watched, plain_lanes=1) as gathering:  # type: ignore[arg-type]
        call = asyncio.ensure_future(gathering.submit(NewJob("echo")))
        await _begun(watched, 1)
        call.cancel()  # as the server does when the time for requests in progress is over
    assert call.cancelled()


async def test_callers_who_wait_for_a_held_key_keep_no_other_key_waiting(
    config: StoreConfig, store: Store, sql: "asyncpg.Connection[Any]"
) -> None:
    transaction = sql.transaction()
    await transaction.start()
    (holder,) = await store.intake.enqueue([NewJob("echo", idempotency_key="held")], connection=sql)
    async with open_store(replace(config, lock_timeout_s=25)) as patient, Gathering(patient.intake) as gathering:
        calls = [asyncio.ensure_future(gathering.submit(NewJob("echo", idempotency_key="held"))) for _ in range(20)]
        others = [gathering.submit(NewJob("echo", idempotency_key=f"k{n}")) for n in range(50)]
        stored = await asyncio.wait_for(asyncio.gather(*others), 10)
        assert not any(answer.duplicate for answer in stored)
        done, waiting = await asyncio.wait(calls, timeout=5)
        assert {type(each.exception()) for each in done} == {KeyBusy}
        await transaction.commit()
        (patiently,) = waiting  # one has waited on, and has what the holder left
        assert await patiently == Enqueued(holder.id, duplicate=True)


async def test_fifty_callers_with_the_same_key_make_one_job(served: Client, store: Store) -> None:
    async def submit(key: int) -> httpx2.Response:
        body = {"type": "echo", "payload": key, "idempotency_key": f"order-{key}"}
        return await served.post("/v1/jobs", json=body, timeout=None)

    answers = await asyncio.gather(*(submit(n % 10) for n in range(500)))
    assert Counter(answer.status_code for answer in answers) == {202: 10, 200: 490}
    assert len({answer.json()["id"] for answer in answers}) == 10
    assert sum((await store.views.counts()).values()) == 10


async def test_a_key_that_a_transaction_holds_keeps_no_other_submission_waiting(
    api: Client, store: Store, sql: "asyncpg.Connection[Any]"
) -> None:
    transaction = sql.transaction()
    await transaction.start()
    ours = Owner("subject:tester")  # of the token that the client has
    await store.intake.enqueue([NewJob("echo", idempotency_key="held", owner=ours)], connection=sql)
    held = asyncio.ensure_future(api.post("/v1/jobs", json={"type": "echo", "idempotency_key": "held"}))
    await asyncio.sleep(0)
    plain = await asyncio.gather(*(api.post("/v1/jobs", json={"type": "echo"}) for _ in range(20)))
    assert {answer.status_code for answer in plain} == {202}
    assert not held.done()
    assert ((await held).status_code, (await held).json()["code"]) == (409, "idempotency_key_busy")
    await transaction.rollback()
