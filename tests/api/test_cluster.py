"""The cluster over HTTP: counts, queues, workers and types as the store has them; pause and resume, and who did it."""

from collections.abc import Callable
from typing import Any
from uuid import uuid4

import httpx2
import pytest

from tests.factory import Rig
from windlass.model import Declared, NewJob, NewWorker, Status
from windlass.store.store import Store

_SOME = "0193b0a0-0000-7000-8000-000000000000"


async def test_stats_count_every_job_in_the_status_it_is_shown_in(api: httpx2.AsyncClient, rig: Rig) -> None:
    for status in Status:
        await rig.job(status)
    stats = (await api.get("/v1/stats")).json()
    assert stats["total"] == len(Status)
    assert stats["statuses"] == {status.value: 1 for status in Status}
    assert sum(line["count"] for line in stats["lines"]) == stats["total"]


async def test_stats_of_an_empty_cluster_name_every_status(api: httpx2.AsyncClient) -> None:
    stats = (await api.get("/v1/stats")).json()
    dead_letters = stats.pop("dead_letters")
    assert stats.pop("needs_decision") == 0
    assert (dead_letters["count"], dead_letters["oldest_at"]) == (0, None)
    assert stats == {"total": 0, "statuses": {status.value: 0 for status in Status}, "lines": [], "complete": True}


async def test_no_list_is_longer_than_its_page_and_the_pages_make_the_whole(api: httpx2.AsyncClient, rig: Rig) -> None:
    """Anyone who may submit can make queues without end."""
    names = [f"queue-{n:04}" for n in range(1_030)]
    await rig.store.intake.enqueue([NewJob("echo", queue=name) for name in names] + [NewJob("echo", queue=names[7])])
    for n in range(3):
        await rig.worker(queues=[names[n]])
    stats = (await api.get("/v1/stats")).json()
    assert (stats["total"], len(stats["lines"]), stats["complete"]) == (1_031, 1_000, False)
    assert {"queue": names[7], "type": "echo", "status": "ready", "count": 2} in stats["lines"]
    assert len((await api.get("/v1/queues")).json()["queues"]) == 1_000
    for what, most in (("queues", 400), ("workers", 2), ("types", 1)):
        whole = (await api.get(f"/v1/{what}")).json()
        seen: list[dict[str, Any]] = []
        cursor: str | None = ""
        pages = 0
        while cursor is not None:
            query = {"limit": most} | ({"cursor": cursor} if cursor else {})
            page = (await api.get(f"/v1/{what}", params=query)).json()
            assert len(page[what]) <= most
            seen += page[what]
            cursor, pages = page["next_cursor"], pages + 1
        assert pages > 1
        key = "id" if what == "workers" else "name"
        assert [each[key] for each in seen][:1_000] == [each[key] for each in whole[what]]


async def test_queues_tell_depth_age_and_statuses(api: httpx2.AsyncClient, rig: Rig) -> None:
    await rig.enqueue(2)
    await rig.enqueue(queue="mail", delay_s=60)
    default, mail = (await api.get("/v1/queues")).json()["queues"]
    assert (default["name"], default["depth"], default["statuses"]) == ("default", 2, {"ready": 2})
    assert default["oldest_age_s"] >= 0
    assert (mail["depth"], mail["oldest_age_s"], mail["statuses"]) == (0, None, {"scheduled": 1})


@pytest.mark.parametrize("name", ["default", "mail", "a/b:c.d-e_f"])
async def test_a_paused_queue_gives_out_nothing_until_it_is_resumed(
    api: httpx2.AsyncClient, rig: Rig, store: Store, name: str
) -> None:
    (job,) = await rig.enqueue(queue=name)
    worker = await rig.worker(queues=[name])
    path = f"/v1/queues/{name.replace('/', '%2F')}"
    paused = await api.post(f"{path}/pause")
    assert paused.status_code == 200
    assert (paused.json()["name"], paused.json()["paused"]) == (name, True)
    assert await worker.claim() == []
    assert (await api.post(f"{path}/pause")).json()["paused"]  # may be repeated
    assert not (await api.post(f"{path}/resume")).json()["paused"]
    assert [lease.job_id for lease in await worker.claim()] == [job]
    actions = [(entry.actor, entry.action, entry.target) for entry in await store.accounts.audit()]
    assert actions == [("tester", f"queue.{verb}", name) for verb in ("resume", "pause", "pause")]


