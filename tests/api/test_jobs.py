"""Submitting, showing, listing and acting on jobs over HTTP."""

import json
from collections.abc import Callable
from typing import Any
from uuid import UUID, uuid4

import httpx2

from tests.api.conftest import Tokens
from tests.factory import Rig
from windlass.api.app import build, opened
from windlass.config import Config
from windlass.lifecycle import Held
from windlass.model import Declared, Error, RetryPolicy, Status, needs_decision
from windlass.store.ids import Ids
from windlass.store.store import Store

Client = httpx2.AsyncClient


async def test_a_submission_is_stored_when_it_is_answered(api: Client, store: Store) -> None:
    answer = await api.post("/v1/jobs", json={"type": "echo", "payload": {"n": 1}, "priority": 7, "tags": ["a"]})
    assert answer.status_code == 202
    told = answer.json()
    assert told == {"id": told["id"], "status": "ready", "duplicate": False, "payload_checked": False}
    assert answer.headers["location"] == f"/v1/jobs/{told['id']}"
    job = await store.views.job(UUID(told["id"]))
    assert (job.payload, job.priority, job.tags) == ('{"n":1}', 7, ("a",))


async def test_a_job_comes_back_number_for_number(api: Client) -> None:
    payload = '{"big":123456789012345678901234567890,"small":1e-300,"text":"ä☃","none":null}'
    stored = await api.post(
        "/v1/jobs", content=f'{{"type":"echo","payload":{payload}}}', headers={"content-type": "application/json"}
    )
    shown = await api.get(stored.headers["location"])
    assert payload in shown.text


async def test_what_is_left_out_is_as_the_type_declares_it(api: Client, store: Store) -> None:
    retry = RetryPolicy(base_s=3, factor=4, cap_s=50, jitter=0)
    await store.upkeep.declare(
        [Declared("mailing", queue="mail", priority=3, thread_demand=2, max_attempts=9, retry=retry, tags=("x",))]
    )
    stored = await api.post("/v1/jobs", json={"type": "mailing", "priority": 5})
    job = (await api.get(stored.headers["location"])).json()
    assert (job["queue"], job["priority"], job["thread_demand"], job["max_attempts"]) == ("mail", 5, 2, 9)
    assert (job["retry"]["factor"], job["tags"]) == (4, ["x"])


async def test_a_job_for_later_is_scheduled(api: Client) -> None:
    for later in ({"delay_s": 60}, {"scheduled_at": "2099-01-01T00:00:00+02:00"}):
        stored = await api.post("/v1/jobs", json={"type": "echo", **later})
        assert stored.json()["status"] == "scheduled"
        assert (await api.get(stored.headers["location"])).json()["status"] == "scheduled"


async def test_the_same_key_and_body_give_the_first_job(api: Client) -> None:
    key = {"idempotency-key": "order-1"}
    first = await api.post("/v1/jobs", json={"type": "echo", "payload": 1}, headers=key)
    again = await api.post("/v1/jobs", json={"type": "echo", "payload": 1}, headers=key)
    in_body = await api.post("/v1/jobs", json={"type": "echo", "payload": 1, "idempotency_key": "order-1"})
    assert first.status_code == 202
    assert "idempotency-replayed" not in first.headers
    for repeated in (again, in_body):
        assert repeated.status_code == 200
        assert repeated.headers["idempotency-replayed"] == "true"
        assert repeated.json() == first.json() | {"duplicate": True}


async def test_the_same_request_gives_the_first_job_also_if_its_type_has_other_defaults_by_now(
    api: Client, store: Store, settings: Config, tokens: Tokens
) -> None:
    body = {"type": "mailing", "payload": 1}
    named = {**body, "id": str(Ids(store.postgres.now_ms).make(1)[0])}
    header = {"idempotency-key": "k"}
    await store.upkeep.declare([Declared("mailing", timeout_s=10)])
    first, with_id = await api.post("/v1/jobs", json=body, headers=header), await api.post("/v1/jobs", json=named)
    assert (first.status_code, with_id.status_code) == (202, 202)
    await store.upkeep.declare([Declared("mailing", timeout_s=20, queue="mail", tags=("new",))])
    async with opened(
        store.intake, store.views, store.accounts, settings
    ) as others:  # a process that knows the new ones
        transport = httpx2.ASGITransport(app=build(others))
        async with Client(transport=transport, base_url="http://localhost", headers=tokens.headers("submit")) as other:
            for again in (
                await other.post("/v1/jobs", json=body, headers=header),
                await other.post("/v1/jobs", json={**body, "idempotency_key": "k"}),
            ):
                assert (again.status_code, again.json()["id"]) == (200, first.json()["id"])
            assert (await other.post("/v1/jobs", json=named)).json()["id"] == named["id"]
            changed = await other.post("/v1/jobs", json={**body, "timeout_s": 20}, headers=header)
            assert (changed.status_code, changed.json()["code"]) == (422, "idempotency_key_reused")


