"""Jobs: submit one and watch it, filter, select, and act on one or many."""

import re
from collections.abc import Callable

from playwright.sync_api import Locator, Page, expect

from tests.dashboard.visits import expect_live, failing, fresh_tag, submit
from tests.e2e.household import Up

Visiting = Callable[..., Page]


def rows(page: Page) -> Locator:
    return page.locator("[data-job]")


def test_job_submitted_from_the_drawer_finishes_without_a_reload(visit: Visiting) -> None:
    page = visit()
    expect_live(page)
    page.evaluate("window.sameDocument = true")
    page.get_by_role("button", name="New job").click()
    drawer = page.get_by_role("dialog", name="New job")
    drawer.get_by_label("Type").fill("add_numbers")
    drawer.get_by_label("a", exact=True).fill("2")
    drawer.get_by_label("b", exact=True).fill("40")
    drawer.get_by_role("button", name="Submit").click()
    expect(page.get_by_role("heading", name="add_numbers", level=1)).to_be_visible()
    expect(page.locator("main")).to_contain_text("Completed")
    expect(page.locator("section", has=page.get_by_role("heading", name="Result"))).to_contain_text("42")
    assert page.evaluate("window.sameDocument")


def test_error_of_the_server_stands_at_its_field(visit: Visiting) -> None:
    page = visit()
    page.get_by_role("button", name="New job").click()
    drawer = page.get_by_role("dialog", name="New job")
    drawer.get_by_label("Type").fill("large_array_sum")
    drawer.get_by_label("count").fill("-5")
    drawer.get_by_role("button", name="Submit").click()
    field = drawer.get_by_label("count")
    expect(field).to_have_attribute("aria-invalid", "true")
    note = field.get_attribute("aria-describedby")
    expect(page.locator(f"[id='{note}']")).to_have_text(re.compile(r"\S"))
    drawer.get_by_text("Options").click()
    drawer.get_by_label("count").fill("1")
    drawer.get_by_label("Threads").fill("0")
    drawer.get_by_role("button", name="Submit").click()
    expect(drawer.get_by_label("Threads")).to_have_attribute("aria-invalid", "true")
    expect(drawer.get_by_label("count")).not_to_have_attribute("aria-invalid", "true")


def test_running_job_shows_progress_and_log_and_can_be_cancelled(visit: Visiting, cluster: Up) -> None:
    job = cluster.submit("run_until_cancelled")
    page = visit(f"/ui/jobs/{job}")
    expect(page.get_by_role("progressbar", name="Progress of the job")).to_be_visible()
    expect(page.get_by_text("half of it")).to_be_visible()
    expect(page.get_by_text("waiting to be cancelled")).to_be_visible()
    page.get_by_role("button", name="Cancel").click()
    expect(page.locator("main ol")).to_contain_text("Cancelled")
    expect(page.get_by_role("button", name="Retry")).to_be_visible()


def test_failed_job_waits_among_dead_letters_and_is_replayed(visit: Visiting, cluster: Up) -> None:
    [job] = submit(cluster, {**failing(), "type": "network_task"})
    cluster.until(job, "failed")
    page = visit("/ui/dead-letters")
    group = page.get_by_role("listitem").filter(has_text="network_task").filter(has_text="AskedToFail")
    group.get_by_text("Newest of them").click()
    expect(group.get_by_role("link", name=job)).to_be_visible()
    expect(group.locator("pre")).to_contain_text("the payload asks this attempt to fail")
    group.get_by_role("button", name="Replay").click()
    dialog = page.get_by_role("dialog", name="Replay dead letters")
    expect(dialog).to_contain_text("This will affect 1 job.")
    dialog.get_by_label("Pace").select_option(label="10 a second")
    dialog.get_by_role("button", name="Replay them").click()
    expect(page.get_by_text("1 job replayed.")).to_be_visible()
    page.goto(f"{cluster.url}/ui/jobs/{job}")
    expect(page.get_by_text("Attempt 2: failed")).to_be_visible()