async def test_a_queue_is_paused_before_its_first_job_comes(api: httpx2.AsyncClient) -> None:
    assert (await api.post("/v1/queues/later/pause")).json()["paused"]
    (queue,) = (await api.get("/v1/queues")).json()["queues"]
    assert (queue["name"], queue["paused"], queue["depth"]) == ("later", True, 0)


@pytest.mark.parametrize("name", ["-x", "a b", "%00", "x" * 101, "%C3%A9", "%3Cscript%3E"])
async def test_a_name_that_no_queue_can_have_is_refused_and_nothing_is_written(
    api: httpx2.AsyncClient, store: Store, name: str
) -> None:
    answer = await api.post(f"/v1/queues/{name}/pause")
    assert answer.status_code == 422
    assert answer.json()["field"] == "queue"
    assert await store.views.queues() == []
    assert await store.accounts.audit() == []


async def test_workers_tell_what_they_are_doing(api: httpx2.AsyncClient, rig: Rig, store: Store) -> None:
    idle, busy, draining, dead, stopped = [await rig.worker(threads=n) for n in (1, 2, 3, 4, 5)]
    await rig.enqueue(thread_demand=2)
    await busy.claim()
    await store.upkeep.drain([draining.id])
    await store.upkeep.bury([dead.id], "crashed")
    await store.upkeep.bury([stopped.id], "left")
    told = {worker["threads"]: worker for worker in (await api.get("/v1/workers")).json()["workers"]}
    statuses = [told[n]["status"] for n in (1, 2, 3, 4, 5)]
    assert statuses == ["idle", "busy", "draining", "dead", "stopped"]
    assert (told[2]["busy_threads"], told[2]["jobs"], told[2]["id"]) == (2, 1, str(busy.id))
    assert told[4]["died_at"] is not None
    assert told[1]["id"] == str(idle.id)


async def test_the_thread_map_tells_which_job_holds_which_threads_and_what_is_only_claimed(
    api: httpx2.AsyncClient, rig: Rig
) -> None:
    worker = await rig.worker(threads=4)
    wide, *_ = [*await rig.enqueue(thread_demand=3, name="wide"), *await rig.enqueue(3)]
    assert len(await worker.claim(4, budget=8)) == 4
    (told,) = (await api.get("/v1/workers/threads")).json()["workers"]
    assert (told["id"], told["claimed"], told["memory_bytes"]) == (str(worker.id), 2, None)
    first, second = told["running"]
    assert first.pop("started_at") <= second.pop("started_at")
    assert first == {"job_id": str(wide), "type": "echo", "name": "wide", "threads": 3, "state": "running"}
    assert (second["name"], second["threads"]) == (None, 1)
    (listed,) = (await api.get("/v1/workers")).json()["workers"]
    assert (listed["busy_threads"], listed["jobs"], listed["claimed"]) == (4, 4, 2)


@pytest.mark.parametrize("verb", ["drain", "stop"])
async def test_a_worker_is_asked_to_leave_and_the_audit_says_by_whom(
    api: httpx2.AsyncClient, store: Store, verb: str
) -> None:
    new = NewWorker(uuid4(), "host-1", 4, ["default"], ["echo"], uuid4(), version="1.2.3")
    await store.upkeep.register(new, lease_ttl_s=60)
    for _ in range(2):  # may be repeated
        answer = await api.post(f"/v1/workers/{new.id}/{verb}")
        assert answer.status_code == 200
        told = answer.json()
        assert (told["id"], told["status"], told["version"]) == (str(new.id), "draining", "1.2.3")
    for entry in (audit := await store.accounts.audit()):
        assert (entry.actor, entry.action, entry.target) == ("tester", f"worker.{verb}", str(new.id))
    assert len(audit) == 2


