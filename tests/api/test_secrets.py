"""Wherever a job is shown, nothing is shown that looks like a secret; and to find out does not hold up the others."""

import asyncio
import threading
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import httpx2

from tests.factory import Rig
from tests.pressure import Stopwatch
from windlass.api.alias_shapes import lightened
from windlass.api.aside import shown_aside
from windlass.lifecycle import Completed, Failed, settle
from windlass.model import Error, Job, Status
from windlass.store.protocol import Progress
from windlass.store.store import Store

SECRET = "s3cr3t-v4lue-0123"
Client = httpx2.AsyncClient


async def failed(rig: Rig, text: str, **fields: Any) -> UUID:
    """A job that holds the text wherever a job can, and has failed for good."""
    (job_id,) = await rig.enqueue(payload={"password": SECRET, "note": text}, max_attempts=2, **fields)
    worker = await rig.worker()
    for final in (False, True):
        (lease,) = await worker.claim()
        outcome = Failed(Error("Refused", text, f"Traceback\n  {text}"), final=final)
        await worker.claims.settle([settle(lease, outcome, jitter=0.5, log=text)])
        if not final:
            await rig.store.intake.run_now(job_id)
    return job_id


async def test_no_route_shows_a_secret(api: Client, rig: Rig) -> None:
    job_id = await failed(rig, f"refused: Authorization: Bearer {SECRET} at https://ann:{SECRET}@example.org/")
    asked = {"reason": f"token={SECRET}"}
    other = await rig.job(Status.SCHEDULED)
    assert (await api.post(f"/v1/jobs/{other}/cancel", json=asked)).status_code == 200
    assert (await api.post("/v1/jobs/cancel", json={"ids": [str(uuid4())], **asked})).status_code == 200
    said: dict[str, str] = {}
    for path in (
        *(f"/v1/jobs/{job_id}", f"/v1/jobs/{job_id}/attempts", f"/v1/jobs/{job_id}/logs", f"/v1/jobs/{job_id}/explain"),
        *(f"/v1/jobs/{other}", f"/v1/jobs/{other}/explain", "/v1/jobs", "/v1/dead-letters", "/v1/dead-letters/groups"),
        *("/jobs?all=1", f"/jobs/{job_id}", "/db/jobs", f"/db/jobs/{job_id}", "/failedJobs", "/v1/audit"),
    ):
        answer = await api.get(path)
        assert answer.status_code == 200, path
        said[path] = answer.text
    assert [path for path, text in said.items() if SECRET in text] == []
    assert all("***" in text for path, text in said.items()), [path for path, text in said.items() if "***" not in text]


async def test_what_a_running_job_notes_is_shown_without_secrets(api: Client, rig: Rig) -> None:
    (job_id,) = await rig.enqueue()
    worker = await rig.worker()
    (lease,) = await worker.claim()
    await worker.claims.report_progress([Progress(lease, 0.5, f"password={SECRET}")])
    told = (await api.get(f"/v1/jobs/{job_id}")).json()
    assert told["progress_note"] == "password=***"


async def test_much_is_looked_through_in_a_thread_and_little_at_once() -> None:
    here = threading.get_ident()
    assert await shown_aside(threading.get_ident, 100) == here
    assert await shown_aside(threading.get_ident, 1_000_000) != here


async def test_a_large_payload_that_is_looked_through_holds_up_nobody(api: Client, rig: Rig) -> None:
    """A megabyte of what takes longest; meanwhile the loop must come round."""
    (job_id,) = await rig.enqueue(payload={"x": ["key=abc"] * 90_000})
    longest_s = 0.0
    asking = asyncio.create_task(api.get(f"/v1/jobs/{job_id}"))
    while not asking.done():
        watch = Stopwatch()
        await asyncio.sleep(0.001)
        longest_s = max(longest_s, watch.free_s)
    assert (await asking).status_code == 200
    assert longest_s < 0.25  # on the loop it takes the better part of a second


async def test_a_list_shows_payloads_up_to_a_megabyte_in_all(api: Client, rig: Rig) -> None:
    await rig.enqueue(100, payload={"x": "a" * 16_000})
    told = (await api.get("/jobs?limit=100")).json()
    assert [job["payload"] is not None for job in told] == [True] * 65 + [False] * 35


def test_a_list_is_lightened_from_the_first_that_is_too_much() -> None:
    job = Job(
        *(uuid4(), "echo", Status.READY, None, None, "default", 0, 1, None, 3, 1.0, None, "narrow", None, (), None),
        *(datetime.now(UTC), None, None, None, None, 0, 0, None, False, None, None, None, None, None),
        payload="x" * 600_000,
    )
    assert [each.payload is None for each in lightened([job] * 3)] == [False, True, True]


async def test_the_logs_of_a_job_are_shown_up_to_a_megabyte_and_attempts_up_to_the_limit(
    api: Client, rig: Rig, store: Store
) -> None:
    (job_id,) = await rig.enqueue(max_attempts=30)
    worker = await rig.worker()
    for n in range(20):
        (lease,) = await worker.claim()
        outcome = Failed(Error("E", str(n)))
        await worker.claims.settle([settle(lease, outcome, jitter=0.5, log=f"{n} " + "x" * 60_000)])
        await store.intake.run_now(job_id)
    (lease,) = await worker.claim()
    await worker.settle(lease, Completed(None))
    logs = (await api.get(f"/v1/jobs/{job_id}/logs")).json()["logs"]
    assert [log["attempt"] for log in logs] == list(range(4, 21))
    attempts = (await api.get(f"/v1/jobs/{job_id}/attempts?limit=3")).json()["attempts"]
    assert [each["attempt"] for each in attempts] == [19, 20, 21]
    assert [each.attempt for each in await store.views.attempts(job_id, limit=2)] == [20, 21]
