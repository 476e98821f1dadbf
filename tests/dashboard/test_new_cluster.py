"""A cluster of its own that nothing was submitted to, behind a proxy with a prefix; its server is restarted under the page."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.dashboard.proxy import proxied
from tests.dashboard.visits import expect_live, fresh_tag, login_link, submit
from tests.e2e.household import Up, up
from tests.in_memory import memory_folder

Visiting = Callable[..., Page]
PREFIX = "/tools/windlass"


@pytest.fixture(scope="module")
def new_cluster(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with memory_folder(otherwise=tmp_path_factory.mktemp("new")) as folder:
        args = ("--workers", "4")
        with up(*args, folder=folder / "cluster", WINDLASS_BASE_PATH=PREFIX) as running:
            yield running


@pytest.fixture(scope="module")
def url(new_cluster: Up) -> Iterator[str]:
    with proxied(PREFIX, new_cluster.url) as address:
        yield address


@pytest.fixture(scope="module")
def session(browser: Browser, new_cluster: Up, url: str) -> Any:
    """A login behind the proxy, by a link."""
    link = login_link(new_cluster)
    with browser.new_context() as context:
        page = context.new_page()
        page.goto(link.replace(new_cluster.url, url))
        page.get_by_role("button", name="Log in").click()
        expect(page).to_have_url(f"{url}/ui/")
        return context.storage_state()


@pytest.fixture
def open_page(visit: Visiting, url: str) -> Visiting:
    return lambda path: visit(path, url=url)


def test_empty_cluster_teaches_and_its_demonstration_fills_it(open_page: Visiting, url: str) -> None:
    page = open_page("/")  # the root leads to the dashboard, under the prefix too
    expect(page).to_have_url(f"{url}/ui/")
    expect(page.get_by_text("No job has been submitted yet")).to_be_visible()
    expect(page.locator("pre")).to_contain_text(f"curl -s {url}/v1/jobs")
    page.get_by_role("button", name="Run a demonstration").click()
    expect(page.get_by_text("84 jobs were submitted.")).to_be_visible()
    expect(page.get_by_text("No job has been submitted yet")).to_be_hidden()
    expect(page.get_by_role("figure", name="Throughput")).to_be_visible()


def test_every_screen_works_under_a_prefix(open_page: Visiting, url: str, new_cluster: Up) -> None:
    job = new_cluster.submit("add_numbers", a=1, b=41)
    page = open_page("/ui/")
    expect_live(page)
    for name in ("Jobs", "Queues", "Workers", "Dead letters", "Settings", "Overview"):
        page.get_by_role("navigation", name="Screens").get_by_role("link", name=name).click()
        expect(page.get_by_role("heading", name=name, level=1)).to_be_visible()
        assert page.url.startswith(f"{url}/ui/")
    page.goto(f"{url}/ui/jobs/{job}")  # asked of the server, at the depth of a screen's own address
    expect(page.get_by_role("heading", name="add_numbers")).to_be_visible()
    expect(page.locator("section", has=page.get_by_role("heading", name="Result"))).to_contain_text("42")


def test_page_reconnects_after_a_restart_and_shows_new_jobs(open_page: Visiting, new_cluster: Up) -> None:
    tag = fresh_tag()
    page = open_page(f"/ui/jobs?tag={tag}")
    expect_live(page)
    page.evaluate("window.sameDocument = true")
    new_cluster.api.kill()  # `windlass up` starts another
    expect(page.get_by_test_id("live")).to_have_text("Reconnecting")
    expect_live(page)
    [job] = submit(new_cluster, {"type": "add_numbers", "payload": {"a": 1, "b": 1}, "tags": [tag]})
    expect(page.locator(f"[data-job='{job}']")).to_contain_text("Completed")
    assert page.evaluate("window.sameDocument")
