"""The pages of the four schedulers that this one grew from, followed line by line: every call as it is written there, host and
token aside, on one `windlass up` with workers of 4 and 8 threads and a Redis."""

import base64
import io
import json
import re
import subprocess
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx2
import psutil
import pytest
from PIL import Image

from tests.e2e.commands import command
from tests.e2e.conftest import copied
from tests.e2e.household import CLEAN, Up, up
from tests.eventually import eventually

HOSTS = re.compile(r"http://localhost:80[08]0")


@pytest.fixture(scope="module")
def running(prepared: Path, in_memory: Path) -> Iterator[Up]:
    environ: dict[str, Any] = {
        "WINDLASS_TOO_WIDE_GRACE_S": "0.2",
        "WINDLASS_EGRESS_ALLOW": "127.0.0.0/8",
        "WINDLASS_EGRESS_PORTS": "*",
        "WINDLASS_LOG_LEVEL": "warning",
    }
    with copied(prepared, in_memory) as folder, up("--workers", "4,8", "--redis", folder=folder, **environ) as made:
        yield made


def pasted(made: Up, line: str) -> Any:
    """What a line of a page prints, as JSON."""
    with_token = 'curl() { command curl -sS --fail-with-body -H "Authorization: Bearer $TOKEN" "$@"; }\n'
    done = subprocess.run(
        ["bash", "-c", with_token + HOSTS.sub(made.url, line)],
        env={**CLEAN, "TOKEN": made.token("submit", "read")},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return json.loads(done.stdout)


def plain(made: Up, job_id: str, *statuses: str) -> dict[str, Any]:
    """GET /jobs/:id, once the job has one of these statuses."""

    def there() -> dict[str, Any] | None:
        job: dict[str, Any] = made.asked("GET", f"/jobs/{job_id}").json()
        return job if job["status"] in statuses else None

    found = eventually(there)
    assert found is not None
    return found


def add(made: Up, **job: Any) -> str:
    answer = made.asked("POST", "/jobs", json=job)
    assert answer.status_code == 202, answer.text
    return str(answer.json()["id"])


def mails(made: Up, recipient: str) -> list[dict[str, Any]]:
    found = made.asked("GET", "/v1/dev/mail?limit=500").json()["mails"]
    return [mail for mail in found if recipient in mail["to"]]


# The thread-aware priority scheduler. -------------------------------------------------------------------------------


def test_its_submission_is_taken_run_and_found(running: Up) -> None:
    stored = pasted(
        running,
        """curl -X POST http://localhost:8080/jobs \\
  -H "Content-Type: application/json" \\
  -d '{
    "name": "Sum large array",
    "type": "large_array_sum",
    "priority": 10,
    "thread_demand": 4,
    "payload": {
      "numbers": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]
    }
  }'""",
    )
    job = plain(running, stored["id"], "completed")
    assert (job["name"], job["priority"], job["thread_demand"]) == ("Sum large array", 10, 4)
    assert (job["result"]["sum"], job["result"]["threads"]) == (55, 4)


def test_active_jobs_history_and_single_jobs_are_queried(running: Up) -> None:
    done = add(running, type="add_numbers", payload={"x": 2, "y": 3})
    assert plain(running, done, "completed")["result"] == 5
    waiting = add(running, type="reverse_string", payload={"text": "later"}, delay_s=3600)
    active = pasted(running, "curl http://localhost:8080/jobs")
    assert waiting in {job["id"] for job in active}
    assert {job["status"] for job in active} <= {"pending", "running"}
    past = pasted(running, "curl http://localhost:8080/db/jobs")
    (one,) = [job for job in past if job["id"] == done]
    assert all(one[time] >= 0 for time in ("queue_time", "execution_time", "total_time"))
    assert waiting not in {job["id"] for job in past}
    assert pasted(running, f"curl http://localhost:8080/jobs/{waiting}")["status"] == "pending"


def test_its_workers_have_4_and_8_threads_and_run_its_types(running: Up) -> None:
    workers = running.asked("GET", "/v1/workers").json()["workers"]
    assert sorted(worker["threads"] for worker in workers if worker["status"] != "dead") == [4, 8]
    assert running.report["threads"] == [4, 8]
    image = io.BytesIO()
    Image.new("RGB", (64, 32)).save(image, "PNG")
    payloads: dict[str, Any] = {
        "add_numbers": {"a": 1, "b": 2},
        "reverse_string": {"text": "abc"},
        "resize_image": {"source": base64.b64encode(image.getvalue()).decode(), "width": 8, "height": 8},
        "large_array_sum": {"numbers": [1, 2, 3]},
    }
    for job_id in [add(running, type=type_, payload=payload) for type_, payload in payloads.items()]:
        plain(running, job_id, "completed")


def test_a_job_wider_than_any_worker_falls_back_to_one_thread(running: Up) -> None:
    job_id = add(running, type="large_array_sum", thread_demand=16, payload={"numbers": [1, 2]})
    assert plain(running, job_id, "completed")["result"]["threads"] == 1


# The leasing coordinator. -------------------------------------------------------------------------------------------


def test_its_named_jobs_run_with_their_text(running: Up) -> None:
    stored = pasted(
        running,
        """curl -X POST http://localhost:8000/submit_job \\
-H "Content-Type: application/json" \\
-d '{"name": "cpu_intensive", "payload": "test task"}'""",
    )
    assert plain(running, stored["job_id"], "completed")["result"]["task"] == "test task"


@pytest.mark.parametrize("name", ["cpu_intensive", "io_intensive", "network_intensive"])
def test_its_scripts_have_their_types(running: Up, name: str) -> None:
    payload = {"task": "t", "duration_s": 0.01}
    answer = running.asked("POST", "/submit_job", json={"name": name, "payload": payload, "priority": 5})
    job = plain(running, answer.json()["id"], "completed")
    assert (job["type"], job["priority"], job["result"]["task"]) == (name, 5, "t")


def test_a_failing_job_is_tried_three_times_with_growing_delays_and_then_a_dead_letter(running: Up) -> None:
    stored = running.asked("POST", "/submit_job", json={"name": "default", "payload": "please fail"}).json()
    job = plain(running, stored["id"], "failed")
    assert (job["attempts"], job["max_attempts"]) == (3, 3)
    assert "AskedToFail" in job["error"]
    tries = running.asked("GET", f"/v1/jobs/{stored['id']}/attempts").json()["attempts"]
    began = [datetime.fromisoformat(each["started_at"]) for each in tries]
    pauses_s = [(later - sooner).total_seconds() for sooner, later in pairwise(began)]
    assert pauses_s[0] >= 0.8
    assert pauses_s[1] >= 1.6
    assert stored["id"] in {each["id"] for each in running.asked("GET", "/failedJobs").json()["jobs"]}


# The scheduler with executors. --------------------------------------------------------------------------------------


def test_a_mail_is_submitted_sent_and_shown_in_the_documented_shapes(running: Up) -> None:
    payload = {"to": "user@example.com", "subject": "Hello", "body": "World"}
    answer = running.asked("POST", "/jobs", json={"type": "email", "payload": payload})
    assert answer.json() == {"id": answer.json()["id"], "status": "pending"}
    job = plain(running, answer.json()["id"], "completed")
    assert (job["type"], job["payload"], job["attempts"], job["max_attempts"]) == ("email", payload, 1, 3)
    moments = [job[name] for name in ("created_at", "scheduled_at", "started_at", "completed_at", "updated_at")]
    assert [datetime.fromisoformat(each) for each in moments] == sorted(map(datetime.fromisoformat, moments))
    (mail,) = mails(running, "user@example.com")
    assert mail["subject"] == "Hello"
    shown = command("mail", "show", mail["id"], WINDLASS_DATA_DIR=str(running.folder))
    assert "World" in shown.stdout
    listed = command("mail", "list", WINDLASS_DATA_DIR=str(running.folder))
    assert "user@example.com" in listed.stdout
    with httpx2.Client(base_url=running.url, headers={"Authorization": f"Bearer {running.token()}"}) as browser:
        assert "Hello" in browser.get(running.report["mail"]).text


def test_a_job_may_say_when_it_is_due_and_how_often_it_is_tried(running: Up) -> None:
    later = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1)
    payload = {"to": "user@example.com", "subject": "Hello", "body": "World"}
    job_id = add(running, type="email", payload=payload, scheduled_at=later.isoformat(), max_attempts=5)
    job = plain(running, job_id, "pending")
    assert (datetime.fromisoformat(job["scheduled_at"]), job["max_attempts"]) == (later, 5)
    past = add(running, type="add_numbers", payload={"a": 1, "b": 1}, scheduled_at="2024-01-15T10:30:00Z")
    assert plain(running, past, "completed")["scheduled_at"] == "2024-01-15T10:30:00Z"