async def test_a_key_that_is_no_text_is_refused(api: Client) -> None:
    answers = [
        await api.post("/v1/jobs", json={"type": "echo"}, headers=[(b"idempotency-key", key)])
        for key in (b"caf\xe9", b"caf\xe8")
    ]
    assert [answer.status_code for answer in answers] == [422, 422]
    assert answers[0].json()["field"] == "idempotency_key"


async def test_a_key_with_another_body_is_refused(api: Client) -> None:
    key = {"idempotency-key": "order-1"}
    await api.post("/v1/jobs", json={"type": "echo", "payload": 1}, headers=key)
    other = await api.post("/v1/jobs", json={"type": "echo", "payload": 2}, headers=key)
    assert (other.status_code, other.json()["code"]) == (422, "idempotency_key_reused")


async def test_two_different_keys_for_one_job_are_refused(api: Client) -> None:
    answer = await api.post("/v1/jobs", json={"type": "echo", "idempotency_key": "a"}, headers={"idempotency-key": "b"})
    assert (answer.status_code, answer.json()["field"]) == (422, "idempotency_key")


async def test_a_repeated_answer_says_where_the_job_is_by_now(api: Client, rig: Rig) -> None:
    job = {"type": "echo", "queue": "apart", "idempotency_key": "k"}
    await api.post("/v1/jobs", json=job)
    worker = await rig.worker(queues=["apart"])
    await worker.claim()
    assert (await api.post("/v1/jobs", json=job)).json()["status"] == "running"


async def test_an_unknown_type_is_refused_and_nothing_is_stored(api: Client, store: Store) -> None:
    answer = await api.post("/v1/jobs", json={"type": "ecko"})
    assert (answer.status_code, answer.json()["code"], answer.json()["field"]) == (422, "unknown_type", "type")
    assert "did you mean echo?" in answer.json()["detail"]
    assert await store.views.counts() == {}


async def test_a_type_declared_a_moment_ago_is_known(api: Client, store: Store) -> None:
    assert (await api.post("/v1/jobs", json={"type": "fresh"})).status_code == 422
    await store.upkeep.declare([Declared("fresh")])
    assert (await api.post("/v1/jobs", json={"type": "fresh"})).status_code == 202


# Show. --------------------------------------------------------------------------------------------------------------


async def test_a_job_that_has_not_changed_is_not_sent_again(api: Client, rig: Rig) -> None:
    (job_id,) = await rig.enqueue()
    first = await api.get(f"/v1/jobs/{job_id}")
    tag = {"if-none-match": first.headers["etag"]}
    same = await api.get(f"/v1/jobs/{job_id}", headers=tag)
    assert (same.status_code, same.content) == (304, b"")
    await rig.store.intake.cancel(job_id)
    changed = await api.get(f"/v1/jobs/{job_id}", headers=tag)
    assert (changed.status_code, changed.json()["status"]) == (200, "cancelled")


async def test_what_names_no_job_is_not_found(api: Client) -> None:
    for job_id in (str(uuid4()), "nonsense", "%00", "..%2F..%2Fetc"):
        for below in ("", "/attempts", "/logs", "/explain"):
            answer = await api.get(f"/v1/jobs/{job_id}{below}")
            assert (answer.status_code, answer.json()["code"]) == (404, "job_not_found")


async def test_secrets_of_a_payload_are_not_shown(api: Client) -> None:
    payload = {"url": "https://a.example", "headers": {"Authorization": "Bearer abc123def456"}, "password": "hunter22"}
    stored = await api.post("/v1/jobs", json={"type": "echo", "payload": payload})
    for path in (stored.headers["location"], f"/jobs/{stored.json()['id']}", "/jobs"):
        shown = (await api.get(path)).text
        assert "https://a.example" in shown
        assert "hunter22" not in shown
        assert "abc123def456" not in shown


