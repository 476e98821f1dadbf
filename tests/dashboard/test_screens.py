"""Queues, workers, the overview, and the ways from one screen to another."""

import re
from collections.abc import Callable
from datetime import datetime

from playwright.sync_api import Page, expect

from tests.dashboard.visits import expect_live, fresh_tag, submit
from tests.e2e.household import Up
from tests.eventually import eventually

Visiting = Callable[..., Page]


def test_paused_queue_keeps_its_jobs_until_it_is_resumed(visit: Visiting, cluster: Up) -> None:
    page = visit("/ui/queues")
    submit(cluster, {"type": "add_numbers", "payload": {"a": 1, "b": 1}, "queue": "mail"})
    page.get_by_role("button", name="Pause mail").click()
    row = page.get_by_role("row").filter(has=page.get_by_role("link", name="mail"))
    expect(row.get_by_text("paused")).to_be_visible()
    [job] = submit(cluster, {"type": "add_numbers", "payload": {"a": 1, "b": 2}, "queue": "mail"})
    expect(row.get_by_role("cell", name="1", exact=True).first).to_be_visible()
    assert cluster.job(job)["status"] == "held"
    page.get_by_role("button", name="Resume mail").click()
    expect(row.get_by_text("paused")).to_be_hidden()
    cluster.until(job, "completed")
    row.get_by_role("link", name="mail").click()
    expect(page.get_by_role("heading", name="Queue mail")).to_be_visible()
    expect(page.get_by_text("served", exact=True)).to_be_visible()


def test_wide_job_spans_its_cells_in_the_thread_map(visit: Visiting, cluster: Up) -> None:
    [job] = submit(cluster, {"type": "run_until_cancelled", "thread_demand": 3, "payload": {}})
    cluster.until(job, "running")
    page = visit("/ui/workers")
    cell = page.locator("[data-cell]", has=page.locator(f"a[href$='{job}']"))
    expect(cell).to_have_attribute("data-span", "3")
    expect(cell).to_have_attribute("data-cell", "running")
    free = page.locator("[data-worker]", has=cell).locator("[data-cell=free]")
    expect(free).to_have_count(1)  # of four threads
    assert cell.bounding_box()["width"] > 2.5 * free.bounding_box()["width"]  # type: ignore[index]
    cluster.asked("POST", f"/v1/jobs/{job}/cancel", json={})
    expect(cell).to_have_count(0)


def test_dragging_over_a_chart_leads_to_the_jobs_of_that_time(visit: Visiting, cluster: Up) -> None:
    job = cluster.submit("add_numbers", a=1, b=2)
    cluster.until(job, "completed")

    def counted() -> bool:  # the leader folds finished jobs into its rollups
        groups = cluster.asked("GET", "/v1/series?seconds=3600").json()["groups"]
        return bool(groups) and sum(groups[0]["completed"]) > 0

    eventually(counted, 60)
    page = visit("/ui/")
    chart = page.get_by_role("figure", name="Throughput").locator(".u-over")
    box = chart.bounding_box()
    assert box is not None
    middle = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + box["width"] * 0.5, middle)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] - 1, middle, steps=4)
    page.mouse.up()
    expect(page).to_have_url(re.compile(r"/ui/jobs\?.*finished_after="))
    expect(page.get_by_role("button", name="Drop the filter finished after")).to_be_visible()
    expect(page.locator(f"[data-job='{job}']")).to_be_visible()
    query = dict(re.findall(r"(finished_\w+)=([^&]+)", page.url))
    after, before = (datetime.fromisoformat(_unquoted(query[f"finished_{each}"])) for each in ("after", "before"))
    assert 1500 < (before - after).total_seconds() < 2100  # half of an hour, and the minute that has begun


def _unquoted(value: str) -> str:
    from urllib.parse import unquote

    return unquote(value).strip('"')


def test_command_palette_works_by_keyboard_alone(visit: Visiting, cluster: Up) -> None:
    tag = fresh_tag()
    [job] = submit(cluster, {"type": "add_numbers", "payload": {"a": 1, "b": 1}, "tags": [tag]})
    page = visit()
    expect_live(page)
    page.keyboard.press("Control+k")
    palette = page.get_by_role("dialog", name="Search and commands")
    expect(palette.get_by_role("combobox")).to_be_focused()
    page.keyboard.type("queues")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Queues")).to_be_visible()
    expect(palette).to_be_hidden()
    page.keyboard.press("/")
    page.keyboard.type(job[:-2])  # the beginning of an id is enough
    expect(palette.get_by_role("option", name=f"add_numbers {job}")).to_be_visible()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="add_numbers")).to_be_visible()
    page.keyboard.press("g")
    page.keyboard.press("w")
    expect(page.get_by_role("heading", name="Workers")).to_be_visible()
    page.keyboard.press("n")
    expect(page.get_by_role("dialog", name="New job")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keyboard")).to_be_visible()


def test_key_is_made_shown_once_and_revoked(visit: Visiting) -> None:
    name = fresh_tag()
    page = visit("/ui/settings")
    page.get_by_role("button", name="New key").click()
    dialog = page.get_by_role("dialog", name="New API key")
    dialog.get_by_label("Name").fill(name)
    dialog.get_by_role("button", name="Make it").click()
    expect(dialog.get_by_text("shown this once")).to_be_visible()
    dialog.get_by_role("button", name="Done").click()
    page.get_by_role("button", name=f"Revoke the key {name}").click()
    expect(page.get_by_role("button", name=f"Revoke the key {name}")).to_have_count(0)
    expect(page.get_by_role("region", name="Audit log")).to_be_visible()
