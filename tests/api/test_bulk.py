"""Many jobs at once: submitted, cancelled, retried, made ready."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import Any
from uuid import uuid4

import httpx2

from tests.api.conftest import Tokens
from tests.factory import Rig
from windlass.api.app import build
from windlass.api.catalogue import Catalogue
from windlass.api.parts import Parts
from windlass.api.submitting import submit_many
from windlass.config import ApiConfig
from windlass.model import Status
from windlass.store.protocol import Found, JobQuery
from windlass.store.store import Store
from windlass.store.views import Views
from windlass.wire import Submission

Client = httpx2.AsyncClient
JSON = {"content-type": "application/json"}
NDJSON = {"content-type": "application/x-ndjson"}


async def test_many_jobs_are_stored_in_order(api: Client, store: Store) -> None:
    answer = await api.post("/v1/jobs/bulk", json=[{"type": "echo", "payload": n} for n in range(1200)])
    assert answer.status_code == 202
    ids = answer.json()["ids"]
    assert (len(set(ids)), answer.json()["duplicates"], ids) == (1200, 0, sorted(ids))
    assert sum((await store.views.counts()).values()) == 1200


async def test_one_document_a_line_is_the_same(api: Client, store: Store) -> None:
    lines = "\n".join(json.dumps({"type": "echo", "payload": n}) for n in range(3)) + "\n\n"
    answer = await api.post("/v1/jobs/bulk", content=lines, headers=NDJSON)
    assert (answer.status_code, len(answer.json()["ids"])) == (202, 3)


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"type": "echo", "priority": 101}, "jobs[2].priority"),
    ({"type": "echo", "tags": ["ok", 5]}, "jobs[2].tags[1]"),
    ({"type": "echo", "retry": {"factor": 0}}, "jobs[2].retry.factor"),
    ({"type": "echo", "payload": {"a": ["\x00"]}}, "jobs[2].payload.a[0]"),
    ({"type": "echo", "tags": ["a", "a"]}, "jobs[2].tags"),
    ({"type": "nobody"}, "jobs[2].type"),
    ({"payload": 1}, "jobs[2].type"),
    ({"type": "echo", "colour": 1}, "jobs[2].colour"),
    ({"type": "echo", "delay_s": 1, "scheduled_at": "2099-01-01T00:00:00Z"}, "jobs[2].delay_s"),
]


async def test_one_wrong_job_is_named_and_none_is_stored(api: Client, store: Store) -> None:
    for job, field in WRONG:
        jobs = [{"type": "echo"}, {"type": "other"}, job, {"type": "echo"}]
        array = await api.post("/v1/jobs/bulk", json=jobs)
        lines = await api.post("/v1/jobs/bulk", content="\n".join(map(json.dumps, jobs)), headers=NDJSON)
        for answer in (array, lines):
            assert (answer.status_code, answer.json().get("field")) == (422, field), answer.text
    assert await store.views.counts() == {}


async def test_a_key_reused_among_many_is_named(api: Client) -> None:
    await api.post("/v1/jobs", json={"type": "echo", "payload": 1, "idempotency_key": "k"})
    jobs = [{"type": "echo"}, {"type": "echo", "payload": 2, "idempotency_key": "k"}]
    answer = await api.post("/v1/jobs/bulk", json=jobs)
    assert (answer.status_code, answer.json()["field"]) == (422, "jobs[1].idempotency_key")


async def test_repeated_keys_are_counted_as_duplicates(api: Client) -> None:
    jobs = [{"type": "echo", "idempotency_key": f"k{n}"} for n in range(3)]
    first = await api.post("/v1/jobs/bulk", json=jobs)
    again = await api.post("/v1/jobs/bulk", json=jobs)
    assert again.json() == {"ids": first.json()["ids"], "duplicates": 3, "payloads_unchecked": 3}


async def test_too_many_and_none_are_refused(api: Client) -> None:
    for count in (0, 10_001):
        for between, around, headers in ((",", "[{}]", JSON), ("\n", "{}", NDJSON)):
            text = between.join(['{"type":"echo"}'] * count)
            answer = await api.post("/v1/jobs/bulk", content=around.replace("{}", text), headers=headers)
            assert (answer.status_code, answer.json()["field"]) == (422, "jobs"), answer.text


async def test_one_key_for_many_is_refused_rather_than_ignored(api: Client) -> None:
    answer = await api.post("/v1/jobs/bulk", json=[{"type": "echo"}], headers={"idempotency-key": "k"})
    assert (answer.status_code, answer.json()["field"]) == (422, "Idempotency-Key")


# Act on many. -------------------------------------------------------------------------------------------------------


async def test_a_preview_counts_and_does_nothing(api: Client, rig: Rig) -> None:
    ids = await rig.enqueue(5)
    answer = await api.post("/v1/jobs/cancel", json={"filter": {"type": "echo"}, "preview": True})
    told = answer.json()
    assert (told["matched"], told["done"], told["preview"]) == (5, 0, True)
    assert set(told["sample"]) == set(map(str, ids))
    assert await rig.status(ids[0]) is Status.READY
    assert await rig.store.accounts.audit() == []


async def test_a_filter_cancels_what_it_finds(api: Client, rig: Rig) -> None:
    ids = await rig.enqueue(5, tags=["old"])
    (other,) = await rig.enqueue()
    told = (await api.post("/v1/jobs/cancel", json={"filter": {"tag": "old"}, "reason": "too old"})).json()
    assert (told["matched"], told["done"], told["refused"]) == (5, 5, [])
    assert {await rig.status(each) for each in ids} == {Status.CANCELLED}
    assert await rig.status(other) is Status.READY
    (entry,) = await rig.store.accounts.audit()
    assert (entry.action, json.loads(entry.detail or "")["done"]) == ("jobs.cancel", 5)


class _Meanwhile(Views):
    """Views between whose look and what is then done something happens."""

    def __init__(self, store: Store, happens: Callable[[], Awaitable[object]]) -> None:
        super().__init__(store.postgres)
        self._happens = happens

    async def ids(self, query: JobQuery, *, limit: int = 10_000) -> Found:
        found = await super().ids(query, limit=limit)
        await self._happens()
        return found


async def test_what_has_begun_since_it_was_found_waiting_is_not_cancelled(
    parts: Parts, tokens: Tokens, rig: Rig, store: Store
) -> None:
    begun, _ = sorted(await rig.enqueue(2))
    worker = await rig.worker(threads=1)
    app = build(replace(parts, views=_Meanwhile(store, worker.claim)))
    transport = httpx2.ASGITransport(app=app)
    async with Client(transport=transport, base_url="http://localhost", headers=tokens.headers("operate")) as client:
        answer = await client.post("/v1/jobs/cancel", json={"filter": {"status": ["ready"]}})
    told = answer.json()
    assert (told["matched"], told["done"], [each["id"] for each in told["refused"]]) == (2, 1, [str(begun)])
    assert not (await store.views.job(begun)).cancel_requested


async def test_pages_of_an_action_end(api: Client, rig: Rig) -> None:
    await rig.enqueue(5)
    body: dict[str, Any] = {"filter": {}, "limit": 2}
    done = []
    while True:
        told = (await api.post("/v1/jobs/cancel", json=body)).json()
        done.append(told["done"])
        if told["next_cursor"] is None:
            break
        body["cursor"] = told["next_cursor"]
    assert sum(done) == 5


async def test_ids_that_cannot_be_acted_on_are_named(api: Client, rig: Rig) -> None:
    (ready,) = await rig.enqueue()
    failed = await rig.job(Status.FAILED)
    unknown = uuid4()
    told = (await api.post("/v1/jobs/retry", json={"ids": [str(each) for each in (ready, failed, unknown)]})).json()
    assert (told["matched"], told["done"]) == (3, 1)
    assert {each["id"]: each["code"] for each in told["refused"]} == {
        str(ready): "not_possible",
        str(unknown): "job_not_found",
    }
    assert await rig.status(failed) is Status.READY


async def test_scheduled_jobs_are_made_ready(api: Client, rig: Rig) -> None:
    await rig.enqueue(3, delay_s=3600)
    told = (await api.post("/v1/jobs/run-now", json={"filter": {"status": ["scheduled"]}})).json()
    assert told["done"] == 3


async def test_an_action_on_nothing_in_particular_is_refused(api: Client) -> None:
    bodies: list[dict[str, Any]] = [
        {},
        {"ids": [], "filter": {}},
        {"filter": {}, "limit": 10_001},
        {"ids": [], "cursor": "x"},
        {"ids": ["x"]},
    ]
    for body in bodies:
        assert (await api.post("/v1/jobs/cancel", json=body)).status_code == 422


async def test_a_reason_is_for_cancelling(api: Client) -> None:
    answer = await api.post("/v1/jobs/retry", json={"filter": {}, "reason": "x"})
    assert (answer.status_code, answer.json()["field"]) == (422, "reason")


class Looking(Catalogue):
    """Counts how often it looks at the store."""

    looks = 0

    async def _read(self) -> None:
        self.looks += 1
        await super()._read()


async def _arriving(jobs: list[Submission]) -> AsyncIterator[tuple[list[Submission], int]]:
    for start in range(0, len(jobs), 300):
        yield jobs[start : start + 300], 10_000


async def test_a_thousand_unknown_types_cost_one_look(parts: Parts) -> None:
    catalogue = Looking(parts.views, ApiConfig(unknown_types="accept"))
    jobs = [Submission(type=f"strange-{n}") for n in range(1_000)]
    stored, unchecked = await submit_many(replace(parts, catalogue=catalogue), _arriving(jobs), subject="a")
    assert (len(stored), unchecked) == (1_000, 1_000)
    assert catalogue.looks <= 2
