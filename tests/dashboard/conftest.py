"""One browser and one cluster for the folder: `windlass up` with its own PostgreSQL, two workers, and the types of tasks.py."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from tests.dashboard.chromium import chromium
from tests.dashboard.visits import Visit, log_in_by_link
from tests.e2e.household import Up, up
from tests.in_memory import memory_folder

expect.set_options(timeout=30_000)


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="package")
def cluster(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """Made after the browser: where there is none, nothing is started in vain."""
    with memory_folder(otherwise=tmp_path_factory.mktemp("dashboard")) as folder:
        args = ("--workers", "4,2", "--app", "tests.dashboard.tasks:app", "--queues", "default,mail,reports")
        with up(*args, folder=folder / "cluster") as running:
            yield running


@pytest.fixture(scope="package")
def session(browser: Browser, cluster: Up) -> Any:
    """The cookies of an admin who has logged in."""
    with browser.new_context() as context:
        log_in_by_link(context.new_page(), cluster)
        return context.storage_state()


@pytest.fixture
def visit(browser: Browser, cluster: Up, session: Any) -> Iterator[Callable[..., Page]]:
    """Opens a path of the dashboard as an admin, in a context of its own. Errors of the page fail the test at its end."""
    visits: list[Visit] = []

    def open_page(path: str = "/ui/", *, url: str = cluster.url, state: Any = session, **options: Any) -> Page:
        context: BrowserContext = browser.new_context(storage_state=state, **{"base_url": url, **options})
        visits.append(Visit(context))
        visits[-1].page.goto(url + path)
        return visits[-1].page

    yield open_page
    for each in visits:
        each.close()
    assert [error for each in visits for error in each.errors] == []


@pytest.fixture(scope="package")
def axe_script() -> Path:
    """axe-core, as the tools of web/ bring it."""
    path = Path(__file__).parents[2] / "web" / "node_modules" / "axe-core" / "axe.min.js"
    assert path.exists(), f"{path} is not there: tools/web brings it"
    return path
