"""A submitter can make a bounded number of queues, types and tags; names that are in use are good for everybody."""

from collections.abc import AsyncIterator

import asyncpg
import httpx2
import pytest

from tests.api.conftest import SECRET
from tests.factory import Rig
from windlass.config import ApiConfig, AuthConfig, Config, StoreConfig
from windlass.model import Declared, NewJob
from windlass.store.store import Store, open_store

Client = httpx2.AsyncClient
Sql = asyncpg.Connection


@pytest.fixture
def settings(config: StoreConfig) -> Config:
    api = ApiConfig(port=0, unready_s=0, queues_max=3, types_max=2, tags_max=4, unknown_types="accept")
    return Config(store=config, auth=AuthConfig(auth_secret=SECRET), api=api)


@pytest.fixture
async def other_process(settings: Config) -> AsyncIterator[Store]:
    """The store as another API process has it, which knows nothing of what this one has admitted."""
    async with open_store(settings.store) as store:
        yield store


async def submit(api: Client, **fields: object) -> httpx2.Response:
    return await api.post("/v1/jobs", json={"type": "echo", "payload": {}, **fields})


async def refused(api: Client, field: str, **fields: object) -> str:
    answer = await submit(api, **fields)
    problem = answer.json()
    assert (answer.status_code, problem["code"], problem["field"]) == (422, "too_many_names", field)
    return str(problem["detail"])


async def test_a_queue_too_many_is_refused_and_those_in_use_go_on(api: Client, store: Store) -> None:
    for n in range(3):
        assert (await submit(api, queue=f"q{n}")).status_code == 202
    detail = await refused(api, "queue", queue="q3")
    assert "3 (WINDLASS_QUEUES_MAX)" in detail
    assert (await submit(api, queue="q1")).status_code == 202
    assert (await submit(api)).status_code == 202  # the default queue, which nobody made up
    assert sum((await store.views.counts()).values()) == 5


async def test_a_bulk_with_names_too_many_stores_nothing_and_names_the_job(api: Client, store: Store) -> None:
    jobs = [{"type": "echo", "payload": {}, "queue": f"q{n}"} for n in range(9_999)]
    answer = await api.post("/v1/jobs/bulk", json=[{"type": "echo", "payload": {}}, *jobs])
    assert (answer.status_code, answer.json()["code"], answer.json()["field"]) == (
        422,
        "too_many_names",
        "jobs[1].queue",
    )
    assert await store.views.counts() == {}
    assert (await submit(api, queue="q0")).status_code == 202  # the room was not taken


async def test_types_that_nobody_declared_and_tags_are_bounded_too(api: Client) -> None:
    for n in range(2):
        assert (await submit(api, type=f"made-up-{n}")).status_code == 202
    await refused(api, "type", type="made-up-2")
    assert (await submit(api, type="other")).status_code == 202  # declared
    assert (await submit(api, tags=["a", "b", "c"])).status_code == 202
    await refused(api, "tags", tags=["a", "d", "e"])
    assert (await submit(api, tags=["a", "d"])).status_code == 202
    await refused(api, "tags", tags=["e"])


async def test_what_another_process_admitted_is_known(api: Client, other_process: Store) -> None:
    assert await other_process.intake.admit_names("queue", ["x", "y", "z"], most=3) == set()
    assert (await submit(api, queue="y")).status_code == 202
    await refused(api, "queue", queue="q0")


async def test_a_queue_that_a_worker_or_a_type_names_is_never_refused(api: Client, rig: Rig, store: Store) -> None:
    await store.intake.admit_names("queue", ["x", "y", "z"], most=3)
    await rig.worker(queues=["mail"])
    await store.upkeep.declare([Declared("report", queue="reports")])
    assert (await submit(api, queue="mail")).status_code == 202
    assert (await submit(api, type="report")).status_code == 202


async def test_queues_of_programs_that_enqueue_by_themselves_are_in_use(api: Client, store: Store) -> None:
    await store.intake.enqueue([NewJob("echo", queue=f"tenant-{n}", tags=["t"]) for n in range(10)])
    await store.upkeep.keep_names()
    assert (await submit(api, queue="tenant-7", tags=["t"])).status_code == 202
    await refused(api, "queue", queue="tenant-10")


async def test_a_name_that_this_process_has_seen_is_not_asked_for_again(api: Client, store: Store, sql: Sql) -> None:
    assert (await submit(api, queue="q0")).status_code == 202
    await sql.execute("delete from windlass.known_name")
    await store.intake.admit_names("queue", ["x", "y", "z"], most=3)
    assert (await submit(api, queue="q0")).status_code == 202  # whoever asked would be refused


@pytest.mark.parametrize("wrong", [{"queue": "a\0b"}, {"queue": "*"}, {"tags": ["x" * 101]}, {"tags": ["\0"]}])
async def test_a_name_that_is_none_is_refused_as_before(api: Client, wrong: dict[str, object]) -> None:
    for answer in (
        await submit(api, **wrong),
        await api.post("/v1/jobs/bulk", json=[{"type": "echo", "payload": {}, **wrong}]),
    ):
        assert (answer.status_code, answer.json()["code"]) == (422, "invalid_job")