async def test_a_failed_job_tells_its_error_and_attempts(api: Client, rig: Rig) -> None:
    job_id = await rig.job(Status.FAILED)
    job = (await api.get(f"/v1/jobs/{job_id}")).json()
    assert (job["status"], job["error"]["type"], job["attempts"]) == ("failed", "ValueError", 1)
    attempts = (await api.get(f"/v1/jobs/{job_id}/attempts")).json()["attempts"]
    assert [each["attempt"] for each in attempts] == [1]
    assert (await api.get(f"/v1/jobs/{job_id}/logs")).json() == {"logs": []}


async def test_a_job_that_waits_says_why(api: Client, rig: Rig) -> None:
    job_id = await rig.job(Status.SCHEDULED)
    why = (await api.get(f"/v1/jobs/{job_id}/explain")).json()
    assert (why["status"], why["obstacles"][0]["code"]) == ("scheduled", "scheduled")


# List. --------------------------------------------------------------------------------------------------------------


async def test_pages_lead_to_every_job_once(api: Client, rig: Rig) -> None:
    ids = await rig.enqueue(7)
    seen: list[str] = []
    path = "/v1/jobs?limit=3&type=echo"
    while path:
        answer = await api.get(path)
        seen += [job["id"] for job in answer.json()["jobs"]]
        link = answer.headers.get("link", "")
        assert bool(link) == (answer.json()["next_cursor"] is not None)
        path = link.partition(">")[0].lstrip("<")
    assert sorted(seen) == sorted(map(str, ids))


async def test_filters_find_what_they_say(api: Client, rig: Rig) -> None:
    failed = await rig.job(Status.FAILED)
    scheduled = await rig.job(Status.SCHEDULED)
    tagged = (await rig.enqueue(tags=["red"]))[0]

    async def found(query: str) -> set[str]:
        return {job["id"] for job in (await api.get(f"/v1/jobs?{query}")).json()["jobs"]}

    assert await found("status=failed") == {str(failed)}
    assert await found("status=failed&status=scheduled") == {str(failed), str(scheduled)}
    assert await found("status=failed,scheduled") == {str(failed), str(scheduled)}
    assert await found("status=pending") == {str(scheduled), str(tagged)}
    assert await found("status=pending,failed") == {str(scheduled), str(tagged), str(failed)}
    assert await found("tag=red") == {str(tagged)}
    assert await found("type=other") == set()
    assert await found("created_before=2001-01-01T00:00:00Z") == set()


async def test_lists_leave_payloads_out(api: Client, rig: Rig) -> None:
    await rig.enqueue(payload={"much": "x" * 1000})
    (job,) = (await api.get("/v1/jobs")).json()["jobs"]
    assert (job["payload"], job["result"]) == (None, None)


async def test_a_query_that_makes_no_sense_names_its_parameter(api: Client) -> None:
    for query, field in (
        ("limit=0", "limit"),
        ("limit=201", "limit"),
        ("limit=x", "limit"),
        ("limit=1&limit=2", "limit"),
        ("status=done", "status[0]"),
        ("colour=red", "colour"),
        ("created_after=yesterday", "created_after"),
        ("created_after=2020-01-01T00:00:00", "created_after"),
        ("tag=%ff", "query"),
        ("tag=a%00b", "tag"),
    ):
        answer = await api.get(f"/v1/jobs?{query}")
        assert (answer.status_code, answer.json().get("field")) == (422, field), answer.text


async def test_a_wrong_choice_is_refused_with_those_there_are(api: Client) -> None:
    listed = (await api.get("/v1/jobs?status=done")).json()["detail"]
    assert listed.startswith("status[0]: cannot be 'done'; it is one of pending, scheduled, held, ready, ")
    jobs = [{"type": "echo"}, {"type": "echo", "if_too_wide": "shrink"}]
    sent = (await api.post("/v1/jobs/bulk", json=jobs)).json()["detail"]
    assert sent == "jobs[1].if_too_wide: cannot be 'shrink'; it is one of narrow, wait, fail"


async def test_a_cursor_that_is_none_is_refused(api: Client) -> None:
    assert (await api.get("/v1/jobs?cursor=zzz")).status_code == 422


# Act. ---------------------------------------------------------------------------------------------------------------


