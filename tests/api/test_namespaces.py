"""Whose idempotency keys and ids a caller uses, over HTTP: their own, unless an admin says otherwise."""

from collections.abc import Callable
from typing import Any
from uuid import UUID

import asyncpg
import httpx2
import pytest

from tests.api.callers import Client, bearer
from tests.api.conftest import Tokens
from windlass.config import ApiConfig, AuthConfig, Config, StoreConfig
from windlass.model import NewJob, declarable
from windlass.store.ids import Ids
from windlass.store.store import Store

Sql = asyncpg.Connection
As = Callable[..., Any]


@pytest.fixture
def submit(http: Client, tokens: Tokens) -> As:
    """Submit a job as some subject that may do nothing else."""

    async def submit_as(subject: str, path: str = "/v1/jobs", key: str | None = None, **job: Any) -> httpx2.Response:
        headers = bearer(tokens("submit", subject=subject)) | ({} if key is None else {"idempotency-key": key})
        return await http.post(path, json={"type": "echo", **job}, headers=headers)

    return submit_as


async def test_the_same_key_of_two_callers_is_two_jobs(submit: As) -> None:
    ann, bob = await submit("user:ann", key="k", payload=1), await submit("user:bob", key="k", payload=2)
    assert (ann.status_code, bob.status_code) == (202, 202)
    assert ann.json()["id"] != bob.json()["id"]
    again = await submit("user:ann", idempotency_key="k", payload=1)
    assert (again.status_code, again.json()["id"]) == (200, ann.json()["id"])
    assert (await submit("user:ann", key="k", payload=2)).json()["code"] == "idempotency_key_reused"


@pytest.mark.parametrize("path", ["/jobs", "/addJob", "/submit_job"])
async def test_the_aliases_keep_callers_apart_as_well(http: Client, submit: As, tokens: Tokens, path: str) -> None:
    body = {"name": "echo", "payload": "x"} if path == "/submit_job" else {"type": "echo"}
    answers = []
    for subject in ("user:ann", "user:bob", "user:ann"):
        headers = bearer(tokens("submit", subject=subject)) | {"idempotency-key": "k"}
        answers.append(await http.post(path, json=body, headers=headers))
    assert [answer.status_code for answer in answers] == [202, 202, 200]
    assert answers[0].headers["location"] == answers[2].headers["location"] != answers[1].headers["location"]


async def test_jobs_of_a_bulk_have_the_keys_of_its_caller(http: Client, submit: As, tokens: Tokens) -> None:
    first = (await submit("user:ann", key="k")).json()["id"]
    jobs = [{"type": "echo", "idempotency_key": "k"}, {"type": "echo"}]
    for subject, duplicates in (("user:ann", 1), ("user:bob", 0), ("user:bob", 1)):
        headers = bearer(tokens("submit", subject=subject))
        told = (await http.post("/v1/jobs/bulk", json=jobs, headers=headers)).json()
        assert told["duplicates"] == duplicates
        assert (told["ids"][0] == first) == (subject == "user:ann")


async def test_an_id_of_another_caller_tells_nothing_but_that_it_cannot_be_used(store: Store, submit: As) -> None:
    (job_id,) = map(str, Ids(store.postgres.now_ms).make(1))
    assert (await submit("user:ann", id=job_id, payload={"amount": 7})).status_code == 202
    assert (await submit("user:ann", id=job_id, payload={"amount": 7})).status_code == 200
    told = []
    for payload in ({"amount": 7}, {"amount": 8}):
        answer = await submit("user:bob", id=job_id, payload=payload)
        told.append((answer.status_code, answer.json() | {"request_id": None}))
    assert told[0] == told[1]
    assert (told[0][0], told[0][1]["code"]) == (409, "id_taken")
    # The same as for an own id with another body.
    own = (await submit("user:ann", id=job_id, payload={"amount": 8})).json() | {"request_id": None}
    assert own == told[0][1]


async def test_an_id_that_the_store_has_made_cannot_be_repeated(submit: As) -> None:
    made = (await submit("user:ann")).json()["id"]
    for subject in ("user:ann", "user:bob"):
        assert (await submit(subject, id=made)).json()["code"] == "id_taken"


async def test_subjects_of_one_namespace_share_keys_and_ids(
    api: Client, http: Client, store: Store, submit: As
) -> None:
    keys = [
        (await api.post("/v1/keys", json={"name": name, "scopes": ["submit"], "namespace": "team"})).json()
        for name in ("old", "new")
    ]
    old, new = (f"key:{key['id']}" for key in keys)
    first = await submit(old, key="k")
    assert (await submit(new, key="k")).json()["id"] == first.json()["id"]
    (job_id,) = map(str, Ids(store.postgres.now_ms).make(1))
    assert [(await submit(who, id=job_id)).status_code for who in (old, new)] == [202, 200]
    # A subject that happens to have the name of a namespace is not in it.
    assert (await submit("team", key="k")).status_code == 202
    await api.put(f"/v1/keys/{keys[1]['id']}/namespace", json={"namespace": None})
    assert (await submit(new, key="k")).status_code == 202


async def test_the_default_namespace_is_that_of_the_application(api: Client, store: Store, submit: As) -> None:
    key = (await api.post("/v1/keys", json={"name": "a", "scopes": ["submit"], "namespace": "default"})).json()
    (made,) = await store.intake.enqueue([NewJob("echo", idempotency_key="k", inherited=declarable)])
    repeated = await submit(f"key:{key['id']}", key="k")
    assert (repeated.status_code, UUID(repeated.json()["id"])) == (200, made.id)
    assert (await submit("user:ann", key="k")).status_code == 202


@pytest.mark.parametrize("name", ["", "a:b", "a b", "user:ann", "x" * 101, "a\n", "-a"])
async def test_a_namespace_that_cannot_be_is_refused(api: Client, name: str) -> None:
    key = {"name": "a", "scopes": ["submit"], "namespace": name}
    assert (await api.post("/v1/keys", json=key)).status_code == 422


class TestWithoutAuthentication:
    @pytest.fixture
    def settings(self, config: StoreConfig) -> Config:
        return Config(store=config, auth=AuthConfig(auth="off"), api=ApiConfig(port=0, unknown_type_grace_s=0))

    async def test_everyone_uses_the_keys_of_the_application(self, http: Client, store: Store) -> None:
        (made,) = await store.intake.enqueue([NewJob("echo", idempotency_key="k", inherited=declarable)])
        repeated = await http.post("/v1/jobs", json={"type": "echo"}, headers={"idempotency-key": "k"})
        assert (repeated.status_code, UUID(repeated.json()["id"])) == (200, made.id)