def test_shift_selects_a_range_and_a_preview_counts_it_before_the_retry(visit: Visiting, cluster: Up) -> None:
    tag = fresh_tag()
    ids = submit(cluster, *(failing(tags=[tag], name=f"number {n}") for n in range(6)))
    for each in ids:
        cluster.until(each, "failed")
    page = visit(f"/ui/jobs?tag={tag}")
    expect(rows(page)).to_have_count(6)
    boxes = page.get_by_role("checkbox", name="Select job")
    boxes.nth(1).click()
    boxes.nth(4).click(modifiers=["Shift"])
    expect(page.get_by_text("4 jobs selected")).to_be_visible()
    page.get_by_role("button", name="Retry").click()
    dialog = page.get_by_role("dialog", name="Retry jobs")
    expect(dialog).to_contain_text("This will affect 4 jobs.")
    dialog.get_by_role("button", name="Retry them").click()
    expect(page.get_by_text("4 jobs retried.")).to_be_visible()
    expect(rows(page).filter(has_text="2 / 1")).to_have_count(4)  # the list follows without a reload
    assert sum(cluster.until(each, "failed")["attempts"] for each in ids) == 10


def test_keyboard_selects_and_opens_rows(visit: Visiting, cluster: Up) -> None:
    tag = fresh_tag()
    ids = submit(cluster, *({"type": "add_numbers", "payload": {"a": 1, "b": n}, "tags": [tag]} for n in range(3)))
    page = visit(f"/ui/jobs?tag={tag}")
    expect(rows(page)).to_have_count(3)
    page.get_by_role("grid", name="Jobs").focus()
    page.keyboard.press("j")
    page.keyboard.press("x")
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("Shift+X")
    expect(page.get_by_text("3 jobs selected")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_text("3 jobs selected")).to_be_hidden()
    page.get_by_role("grid", name="Jobs").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_text(ids[0])).to_be_visible()  # the last row is the oldest


def test_filters_are_chips_that_survive_a_reload_and_the_way_back(visit: Visiting, cluster: Up) -> None:
    tag = fresh_tag()
    ids = submit(
        cluster,
        *(failing(tags=[tag], name="one that fails") for _ in range(2)),
        {"type": "add_numbers", "payload": {"a": 1, "b": 1}, "tags": [tag], "name": "one that works"},
    )
    for each in ids:
        cluster.until(each, "failed", "completed")
    page = visit("/ui/jobs")
    field = page.get_by_role("combobox", name="Filter jobs")
    field.fill(f"tag:{tag}")
    field.press("Enter")
    expect(rows(page)).to_have_count(3)
    field.fill("works")
    field.press("Enter")
    expect(rows(page)).to_have_count(1)
    page.reload()
    expect(page.get_by_role("button", name="Drop the filter tag")).to_be_visible()
    expect(page.get_by_role("button", name="Drop the filter text")).to_be_visible()
    expect(rows(page)).to_have_count(1)
    page.go_back()
    expect(page.get_by_role("button", name="Drop the filter text")).to_be_hidden()
    expect(rows(page)).to_have_count(3)
    page.get_by_role("navigation", name="Statuses").get_by_role("link", name="Failed").click()
    expect(rows(page)).to_have_count(2)
    page.get_by_role("button", name="Drop the filter tag").click()
    expect(page).to_have_url(re.compile(r"status="))
    assert tag not in page.url


def test_all_that_match_can_be_acted_on(visit: Visiting, cluster: Up) -> None:
    tag = fresh_tag()
    later = {"type": "add_numbers", "payload": {"a": 1, "b": 1}, "tags": [tag], "delay_s": 3600}
    ids = submit(cluster, *(later for _ in range(5)))
    page = visit(f"/ui/jobs?tag={tag}")
    page.get_by_role("button", name="All that match").click()
    page.get_by_role("menuitem", name="Cancel").click()
    dialog = page.get_by_role("dialog", name="Cancel jobs")
    expect(dialog).to_contain_text("This will affect 5 jobs.")
    dialog.get_by_role("button", name="Cancel them").click()
    expect(page.get_by_text("5 jobs cancelled.")).to_be_visible()
    assert {cluster.job(each)["status"] for each in ids} == {"cancelled"}


def test_waiting_job_says_why_and_can_be_run_now(visit: Visiting, cluster: Up) -> None:
    [job] = submit(cluster, {"type": "add_numbers", "payload": {"a": 20, "b": 1}, "delay_s": 3600})
    page = visit(f"/ui/jobs/{job}")
    expect(page.get_by_role("region", name="Why it waits")).to_be_visible()
    page.get_by_role("button", name="Run now").click()
    expect(page.locator("main ol")).to_contain_text("Completed")
    expect(page.get_by_role("region", name="Why it waits")).to_be_hidden()
