"""What charts are made of, and the filters of lists, over HTTP."""

from datetime import timedelta
from typing import Any

import httpx2
import pytest

from tests.factory import Rig
from windlass.model import Status
from windlass.rollups import Recorder

Client = httpx2.AsyncClient


@pytest.fixture
async def charted(rig: Rig) -> Rig:
    """Two queues and two types with something in their charts."""
    for queue, kind, statuses in (
        ("mail", "echo", (Status.COMPLETED, Status.COMPLETED, Status.FAILED)),
        ("media", "other", (Status.COMPLETED, Status.CANCELLED)),
    ):
        for status in statuses:
            await rig.job(status, queue=queue, type=kind)
    recorder = Recorder()
    recorder.ended("mail", "echo", 0.01, 2.0, retried=True)
    await (await rig.worker()).claims.record_rollups(recorder.take())
    assert await rig.store.upkeep.fold_counts()
    await rig.store.upkeep.fold_rollups()
    return rig


def totals(group: dict[str, Any]) -> tuple[int, ...]:
    return tuple(sum(group[name]) for name in ("completed", "failed", "cancelled", "retried"))


async def series(api: Client, **query: Any) -> dict[str, Any]:
    answer = await api.get("/v1/series", params=query)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


@pytest.mark.usefixtures("charted")
async def test_a_series_of_everything_has_counts_and_percentiles_for_each_step(api: Client) -> None:
    told = await series(api)
    (group,) = told["groups"]
    assert (group["queue"], group["type"], told["step_s"]) == (None, None, 60)
    assert totals(group) == (3, 1, 1, 1)
    lengths = {name: len(values) for name, values in group.items() if isinstance(values, list)}
    assert set(lengths.values()) == {60}
    (ran_s,) = [value for value in group["execution_p50_s"] if value is not None]
    assert 1 <= ran_s <= 4
    (waited_s,) = [value for value in group["queue_p99_s"] if value is not None]
    assert 0.005 <= waited_s <= 0.02


@pytest.mark.usefixtures("charted")
async def test_a_series_by_queue_or_type_has_a_line_for_each(api: Client) -> None:
    by_queue = {group["queue"]: totals(group) for group in (await series(api, by="queue"))["groups"]}
    by_type = {group["type"]: totals(group) for group in (await series(api, by="type"))["groups"]}
    assert by_queue == {"mail": (2, 1, 0, 1), "media": (1, 0, 1, 0)}
    assert by_type == {"echo": (2, 1, 0, 1), "other": (1, 0, 1, 0)}


@pytest.mark.usefixtures("charted")
async def test_a_series_of_one_queue_or_type_counts_it_alone(api: Client) -> None:
    for query, wanted in (
        ({"queue": "media"}, (1, 0, 1, 0)),
        ({"type": "echo"}, (2, 1, 0, 1)),
        ({"queue": "mail", "type": "echo"}, (2, 1, 0, 1)),
        ({"queue": "mail", "type": "other"}, (0, 0, 0, 0)),
        ({"queue": "nobody"}, (0, 0, 0, 0)),
    ):
        (group,) = (await series(api, **query))["groups"]
        assert totals(group) == wanted, query


@pytest.mark.usefixtures("charted")
@pytest.mark.parametrize(("seconds", "step_s"), [(60, 60), (86_400, 900), (2 * 86_400, 1_800), (60 * 86_400, 21_600)])
async def test_a_longer_span_has_longer_steps_and_never_many_points(api: Client, seconds: int, step_s: int) -> None:
    told = await series(api, seconds=seconds)
    (group,) = told["groups"]
    assert told["step_s"] == step_s
    assert len(group["completed"]) == max(1, seconds // step_s) <= 250
    if seconds > 60:  # the minute may have ended since
        assert totals(group) == (3, 1, 1, 1)


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("seconds=59", "seconds"),
        ("seconds=5184001", "seconds"),
        ("seconds=-1", "seconds"),
        ("seconds=1e9", "seconds"),
        ("seconds=x", "seconds"),
        ("by=worker", "by"),
        ("queue=", "queue"),
        ("colour=1", "colour"),
    ],
)
async def test_a_span_that_nobody_can_draw_is_refused(api: Client, query: str, field: str) -> None:
    answer = await api.get(f"/v1/series?{query}")
    assert (answer.status_code, answer.json()["field"]) == (422, field), answer.text


# Filters of lists. --------------------------------------------------------------------------------------------------


async def found(api: Client, **query: Any) -> set[str]:
    answer = await api.get("/v1/jobs", params=query)
    assert answer.status_code == 200, answer.text
    return {job["id"] for job in answer.json()["jobs"]}


async def test_a_list_is_filtered_by_text_worker_and_the_end(api: Client, rig: Rig) -> None:
    named = str(await rig.job(Status.READY, name="Invoice 42"))
    failed_id = await rig.job(Status.FAILED)
    failed = await rig.store.views.job(failed_id)
    assert failed.finished_at is not None
    assert await found(api, text="invoice") == {named}
    assert await found(api, text="VALUEERROR") == {str(failed_id)}
    assert await found(api, text=named[:13]) >= {named}
    assert await found(api, worker=f"test-{failed.worker_id}") == {str(failed_id)}
    assert await found(api, worker="nobody") == set()
    later = (failed.finished_at + timedelta(seconds=1)).isoformat()
    assert await found(api, finished_after=failed.finished_at.isoformat(), finished_before=later) == {str(failed_id)}
    assert await found(api, finished_after=later) == set()


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("text=", "text"),
        ("worker=", "worker"),
        ("finished_after=2026-01-01T00:00:00", "finished_after"),
        ("finished_before=x", "finished_before"),
        ("text=%00", "text"),
    ],
)
async def test_a_filter_that_means_nothing_is_refused(api: Client, query: str, field: str) -> None:
    answer = await api.get(f"/v1/jobs?{query}")
    assert (answer.status_code, answer.json()["field"]) == (422, field), answer.text


async def test_a_bulk_action_takes_the_filters_of_the_list(api: Client, rig: Rig) -> None:
    named = [await rig.job(Status.READY, name=f"Invoice {n}") for n in range(3)]
    other = await rig.job(Status.READY, name="Letter")
    wanted = {"filter": {"text": "invoice"}}
    preview = (await api.post("/v1/jobs/cancel", json={**wanted, "preview": True})).json()
    assert (preview["matched"], preview["done"], set(preview["sample"])) == (3, 0, set(map(str, named)))
    done = (await api.post("/v1/jobs/cancel", json=wanted)).json()
    assert (done["matched"], done["done"], done["refused"]) == (3, 3, [])
    assert {await rig.status(job_id) for job_id in named} == {Status.CANCELLED}
    assert await rig.status(other) is Status.READY


async def test_a_bulk_action_goes_on_from_its_cursor_until_there_is_nothing_more(api: Client, rig: Rig) -> None:
    for n in range(5):
        await rig.job(Status.READY, name=f"Invoice {n}")
    done: list[int] = []
    cursor = None
    while not done or cursor:
        body = {"filter": {"text": "Invoice", "status": ["ready"]}, "limit": 2, "cursor": cursor}
        told = (await api.post("/v1/jobs/cancel", json=body)).json()
        done.append(told["done"])
        cursor = told["next_cursor"]
    assert done == [2, 2, 1]
