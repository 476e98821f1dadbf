"""Dead letters over HTTP: listed, grouped by kind of error, and replayed, each only while it is failed."""

import asyncio
import json
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import httpx2
import pytest

from tests.api.conftest import Tokens
from tests.factory import Rig
from windlass.lifecycle import Completed, Failed
from windlass.model import Error, Status
from windlass.store.store import Store


async def failed(rig: Rig, count: int, error: Error, **fields: Any) -> list[UUID]:
    """Jobs that failed for good, newest first as they are listed."""
    ids = await rig.enqueue(count, **fields)
    worker = await rig.worker(threads=count, queues=[fields.get("queue", "default")])
    for lease in await worker.claim():
        await worker.settle(lease, Failed(error, final=True))
    return ids[::-1]


def ids(answer: httpx2.Response) -> list[UUID]:
    return [UUID(job["id"]) for job in answer.json()["jobs"]]


async def test_only_failed_jobs_are_dead_letters_and_each_tells_its_error(api: httpx2.AsyncClient, rig: Rig) -> None:
    for status in Status:
        await rig.job(status)
    (letter,) = (await api.get("/v1/dead-letters")).json()["jobs"]
    assert (letter["status"], letter["error"]["type"], letter["error"]["message"]) == ("failed", "ValueError", "no")


async def test_pages_lead_through_all_of_them(api: httpx2.AsyncClient, rig: Rig) -> None:
    expected = await failed(rig, 7, Error("E", "x"))
    seen: list[UUID] = []
    path: str | None = "/v1/dead-letters?limit=3&type=echo"
    while path:
        answer = await api.get(path)
        seen += ids(answer)
        path = answer.links["next"]["url"] if "next" in answer.links else None
    assert seen == expected


async def test_filters_and_the_fingerprint_of_a_group_narrow_the_list(api: httpx2.AsyncClient, rig: Rig) -> None:
    here = await failed(rig, 2, Error("Refused", "port 80"), tags=["red"])
    there = await failed(rig, 2, Error("Refused", "port 443"), queue="mail")
    other = await failed(rig, 1, Error("Other", "no"))
    groups = (await api.get("/v1/dead-letters/groups")).json()["groups"]
    (refused,) = [group for group in groups if group["error_type"] == "Refused"]
    assert refused["count"] == 4  # numbers do not make another kind
    by_kind = await api.get("/v1/dead-letters", params={"fingerprint": refused["fingerprint"]})
    assert set(ids(by_kind)) == {*here, *there}
    assert ids(await api.get("/v1/dead-letters?queue=mail")) == there
    assert ids(await api.get("/v1/dead-letters?tag=red")) == here
    assert ids(await api.get("/v1/dead-letters?type=echo&limit=1")) == other


async def test_groups_tell_how_many_of_what_kind_with_the_newest_message(api: httpx2.AsyncClient, rig: Rig) -> None:
    await failed(rig, 3, Error("Refused", "port 80"))
    (newest,) = await failed(rig, 1, Error("Refused", "port 81"))
    await failed(rig, 1, Error("Other", "no"), queue="mail")
    told = (await api.get("/v1/dead-letters/groups")).json()
    assert (told["jobs"], told["complete"]) == (5, True)
    first, second = told["groups"]
    assert (first["type"], first["error_type"], first["message"], first["count"]) == ("echo", "Refused", "port 81", 4)
    assert first["sample"][0] == str(newest)
    assert (second["error_type"], second["count"]) == ("Other", 1)
    (only,) = (await api.get("/v1/dead-letters/groups?queue=mail")).json()["groups"]
    assert only["error_type"] == "Other"
    assert not (await api.get("/v1/dead-letters/groups?looked_at=2")).json()["complete"]


async def test_a_replayed_letter_is_ready_again_and_the_replay_is_written_down(
    api: httpx2.AsyncClient, rig: Rig, store: Store
) -> None:
    job = await rig.job(Status.FAILED)
    answer = await api.post(f"/v1/dead-letters/{job}/replay")
    assert (answer.status_code, answer.json()) == (200, {"id": str(job), "status": "ready"})
    assert await rig.status(job) is Status.READY
    (entry,) = await store.accounts.audit()
    assert (entry.actor, entry.action, entry.target) == ("tester", "dead_letter.replay", str(job))