@pytest.mark.parametrize("verb", ["drain", "stop"])
async def test_what_cannot_be_asked_to_leave_is_told_and_nothing_is_noted(
    api: httpx2.AsyncClient, store: Store, verb: str
) -> None:
    for unknown in (str(uuid4()), "host-1", "%00", "x" * 300):
        answer = await api.post(f"/v1/workers/{unknown}/{verb}")
        assert (answer.status_code, answer.json()["code"]) == (404, "worker_not_found")
    gone = NewWorker(uuid4(), "host-1", 4, ["default"], ["echo"], uuid4())
    await store.upkeep.register(gone, lease_ttl_s=60)
    await store.upkeep.bury([gone.id], "left")
    answer = await api.post(f"/v1/workers/{gone.id}/{verb}")
    assert (answer.status_code, answer.json()["code"]) == (409, "not_possible")
    assert "host-1 has ended" in answer.json()["detail"]
    assert await store.accounts.audit() == []


async def test_types_tell_their_defaults_their_schema_and_whether_anyone_runs_them(
    api: httpx2.AsyncClient, rig: Rig, store: Store
) -> None:
    schema = '{"type":"object","properties":{"n":{"type":"integer","maximum":9007199254740993}}}'
    await store.upkeep.declare([Declared("sum", priority=5, description="Adds.", schema=schema)])
    await rig.worker(types=["echo"])
    answer = await api.get("/v1/types")
    told = {known["name"]: known for known in answer.json()["types"]}
    assert (told["sum"]["priority"], told["sum"]["description"], told["sum"]["alive"]) == (5, "Adds.", False)
    assert told["echo"]["alive"]
    assert told["echo"]["payload_schema"] is None
    assert {name: value for name, value in told["echo"].items() if name not in {"description", "payload_schema"}} == {
        "name": "echo", "queue": "default", "priority": 0, "thread_demand": 1, "max_attempts": 3, "timeout_s": 3600.0,
        "retry": {"base_s": 1.0, "factor": 2.0, "cap_s": 600.0, "jitter": 0.2}, "tags": [], "if_too_wide": "narrow",
        "isolation": "none", "at_most_once": False, "alive": True, "versions": 1, "served_by": 1,
    }  # fmt: skip
    assert "9007199254740993" in answer.text  # digit for digit


@pytest.mark.parametrize(
    "path", ["stats", "queues", "workers", "workers/threads", "types", "events", "dead-letters", "dead-letters/groups"]
)
async def test_nobody_looks_without_the_scope_to_read(
    http: httpx2.AsyncClient, as_scope: Callable[..., httpx2.AsyncClient], path: str
) -> None:
    assert (await http.get(f"/v1/{path}")).status_code == 401
    async with as_scope("submit") as submitter:
        assert (await submitter.get(f"/v1/{path}")).status_code == 403


@pytest.mark.parametrize(
    "path",
    [
        "queues/default/pause",
        "queues/default/resume",
        "dead-letters/replay",
        f"workers/{_SOME}/drain",
        f"workers/{_SOME}/stop",
    ],
)
async def test_nobody_operates_without_the_scope_for_it(
    http: httpx2.AsyncClient, as_scope: Callable[..., httpx2.AsyncClient], store: Store, path: str
) -> None:
    assert (await http.post(f"/v1/{path}")).status_code == 401
    async with as_scope("read", "submit") as reader:
        assert (await reader.post(f"/v1/{path}")).status_code == 403
    assert await store.views.queues() == []
