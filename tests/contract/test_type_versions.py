"""Versions of a type: which one counts as newer, and when a job that waits for one goes back in line."""

from uuid import UUID, uuid4

from tests.factory import WorkerRig
from windlass.bus.postgres import PostgresWaker
from windlass.leader import chores
from windlass.lifecycle import Held
from windlass.model import Declared, NewJob, NewWorker, Status, newer_worker_reason
from windlass.store.store import Store


def version(*fields: str) -> Declared:
    return Declared("send", fields=fields)


async def working(store: Store, declared: Declared) -> UUID:
    worker_id = uuid4()
    new = NewWorker(worker_id, "w", 1, ["default"], [declared.name], None, [declared.digest])
    await store.upkeep.register(new, lease_ttl_s=600)
    await store.upkeep.declare([declared])
    return worker_id


async def test_another_version_counts_while_it_lives_or_if_it_came_later(store: Store) -> None:
    claims = store.claims()
    v1, v2, anything = version("to"), version("to", "note"), Declared("send", schema="{}", fields=None)

    async def taken(own: Declared, *fields: str) -> bool:
        return await claims.taken_by_other_version("send", own.digest, fields)

    await working(store, v1)
    assert not await taken(v1, "note"), "nobody knows it"
    await store.upkeep.add_versions([v2])
    assert await taken(v1, "note"), "a producer has declared a version that does"
    assert not await taken(v1, "note", "colour")
    old = await working(store, version("to", "old"))
    assert await taken(v2, "old"), "one that lives"
    await store.upkeep.bury([old], "left")
    assert await taken(v2, "old"), "one that was declared later"
    assert not await taken(version("to", "old"), "note"), "one that was declared before, and that nobody runs"
    await store.upkeep.add_versions([anything])
    assert await taken(v1, "whatever")


async def held_job(store: Store, worker_id: UUID, *fields: str) -> UUID:
    (made,) = await store.intake.enqueue([NewJob("send", {})])
    worker = WorkerRig(worker_id, store.claims(), 1, ["default"], ["send"])
    (lease,) = await worker.claim()
    await worker.settle(lease, Held(newer_worker_reason(fields)))
    assert (await store.views.job(made.id)).status is Status.HELD
    return made.id


async def test_a_held_job_goes_back_when_a_worker_is_there_that_knows_its_fields(store: Store) -> None:
    waker = PostgresWaker(store.hints)
    admit = chores.AdmitNewer(store.upkeep, waker)
    v1 = await working(store, version("to"))
    job_id = await held_job(store, v1, "colour", "note")

    async def status() -> Status:
        await admit()
        return (await store.views.job(job_id)).status

    assert await status() is Status.HELD
    half = await working(store, version("to", "note"))
    assert await status() is Status.HELD, "two versions that do not know it do not hand it to each other"
    await store.upkeep.add_versions([version("to", "note", "colour")])
    assert await status() is Status.HELD, "declared, and nobody lives who could run it"
    whole = await working(store, version("to", "note", "colour"))
    assert await status() is Status.READY
    await store.upkeep.bury([half, whole], "left")
    await waker.aclose()


async def test_while_both_versions_live_a_job_is_given_back_every_few_seconds_only(store: Store) -> None:
    waker = PostgresWaker(store.hints)
    admit = chores.AdmitNewer(store.upkeep, waker)
    v1 = await working(store, version("to"))
    v2 = await working(store, version("to", "note"))
    first = await held_job(store, v1, "note")
    await admit()
    assert (await store.views.job(first)).status is Status.READY
    await store.intake.cancel(first)
    again = await held_job(store, v1, "note")
    await admit()
    assert (await store.views.job(again)).status is Status.HELD, "tried a moment ago"
    await store.upkeep.drain([v1])
    await admit()
    assert (await store.views.job(again)).status is Status.READY, "no other would claim it"
    await store.upkeep.bury([v2], "left")
    await waker.aclose()


async def test_a_reason_names_whole_fields_only(store: Store) -> None:
    fields = [f"field_{n:03}" for n in range(60)]
    worker_id = await working(store, version("to"))
    job_id = await held_job(store, worker_id, *fields)
    reason = (await store.views.job(job_id)).reason or ""
    named = reason.removeprefix("needs newer worker: ").split(", ")
    assert named == fields[: len(named)]
    assert len(named) > 10