@pytest.mark.parametrize("status", [each for each in Status if each is not Status.FAILED])
async def test_what_is_not_failed_is_not_replayed(
    api: httpx2.AsyncClient, rig: Rig, store: Store, status: Status
) -> None:
    job = await rig.job(status)
    answer = await api.post(f"/v1/dead-letters/{job}/replay")
    assert (answer.status_code, answer.json()["code"]) == (409, "not_possible")
    many = (await api.post("/v1/dead-letters/replay", json={"ids": [str(job)]})).json()
    assert (many["done"], many["refused"][0]["code"]) == (0, "not_possible")
    assert await rig.status(job) is status


async def test_a_letter_nobody_has_is_not_found(api: httpx2.AsyncClient) -> None:
    for name in (uuid4(), "nonsense"):
        answer = await api.post(f"/v1/dead-letters/{name}/replay")
        assert (answer.status_code, answer.json()["code"]) == (404, "job_not_found")


async def test_replays_at_the_same_time_run_a_job_once(api: httpx2.AsyncClient, rig: Rig) -> None:
    job = await rig.job(Status.FAILED, queue="q")
    worker = await rig.worker(queues=["q"])
    answers = await asyncio.gather(*(api.post(f"/v1/dead-letters/{job}/replay") for _ in range(10)))
    assert sorted(answer.status_code for answer in answers) == [200, *[409] * 9]
    (lease,) = await worker.claim()
    await worker.settle(lease, Completed(None))
    assert (await api.post(f"/v1/dead-letters/{job}/replay")).status_code == 409
    assert await rig.status(job) is Status.COMPLETED


async def test_a_whole_group_is_previewed_then_replayed_and_no_other(api: httpx2.AsyncClient, rig: Rig) -> None:
    wanted = await failed(rig, 3, Error("Refused", "port 80"))
    others = await failed(rig, 2, Error("Other", "no"))
    groups = (await api.get("/v1/dead-letters/groups")).json()["groups"]
    chosen = {"type": groups[0]["type"], "fingerprint": groups[0]["fingerprint"]}
    preview = (await api.post("/v1/dead-letters/replay", json={"filter": chosen, "preview": True})).json()
    assert (preview["matched"], preview["done"], preview["preview"]) == (3, 0, True)
    assert [await rig.status(job) for job in wanted] == [Status.FAILED] * 3
    done = (await api.post("/v1/dead-letters/replay", json={"filter": chosen})).json()
    assert (done["matched"], done["done"], done["refused"]) == (3, 3, [])
    assert [await rig.status(job) for job in wanted] == [Status.READY] * 3
    assert [await rig.status(job) for job in others] == [Status.FAILED] * 2


async def test_a_filter_for_what_is_not_failed_is_refused(api: httpx2.AsyncClient, rig: Rig) -> None:
    job = await rig.job(Status.COMPLETED)
    answer = await api.post("/v1/dead-letters/replay", json={"filter": {"status": ["completed"]}})
    assert (answer.status_code, answer.json()["field"]) == (422, "filter.status")
    assert await rig.status(job) is Status.COMPLETED


@pytest.mark.parametrize(
    "query", ["status=failed", "limit=0", "limit=201", "cursor=x", "created_after=soon", "fingerprint="]
)
async def test_a_list_that_cannot_be_asked_for_is_refused(api: httpx2.AsyncClient, query: str) -> None:
    answer = await api.get(f"/v1/dead-letters?{query}")
    assert answer.status_code == 422


async def test_secrets_in_errors_are_masked(api: httpx2.AsyncClient, rig: Rig) -> None:
    await failed(rig, 1, Error("E", "GET refused with Authorization: Bearer eyJhbGciOi.abcdefghijklmnop"))
    for path in ("/v1/dead-letters", "/v1/dead-letters/groups"):
        assert "abcdefghijklmnop" not in (await api.get(path)).text


