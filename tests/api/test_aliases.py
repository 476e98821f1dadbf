"""The routes of older APIs, called as their documents say."""

from datetime import datetime, timedelta
from uuid import UUID

import httpx2

from tests.factory import Rig
from windlass.lifecycle import Failed
from windlass.model import Declared, Error, Status
from windlass.store.store import Store

Client = httpx2.AsyncClient


async def test_a_job_is_submitted_and_shown_in_the_plain_shape(api: Client, store: Store) -> None:
    body = {"name": "Sum", "type": "echo", "priority": 10, "thread_demand": 4, "payload": {"numbers": [1, 2, 3]}}
    stored = await api.post("/jobs", json=body)
    assert stored.status_code == 202
    assert stored.json() == {"id": stored.json()["id"], "status": "pending"}
    job = (await api.get(f"/jobs/{stored.json()['id']}")).json()
    assert {name: job[name] for name in body} == body
    assert (job["status"], job["attempts"], job["max_attempts"], job["result"], job["error"]) == (
        "pending",
        0,
        3,
        None,
        None,
    )
    assert job["scheduled_at"] == job["created_at"] == job["updated_at"]
    assert job["started_at"] is job["completed_at"] is None
    assert (await api.get("/jobs")).json() == [job]


async def test_plain_statuses_find_what_they_mean(api: Client, rig: Rig) -> None:
    ids = {status: str(await rig.job(status)) for status in Status}

    async def found(status: str) -> set[str]:
        return {job["id"] for job in (await api.get(f"/jobs?status={status}")).json()}

    assert await found("pending") == {ids[Status.SCHEDULED], ids[Status.HELD], ids[Status.READY]}
    for status in (Status.RUNNING, Status.COMPLETED, Status.FAILED, Status.CANCELLED):
        assert await found(status.value) == {ids[status]}
    assert {job["id"] for job in (await api.get("/jobs")).json()} == await found("pending") | await found("running")
    for all_of_them in ("1", "true"):
        listed = (await api.get(f"/jobs?all={all_of_them}")).json()
        assert {job["id"] for job in listed} == set(ids.values())
    for status in (Status.COMPLETED, Status.FAILED):
        past = (await api.get(f"/db/jobs?status={status}")).json()
        assert [job["id"] for job in past] == [ids[status]]
    assert (await api.get("/jobs?status=done")).status_code == 422
    assert (await api.get("/jobs?limit=201")).status_code == 422
    assert (await api.get("/stats")).json() == {"completed": 1, "failed": 1, "pending": 3, "running": 1}


async def test_past_jobs_have_their_times(api: Client, rig: Rig) -> None:
    done = await rig.job(Status.COMPLETED)
    await rig.enqueue()
    (job,) = (await api.get("/db/jobs")).json()
    assert (job["id"], job["status"], job["result"]) == (str(done), "completed", {"ok": True})
    for time in ("queue_time", "execution_time", "total_time"):
        assert job[time] >= 0
    assert (await api.get(f"/db/jobs/{done}")).json() == job


async def test_a_name_and_a_text_are_a_type_and_its_task(api: Client, store: Store) -> None:
    stored = await api.post("/submit_job", json={"name": "echo", "payload": "test task"})
    told = stored.json()
    assert stored.status_code == 202
    assert told == {"job_id": told["id"], "id": told["id"], "status": "pending"}
    assert (await store.views.job(UUID(told["id"]))).payload == '{"task":"test task"}'
    urgent = await api.post("/submit_job", json={"name": "echo", "payload": "x", "priority": 7})
    assert (await store.views.job(UUID(urgent.json()["id"]))).priority == 7
    assert (await api.post("/submit_job", json={"name": "echo", "priority": 101})).status_code == 422
    unknown = await api.post("/submit_job", json={"name": "nobody", "payload": "x"})
    problem = unknown.json()
    assert (unknown.status_code, problem["code"], problem["field"]) == (422, "unknown_type", "name")
    assert problem["detail"] == "name: no worker has declared the type 'nobody'"


