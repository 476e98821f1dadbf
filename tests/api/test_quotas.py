"""A submitter with a quota gets no further than that, is told so, and costs the others nothing."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import httpx2
import pytest
from starlette.types import ASGIApp

from tests.api.callers import Client, bearer
from tests.api.conftest import Tokens
from tests.eventually import aeventually
from windlass.api import gate
from windlass.api.app import build, opened
from windlass.api.parts import Parts
from windlass.config import Config
from windlass.model import Declared
from windlass.store.store import Store

Sql = asyncpg.Connection


class Hands:
    """A clock that a test moves."""

    now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock(parts: Parts) -> Hands:
    parts.gate.quotas.clock = hands = Hands()
    return hands


class Shop:
    """A program with an API key that may only submit."""

    def __init__(self, api: Client, http: Client, key: dict[str, Any]) -> None:
        self._api, self._http = api, http
        self.id = key["id"]
        self.subject = f"key:{key['id']}"
        self._key = key["key"]
        self._token = ""

    async def limit(self, **quota: Any) -> None:
        assert (await self._api.put(f"/v1/keys/{self.id}/quota", json=quota)).status_code == 200

    async def ask(self, method: str, path: str, **sent: Any) -> httpx2.Response:
        if not self._token:
            got = await self._http.post("/v1/auth/token", json={"api_key": self._key})
            self._token = got.json()["access_token"]
        return await self._http.request(method, path, **sent, headers=bearer(self._token) | sent.pop("headers", {}))

    async def submit(self, **job: Any) -> httpx2.Response:
        return await self.ask("POST", "/v1/jobs", json={"type": "echo", **job})

    async def submit_many(self, *jobs: dict[str, Any]) -> httpx2.Response:
        return await self.ask("POST", "/v1/jobs/bulk", json=[{"type": "echo", **job} for job in jobs])


async def made(api: Client, http: Client, name: str = "shop", **said: Any) -> Shop:
    answer = await api.post("/v1/keys", json={"name": name, "scopes": ["submit"], **said})
    assert answer.status_code == 201, answer.text
    return Shop(api, http, answer.json())


@pytest.fixture
async def shop(api: Client, http: Client) -> Shop:
    return await made(api, http)


def refused(answer: httpx2.Response) -> tuple[Any, ...]:
    told = answer.json()
    return answer.status_code, told["code"], told.get("quota"), told.get("limit"), told.get("current")


async def stored(sql: Sql) -> int:
    count: int = await sql.fetchval("select count(*) from windlass.job")
    return count


# One job. -----------------------------------------------------------------------------------------------------------


async def test_a_job_beyond_the_widest_or_longest_is_refused_for_good(shop: Shop, store: Store, sql: Sql) -> None:
    await shop.limit(thread_demand=4, timeout_s=60)
    wide = await shop.submit(thread_demand=5, timeout_s=60)
    assert refused(wide) == (422, "beyond_quota", "thread_demand", 4, 5)
    assert wide.json()["field"] == "thread_demand"
    assert "retry-after" not in wide.headers
    assert refused(await shop.submit(timeout_s=61)) == (422, "beyond_quota", "timeout_s", 60, 61)
    many = await shop.submit_many({"timeout_s": 1}, {"timeout_s": 1, "thread_demand": 9})
    assert refused(many) == (422, "beyond_quota", "thread_demand", 4, 9)
    assert many.json()["field"] == "jobs[1].thread_demand"
    # What the caller leaves out is as its type declares it, and may be too much as well.
    await store.upkeep.declare([Declared("slow", timeout_s=3600)])
    assert refused(await shop.submit(type="slow")) == (422, "beyond_quota", "timeout_s", 60, 3600)
    assert await stored(sql) == 0
    assert (await shop.submit(thread_demand=4, timeout_s=60)).status_code == 202


async def test_what_could_never_be_taken_is_refused_for_good(shop: Shop, sql: Sql) -> None:
    await shop.limit(waiting=2, threads=8)
    assert refused(await shop.submit_many({}, {}, {})) == (422, "beyond_quota", "waiting", 2, 3)
    assert refused(await shop.submit(thread_demand=9)) == (422, "beyond_quota", "threads", 8, 9)
    assert await stored(sql) == 0


# What waits and runs. -----------------------------------------------------------------------------------------------


async def test_waiting_jobs_are_bounded_and_those_that_finish_make_room(
    shop: Shop, clock: Hands, store: Store, sql: Sql
) -> None:
    await shop.limit(waiting=3)
    ids = (await shop.submit_many({}, {"delay_s": 60})).json()["ids"]
    assert (await shop.submit()).status_code == 202
    for answer in (await shop.submit(), await shop.submit_many({}, {}), await shop.submit(delay_s=60)):
        assert refused(answer) == (429, "quota_exceeded", "waiting", 3, 3)
        assert answer.headers["retry-after"] == "1"
    await store.intake.cancel_many(ids)
    clock.now_s += 1
    assert [(await shop.submit()).status_code for _ in range(3)] == [202, 202, 429]
    assert await stored(sql) == 5


async def test_threads_of_unfinished_jobs_are_bounded_together(shop: Shop, clock: Hands) -> None:
    await shop.limit(threads=10)
    assert (await shop.submit(thread_demand=7)).status_code == 202
    assert refused(await shop.submit(thread_demand=4)) == (429, "quota_exceeded", "threads", 10, 7)
    assert (await shop.submit(thread_demand=3)).status_code == 202
    clock.now_s += 1
    assert refused(await shop.submit()) == (429, "quota_exceeded", "threads", 10, 10)


async def test_of_a_hundred_submissions_at_once_as_many_are_taken_as_the_quota_allows(
    shop: Shop, clock: Hands, sql: Sql
) -> None:
    await shop.limit(waiting=10)
    for round_ in (1, 2):
        answers = await asyncio.gather(*(shop.submit() for _ in range(50)))
        assert sorted({answer.status_code for answer in answers}) == ([202, 429] if round_ == 1 else [429])
        clock.now_s += 1
    assert await stored(sql) == 10


async def test_what_was_not_stored_and_what_was_there_before_does_not_count(shop: Shop, clock: Hands) -> None:
    await shop.limit(waiting=3)
    for _ in range(5):
        assert (await shop.submit(idempotency_key="k")).status_code in {200, 202}
        assert (await shop.submit(idempotency_key="k", priority=1)).status_code == 422
        assert (await shop.submit(payload="\0")).status_code == 422
    assert [(await shop.submit()).status_code for _ in range(3)] == [202, 202, 429]
    clock.now_s += 1
    assert (await shop.submit()).status_code == 429


async def test_every_way_to_submit_counts(shop: Shop, clock: Hands) -> None:
    await shop.limit(waiting=4)
    bodies = {
        "/v1/jobs": {"type": "echo"},
        "/jobs": {"type": "echo"},
        "/submit_job": {"name": "echo", "payload": "x"},
        "/addJob": {"type": "echo"},
    }
    for path, body in bodies.items():
        assert (await shop.ask("POST", path, json=body)).status_code == 202
    for path, body in bodies.items():
        assert refused(await shop.ask("POST", path, json=body)) == (429, "quota_exceeded", "waiting", 4, 4)
    assert refused(await shop.submit_many({})) == (429, "quota_exceeded", "waiting", 4, 4)


# Submissions a second. ----------------------------------------------------------------------------------------------


async def test_submissions_a_second_are_bounded(shop: Shop, clock: Hands) -> None:
    await shop.limit(submissions_per_s=5)
    assert [(await shop.submit()).status_code for _ in range(6)] == [202] * 5 + [429]
    early = await shop.submit()
    assert refused(early) == (429, "quota_exceeded", "submissions_per_s", 5, 5)
    assert early.headers["retry-after"] == "1"
    clock.now_s += 0.4
    assert [(await shop.submit()).status_code for _ in range(3)] == [202, 202, 429]


async def test_a_bulk_counts_each_of_its_jobs(shop: Shop, clock: Hands) -> None:
    await shop.limit(submissions_per_s=10)
    assert (await shop.submit_many(*[{}] * 100)).status_code == 202
    late = await shop.submit()
    assert refused(late) == (429, "quota_exceeded", "submissions_per_s", 10, 100)
    clock.now_s += 9
    assert (await shop.submit()).status_code == 429
    clock.now_s += 0.2
    assert (await shop.submit()).status_code == 202


async def test_less_than_one_submission_a_second_can_be_allowed(shop: Shop, clock: Hands) -> None:
    await shop.limit(submissions_per_s=0.1)
    assert [(await shop.submit()).status_code for _ in range(2)] == [202, 429]
    assert (await shop.submit()).headers["retry-after"] == "10"
    clock.now_s += 10
    assert [(await shop.submit()).status_code for _ in range(2)] == [202, 429]


# Who has one. -------------------------------------------------------------------------------------------------------


async def test_others_have_no_quota_and_nothing_is_written_for_them(
    api: Client, http: Client, shop: Shop, sql: Sql
) -> None:
    await shop.limit(waiting=0)
    other = await made(api, http, "other")
    assert (await shop.submit()).status_code == 422
    assert [(await other.submit(thread_demand=64)).status_code for _ in range(5)] == [202] * 5
    assert (await other.submit_many({}, {})).status_code == 202
    assert await sql.fetchval("select count(*) from windlass.charge") == 0
    assert await sql.fetchval("select count(*) from windlass.job where namespace is not null") == 0


async def test_a_key_and_a_user_can_be_made_with_their_quota(api: Client, http: Client, clock: Hands) -> None:
    quota = {"waiting": 1, "submissions_per_s": 7}
    shop = await made(api, http, quota=quota, namespace="team")
    assert [(await shop.submit()).status_code for _ in range(2)] == [202, 429]
    user = {"name": "ann", "password": "correct horse", "scopes": ["submit"], "quota": quota}
    assert (await api.post("/v1/users", json=user)).status_code == 201
    whole = {"threads": None, "thread_demand": None, "timeout_s": None} | quota
    (ann,) = (await api.get("/v1/users")).json()["users"]
    assert (ann["quota"], ann["namespace"]) == (whole, None)
    (key,) = (await api.get("/v1/keys")).json()["keys"]
    assert (key["quota"], key["namespace"]) == (whole, "team")
    got = await http.post("/v1/auth/token", json={"username": "ann", "password": "correct horse"})
    token = bearer(got.json()["access_token"])
    answers = [await http.post("/v1/jobs", json={"type": "echo"}, headers=token) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [202, 429]
    assert (await api.put("/v1/users/ann/quota", json={})).json()["quota"] is None
    assert (await http.post("/v1/jobs", json={"type": "echo"}, headers=token)).status_code == 202


async def test_whoever_has_a_quota_can_look_at_it(shop: Shop, clock: Hands) -> None:
    assert (await shop.ask("GET", "/v1/auth/me")).json()["quotas"] == []
    await shop.limit(waiting=5, threads=9, timeout_s=3600)
    await shop.submit(thread_demand=2)
    assert (await shop.ask("GET", "/v1/auth/me")).json()["quotas"] == [
        {"quota": "waiting", "limit": 5, "current": 1},
        {"quota": "threads", "limit": 9, "current": 2},
        {"quota": "timeout_s", "limit": 3600, "current": None},
    ]


async def test_explain_shows_the_quotas_that_a_job_counts_against(api: Client, shop: Shop) -> None:
    free = (await shop.submit()).json()["id"]
    await shop.limit(waiting=5, thread_demand=2)
    counted = [(await shop.submit()).json()["id"] for _ in range(2)]
    assert (await api.get(f"/v1/jobs/{free}/explain")).json()["submitter"] is None
    quotas = [
        {"quota": "waiting", "limit": 5, "current": 2},
        {"quota": "thread_demand", "limit": 2, "current": None},
    ]
    told = (await api.get(f"/v1/jobs/{counted[0]}/explain")).json()
    assert told["submitter"] == {"subject": shop.subject, "quotas": quotas}


async def test_changes_of_quotas_are_for_admins_and_written_down(api: Client, shop: Shop) -> None:
    for path in (f"/v1/keys/{shop.id}/quota", f"/v1/keys/{shop.id}/namespace"):
        assert (await shop.ask("PUT", path, json={"namespace": "x"} if "name" in path else {})).status_code == 403
    await shop.limit(waiting=1)
    assert (await api.put(f"/v1/keys/{shop.id}/namespace", json={"namespace": "team"})).json()["quota"]["waiting"] == 1
    noted = [(row["action"], row["detail"]) for row in (await api.get("/v1/audit")).json()["entries"]]
    assert noted[:2] == [("key.namespace", {"namespace": "team"}), ("key.quota", {"quota": {"waiting": 1}})]


@pytest.mark.parametrize(
    "wrong",
    [{"waiting": -1}, {"threads": 1.5}, {"thread_demand": 0}, {"timeout_s": 0}, {"submissions_per_s": 0},
     {"waiting": "1"}, {"running": 1}],
)  # fmt: skip
async def test_a_quota_that_cannot_be_is_refused(api: Client, shop: Shop, wrong: dict[str, Any]) -> None:
    assert (await api.put(f"/v1/keys/{shop.id}/quota", json=wrong)).status_code == 422
    assert (await api.get("/v1/keys")).json()["keys"][0]["quota"] is None


async def test_a_quota_of_nobody_is_not_set(api: Client) -> None:
    for path in ("/v1/users/ann", "/v1/keys/0198c0de-0000-7000-8000-000000000000", "/v1/keys/x"):
        assert (await api.put(f"{path}/quota", json={"waiting": 1})).status_code == 404
        assert (await api.put(f"{path}/namespace", json={"namespace": "x"})).status_code == 404


# Several API processes. ---------------------------------------------------------------------------------------------


@pytest.fixture
async def second(
    store: Store, settings: Config, parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[ASGIApp]:
    """Another API on the same database, that reads quotas more often than it would."""
    monkeypatch.setattr(gate, "_every_s", 0.02)
    async with opened(store.intake, store.views, store.accounts, settings) as others:
        others.gate.quotas.clock = parts.gate.quotas.clock
        yield build(others)


async def test_a_quota_holds_with_another_api_process_within_seconds(
    shop: Shop, clock: Hands, second: ASGIApp, tokens: Tokens
) -> None:
    transport = httpx2.ASGITransport(app=second, raise_app_exceptions=True)
    headers = bearer(tokens("submit", subject=shop.subject))
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost", headers=headers) as there:

        async def submit() -> httpx2.Response:
            return await there.post("/v1/jobs", json={"type": "echo"})

        assert (await submit()).status_code == 202
        await shop.limit(waiting=3)

        async def known() -> bool:
            return bool((await there.get("/v1/auth/me")).json()["quotas"])

        await aeventually(known, 30)
        assert [(await shop.submit()).status_code for _ in range(3)] == [202] * 3
        # The job that was there before the quota is not counted; those of the other process are, with the next count.
        clock.now_s += 1
        assert refused(await submit()) == (429, "quota_exceeded", "waiting", 3, 3)