# Discarding and retention. --------------------------------------------------------------------------------------------


async def test_a_discarded_letter_is_cancelled_and_the_discard_is_written_down(
    api: httpx2.AsyncClient, rig: Rig, store: Store
) -> None:
    job = await rig.job(Status.FAILED)
    answer = await api.post(f"/v1/dead-letters/{job}/discard", json={"reason": "sent by hand"})
    assert (answer.status_code, answer.json()) == (200, {"id": str(job), "status": "cancelled"})
    assert (await api.get("/v1/dead-letters")).json()["jobs"] == []
    shown = (await api.get(f"/v1/jobs/{job}")).json()
    assert (shown["status"], shown["error"]["type"]) == ("cancelled", "Discarded")
    (attempt,) = (await api.get(f"/v1/jobs/{job}/attempts")).json()["attempts"]
    assert (attempt["status"], attempt["error"]["message"]) == ("failed", "no")
    (entry,) = await store.accounts.audit()
    assert (entry.action, entry.target, entry.detail) == ("dead_letter.discard", str(job), '{"reason": "sent by hand"}')
    again = await api.post(f"/v1/dead-letters/{job}/discard")
    assert (again.status_code, again.json()["code"]) == (409, "not_possible")


async def test_a_whole_group_is_previewed_then_discarded_and_no_other(
    api: httpx2.AsyncClient, rig: Rig, store: Store
) -> None:
    wanted = await failed(rig, 3, Error("Refused", "port 80"))
    others = await failed(rig, 2, Error("Other", "no"))
    groups = (await api.get("/v1/dead-letters/groups")).json()["groups"]
    chosen = {"type": groups[0]["type"], "fingerprint": groups[0]["fingerprint"]}
    preview = (await api.post("/v1/dead-letters/discard", json={"filter": chosen, "preview": True})).json()
    assert (preview["matched"], preview["done"], preview["preview"]) == (3, 0, True)
    assert [await rig.status(job) for job in wanted] == [Status.FAILED] * 3
    done = (await api.post("/v1/dead-letters/discard", json={"filter": chosen, "reason": "old"})).json()
    assert (done["matched"], done["done"], done["refused"]) == (3, 3, [])
    assert [await rig.status(job) for job in wanted] == [Status.CANCELLED] * 3
    assert [await rig.status(job) for job in others] == [Status.FAILED] * 2
    (entry,) = await store.accounts.audit()
    detail = json.loads(entry.detail or "")
    assert (entry.action, detail["done"], detail["reason"]) == ("dead_letters.discard", 3, "old")


async def test_discarding_needs_the_scope_of_operators(http: httpx2.AsyncClient, tokens: Tokens, rig: Rig) -> None:
    job = await rig.job(Status.FAILED)
    headers = tokens.headers("read", "submit")
    assert (await http.post(f"/v1/dead-letters/{job}/discard", headers=headers)).status_code == 403
    many = await http.post("/v1/dead-letters/discard", json={"ids": [str(job)]}, headers=headers)
    assert many.status_code == 403
    assert await rig.status(job) is Status.FAILED


async def test_a_letter_tells_when_it_expires_and_the_stats_how_old_and_large_they_are(
    api: httpx2.AsyncClient, rig: Rig, store: Store
) -> None:
    nothing = (await api.get("/v1/stats")).json()["dead_letters"]
    assert nothing == {"count": 0, "oldest_at": None, "approximate_bytes": 0, "retention_days": 90}
    await failed(rig, 3, Error("E", "x"))
    letters = (await api.get("/v1/dead-letters")).json()["jobs"]
    first = min(datetime.fromisoformat(each["finished_at"]) for each in letters)
    assert datetime.fromisoformat(letters[-1]["expires_at"]) - first == timedelta(days=90)
    totals = (await api.get("/v1/stats")).json()["dead_letters"]
    assert (totals["count"], datetime.fromisoformat(totals["oldest_at"])) == (3, first)
    assert totals["approximate_bytes"] > 1000