async def test_a_waiting_job_is_cancelled_and_it_is_written_down_who_did(api: Client, rig: Rig) -> None:
    (job_id,) = await rig.enqueue()
    answer = await api.post(f"/v1/jobs/{job_id}/cancel", json={"reason": "mistake"}, headers={"x-request-id": "r-1"})
    assert answer.json() == {"id": str(job_id), "status": "cancelled"}
    (entry,) = await rig.store.accounts.audit()
    assert (entry.actor, entry.action, entry.target) == ("tester", "job.cancel", str(job_id))
    assert (entry.request_id, "mistake" in (entry.detail or "")) == ("r-1", True)


async def test_actions_need_no_body(api: Client, rig: Rig) -> None:
    (job_id,) = await rig.enqueue()
    assert (await api.post(f"/v1/jobs/{job_id}/cancel")).json()["status"] == "cancelled"
    assert (await api.post(f"/v1/jobs/{job_id}/retry")).json()["status"] == "ready"
    scheduled = await rig.job(Status.SCHEDULED)
    assert (await api.post(f"/v1/jobs/{scheduled}/run-now")).json()["status"] == "ready"


async def test_a_job_that_needs_a_decision_is_listed_explained_decided_and_noted(api: Client, rig: Rig) -> None:
    job_id = await undecided(rig)
    listed = (await api.get("/v1/jobs", params={"reason": "needs decision"})).json()["jobs"]
    assert [(job["id"], job["status"], job["reason"]) for job in listed] == [(str(job_id), "held", "needs decision")]
    why = (await api.get(f"/v1/jobs/{job_id}/explain")).json()["obstacles"][0]
    assert (why["code"], f"windlass jobs decide {job_id} done" in why["cure"]) == ("needs_decision", True)
    assert (await api.get("/v1/stats")).json()["needs_decision"] == 1
    refused = await api.post(f"/v1/jobs/{job_id}/run-now")
    assert (refused.status_code, "jobs decide" in refused.json()["detail"]) == (409, True)
    for body, status in (({"decision": "maybe"}, 422), ({}, 422), ({"decision": "done", "effect": "fax"}, 409)):
        assert (await api.post(f"/v1/jobs/{job_id}/decide", json=body)).status_code == status
    assert (await api.post(f"/v1/jobs/{uuid4()}/decide", json={"decision": "done"})).status_code == 404
    assert await rig.store.accounts.audit() == []
    answer = await api.post(f"/v1/jobs/{job_id}/decide", json={"decision": "done", "effect": "mail"})
    assert (answer.status_code, answer.json()["status"]) == (200, "ready")
    (noted,) = await rig.store.accounts.audit()
    assert (noted.action, noted.target) == ("job.decide", str(job_id))
    assert json.loads(noted.detail or "") == {"decision": "done", "effect": "mail"}
    again = await api.post(f"/v1/jobs/{job_id}/decide", json={"decision": "redo"})
    assert (again.status_code, again.json()["code"]) == (409, "not_possible")


async def undecided(rig: Rig) -> UUID:
    (job_id,) = await rig.enqueue()
    worker = await rig.worker()
    (lease,) = await worker.claim()
    await worker.claims.intend(lease, "mail", "ask")
    await worker.settle(lease, Held(needs_decision, Error("NeedsDecision", "who knows")))
    return job_id


async def test_what_the_state_forbids_is_a_conflict_and_no_audit_row(api: Client, rig: Rig) -> None:
    (job_id,) = await rig.enqueue()
    answer = await api.post(f"/v1/jobs/{job_id}/retry")
    assert (answer.status_code, answer.json()["code"]) == (409, "not_possible")
    assert answer.json()["detail"] == f"job {job_id} is ready and cannot be run again"
    assert (await api.post(f"/v1/jobs/{uuid4()}/cancel")).status_code == 404
    assert await rig.store.accounts.audit() == []


async def test_a_scope_opens_what_it_is_for(as_scope: Callable[..., Client]) -> None:
    for scopes, method, path, status in (
        (["submit"], "POST", "/v1/jobs", 202),
        (["read"], "POST", "/v1/jobs", 403),
        (["submit"], "GET", "/v1/jobs", 403),
        (["read"], "GET", "/v1/jobs", 200),
        (["read", "submit"], "POST", "/v1/jobs/cancel", 403),
        (["operate"], "POST", "/v1/jobs/cancel", 200),
        (["admin"], "POST", "/v1/jobs/cancel", 200),
    ):
        body: Any = {"filter": {}} if path.endswith("cancel") else {"type": "echo"}
        async with as_scope(*scopes) as client:
            answer = await client.request(method, path, json=body if method == "POST" else None)
        assert answer.status_code == status, (scopes, path, answer.text)