async def test_an_address_and_a_name_are_a_welcome_mail(api: Client, store: Store) -> None:
    await store.upkeep.declare([Declared("email")])
    stored = await api.post("/addJob", json={"email": "ann@example.com", "name": "Ann"})
    assert stored.status_code == 202, stored.text
    job = await store.views.job(UUID(stored.json()["id"]))
    assert job.type == "email"
    assert '"to":"ann@example.com"' in (job.payload or "")
    assert "Ann" in (job.payload or "")


async def test_a_whole_job_may_be_added_as_well(api: Client, store: Store) -> None:
    await store.upkeep.declare([Declared("email")])
    stored = await api.post("/addJob", json={"type": "echo", "payload": {"a": 1}, "name": "x", "max_attempts": 5})
    job = (await api.get(f"/jobs/{stored.json()['id']}")).json()
    assert (job["type"], job["payload"], job["name"], job["max_attempts"]) == ("echo", {"a": 1}, "x", 5)
    for body, field in (
        ({}, "type"),
        ({"email": "nonsense"}, "email"),
        ({"email": "a@b.example\nBcc: c@d.example"}, "email"),
        ({"email": "a@b.example", "name": "Ann\nBcc: x@y.example"}, "name"),
        ({"type": "echo", "email": "a@b.example"}, "email"),
    ):
        answer = await api.post("/addJob", json=body)
        assert (answer.status_code, answer.json()["field"]) == (422, field), answer.text


async def test_a_key_works_on_every_way_in(api: Client) -> None:
    for path, body in (("/jobs", {"type": "echo"}), ("/submit_job", {"name": "echo"}), ("/addJob", {"type": "echo"})):
        key = {"idempotency-key": path}
        first = await api.post(path, json=body, headers=key)
        again = await api.post(path, json=body, headers=key)
        assert (first.status_code, again.status_code) == (202, 200)
        assert first.json()["id"] == again.json()["id"]


async def test_failed_jobs_come_page_by_page(api: Client, rig: Rig) -> None:
    ids = [str(await rig.job(Status.FAILED)) for _ in range(5)]
    await rig.enqueue()
    pages = [(await api.get(f"/failedJobs?page={page}&limit=2")).json() for page in (1, 2, 3, 4)]
    assert [[job["id"] for job in page["jobs"]] for page in pages] == [
        [ids[4], ids[3]],
        [ids[2], ids[1]],
        [ids[0]],
        [],
    ]
    assert {(page["limit"], page["total"]) for page in pages} == {(2, 5)}
    assert [page["page"] for page in pages] == [1, 2, 3, 4]
    assert (await api.get("/failedJobs?page=10000&limit=200")).status_code == 422


async def test_a_job_between_tries_shows_its_error_its_next_try_and_when_it_was_started_and_changed(
    api: httpx2.AsyncClient, rig: Rig, store: Store
) -> None:
    (job_id,) = await rig.enqueue(max_attempts=3)
    worker = await rig.worker()
    (lease,) = await worker.claim()
    await worker.settle(lease, Failed(Error("ValueError", "no"), delay_s=60))
    (attempt,) = await store.views.attempts(job_id)
    (listed,) = (await api.get("/jobs")).json()
    shown = (await api.get(f"/jobs/{job_id}")).json()
    for job in (listed, shown, (await api.get(f"/db/jobs/{job_id}")).json()):
        assert (job["status"], job["attempts"], job["error"]) == ("pending", 1, "ValueError: no")
        assert datetime.fromisoformat(job["started_at"]) == attempt.started_at
        assert datetime.fromisoformat(job["updated_at"]) == attempt.ended_at
        assert datetime.fromisoformat(job["next_try_at"]) == attempt.ended_at + timedelta(seconds=60)
        assert job["completed_at"] is None
