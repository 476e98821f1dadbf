"""An idempotency key or an id belongs to its namespace: nobody takes or finds out another's."""

from typing import Any

import asyncpg
import pytest

from tests.shortcuts import Behind, jobs_stored, learnt
from windlass.errors import IdTaken, KeyReused
from windlass.model import Enqueued, NewJob, Owner
from windlass.store.ids import Ids
from windlass.store.store import Store

Sql = asyncpg.Connection

ANN, BOB = Owner("subject:user:ann"), Owner("subject:user:bob")


def keyed(key: str, owner: Owner | None, payload: Any = None, **fields: Any) -> NewJob:
    return NewJob("echo", payload, idempotency_key=key, owner=owner, **fields)


async def test_the_same_key_of_two_namespaces_is_two_jobs(store: Store, sql: Sql) -> None:
    batch = [keyed("k", ANN, 1), keyed("k", BOB, 2), keyed("k", None, 3), keyed("k", ANN, 1), keyed("k", None, 3)]
    first = await store.intake.enqueue(batch)
    assert [one.duplicate for one in first] == [False, False, False, True, True]
    assert await jobs_stored(sql) == 3
    again = await store.intake.enqueue_each(batch)
    assert again == [Enqueued(one.id, duplicate=True) for one in first]
    with pytest.raises(KeyReused, match=r"key 'k' was"):  # the key as the caller knows it
        await store.intake.enqueue([keyed("k", BOB, 1)])
    assert [await store.views.is_key_taken(owner, "k") for owner in (ANN.namespace, "shop", None)] == [
        True,
        False,
        True,
    ]


async def test_the_job_shows_its_key_as_it_was_given(store: Store) -> None:
    (made,) = await store.intake.enqueue([keyed("k", ANN)])
    assert (await store.views.job(made.id)).idempotency_key == "k"


async def test_a_key_stored_before_there_were_namespaces_is_found_by_whoever_repeats_it(store: Store, sql: Sql) -> None:
    (old,) = await store.intake.enqueue([keyed("k", None, 1)])
    await sql.execute("update windlass.idempotency set namespaced = null")  # as code without namespaces stores it
    for owner in (ANN, BOB, None):
        assert await store.intake.enqueue([keyed("k", owner, 1)]) == [Enqueued(old.id, duplicate=True)]
        with pytest.raises(KeyReused):
            await store.intake.enqueue([keyed("k", owner, 2)])
        assert await store.views.is_key_taken(owner and owner.namespace, "k")
    assert await jobs_stored(sql) == 1


async def test_a_key_of_the_application_is_not_found_by_others(store: Store, sql: Sql) -> None:
    await store.intake.enqueue([keyed("k", None, 1)])
    (made,) = await store.intake.enqueue([keyed("k", ANN, 2)])
    assert not made.duplicate
    assert await jobs_stored(sql) == 2


async def test_an_id_of_another_namespace_is_taken_whatever_the_body(store: Store, sql: Sql) -> None:
    for owner, others in ((ANN, (BOB, None)), (None, (ANN, BOB))):
        (job_id,) = Ids(store.postgres.now_ms).make(1)
        job = NewJob("echo", {"secret": 1}, id=job_id, owner=owner)
        assert await store.intake.enqueue([job]) == [
            Enqueued(job_id, duplicate=False, created_at=await created(sql, job_id))
        ]
        assert await store.intake.enqueue([job]) == [Enqueued(job_id, duplicate=True)]
        said = set()
        for other in others:
            for payload in ({"secret": 1}, {"secret": 2}):
                with pytest.raises(IdTaken) as refused:
                    await store.intake.enqueue([job._replace(payload=payload, owner=other)])
                said.add(str(refused.value))
        assert len(said) == 1


async def test_an_id_that_was_made_here_is_nobodys_to_repeat(store: Store) -> None:
    (made,) = await store.intake.enqueue([NewJob("echo")])
    with pytest.raises(IdTaken):
        await store.intake.enqueue([NewJob("echo", id=made.id, owner=ANN)])


@pytest.mark.usefixtures("emptied")
async def test_redis_remembers_each_namespace_apart(door: Behind, sql: Sql, valkey: Any) -> None:
    owners = (ANN, BOB, None)
    first = [(await door.intake.enqueue([keyed("k", owner)]))[0] for owner in owners]
    await learnt(valkey, 3)
    assert len({one.id for one in first}) == 3
    again = [(await door.intake.enqueue([keyed("k", owner)]))[0] for owner in owners]
    assert again == [Enqueued(one.id, duplicate=True) for one in first]
    assert await jobs_stored(sql) == 3


async def created(sql: Sql, job_id: Any) -> Any:
    return await sql.fetchval("select created_at from windlass.job where id = $1", job_id)