def test_jobs_are_listed_by_status_and_counted(running: Up) -> None:
    add(running, type="default", payload={}, delay_s=3600)
    for query in ("", "?status=pending", "?status=failed"):
        listed = running.asked("GET", f"/jobs{query}").json()
        assert isinstance(listed, list)
        assert {job["status"] for job in listed} <= ({query.partition("=")[2]} if query else {"pending", "running"})
    stats = running.asked("GET", "/stats").json()
    assert list(stats) == ["completed", "failed", "pending", "running"]
    assert stats["pending"] >= 1
    health = httpx2.get(f"{running.url}/health")
    assert (health.status_code, health.text.strip()) == (200, "ok")


def test_a_webhook_arrives_with_its_body_and_headers(running: Up) -> None:
    came: list[tuple[str, str | None, Any]] = []

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            came.append((self.path, self.headers["Authorization"], body))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Nothing."""

    with HTTPServer(("127.0.0.1", 0), Receiver) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        body = {"event": "user.signed_up", "user_id": 123}
        payload = {
            "url": f"http://127.0.0.1:{server.server_port}/hook",
            "method": "POST",
            "body": body,
            "headers": {"Authorization": "Bearer token123"},
        }
        job = plain(running, add(running, type="webhook", payload=payload), "completed")
        server.shutdown()
    assert came == [("/hook", "Bearer token123", body)]
    assert "token123" not in json.dumps(job)


# The idempotent queue behind tokens. --------------------------------------------------------------------------------


def test_its_calls_want_a_token(running: Up) -> None:
    assert httpx2.post(f"{running.url}/addJob", json={"email": "x@example.com"}).status_code == 401
    assert httpx2.get(f"{running.url}/failedJobs").status_code == 401


def test_a_welcome_mail_that_is_asked_for_twice_is_sent_once(running: Up) -> None:
    said = {"email": "user1@example.com", "name": "Ann"}
    headers = {"Authorization": f"Bearer {running.token('submit')}", "Idempotency-Key": "welcome-user1"}
    answers = [httpx2.post(f"{running.url}/addJob", headers=headers, timeout=20, json=said) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [202, 200, 200]
    (job_id,) = {answer.json()["id"] for answer in answers}
    plain(running, job_id, "completed")
    assert len(mails(running, "user1@example.com")) == 1


def test_failed_jobs_come_by_page(running: Up) -> None:
    job_id = add(running, type="default", payload={"task": "fail"}, max_attempts=1)
    plain(running, job_id, "failed")
    page = running.asked("GET", "/failedJobs?page=1&limit=1").json()
    assert (page["page"], page["limit"], [job["id"] for job in page["jobs"]]) == (1, 1, [job_id])
    assert page["total"] >= 1


# Redis, which all but one of them have. -----------------------------------------------------------------------------


def valkey(made: Up) -> list[psutil.Process]:
    return [each for each in made.everyone() if each.name() == "valkey-server"]


def test_a_valkey_that_dies_is_started_again_and_nothing_is_lost_meanwhile(running: Up) -> None:
    (before,) = valkey(running)
    assert running.report["redis"] in {f"127.0.0.1:{each.laddr.port}" for each in before.net_connections()}
    eventually(lambda: "redis: ok" in httpx2.get(f"{running.url}/readyz?verbose").text)
    before.kill()
    assert plain(running, add(running, type="add_numbers", payload={"a": 1, "b": 1}), "completed")["result"] == 2
    eventually(lambda: [each.pid for each in valkey(running)] not in ([], [before.pid]))
    eventually(lambda: "redis: ok" in httpx2.get(f"{running.url}/readyz?verbose").text)
    assert "Valkey has ended; it is started again" in running.said
