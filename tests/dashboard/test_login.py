"""Who gets in, and who does not."""

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from tests.dashboard.visits import expect_live, login_link
from tests.e2e.household import Up

PASSWORD = "a long enough pass phrase"


@pytest.fixture
def door(visit: Callable[..., Page]) -> Callable[[str], Page]:
    """Opens a path as nobody."""
    return lambda path: visit(path, state=None)


def enter(page: Page, name: str, password: str) -> None:
    page.get_by_label("Name").fill(name)
    page.get_by_label("Password").fill(password)
    page.get_by_role("button", name="Log in").click()


@pytest.fixture(scope="module")
def users(cluster: Up) -> None:
    for name, scopes in (("ada", ["admin"]), ("reader", ["read"])):
        body = {"name": name, "password": PASSWORD, "scopes": scopes}
        answer = cluster.asked("POST", "/v1/users", json=body)
        assert answer.is_success, answer.text


def test_root_leads_to_the_dashboard_and_that_to_the_login(door: Callable[[str], Page]) -> None:
    page = door("/")
    expect(page.get_by_role("button", name="Log in")).to_be_visible()


@pytest.mark.usefixtures("users")
def test_password_leads_to_the_screen_that_was_asked_for(door: Callable[[str], Page]) -> None:
    page = door("/ui/jobs?tag=invoices")
    enter(page, "ada", PASSWORD)
    expect(page.get_by_role("heading", name="Jobs")).to_be_visible()
    expect(page.get_by_role("button", name="Drop the filter tag")).to_be_visible()
    expect_live(page)


@pytest.mark.usefixtures("users")
def test_wrong_password_is_refused_and_the_right_one_then_works(door: Callable[[str], Page]) -> None:
    page = door("/login")
    enter(page, "ada", "not the pass phrase")
    expect(page.get_by_role("alert")).to_contain_text("That did not work")
    enter(page, "ada", PASSWORD)
    expect_live(page)


def test_api_key_logs_in(door: Callable[[str], Page], cluster: Up) -> None:
    key = cluster.asked("POST", "/v1/keys", json={"name": "a program", "scopes": ["admin"]}).json()["key"]
    page = door("/login")
    page.get_by_text("Use an API key instead").click()
    page.get_by_label("API key").fill(key)
    page.get_by_role("button", name="Log in").click()
    expect_live(page)


def test_link_logs_in_once(door: Callable[[str], Page], cluster: Up) -> None:
    link = login_link(cluster).removeprefix(cluster.url)
    page = door(link)
    page.get_by_role("button", name="Log in").click()
    expect_live(page)
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_label("Password")).to_be_visible()
    again = door(link)
    again.get_by_role("button", name="Log in").click()
    expect(again.get_by_role("alert")).to_contain_text("good once")


@pytest.mark.usefixtures("users")
def test_reader_sees_no_action(door: Callable[[str], Page], cluster: Up) -> None:
    job = cluster.submit("add_numbers", a=1, b=2)
    cluster.until(job, "completed")
    page = door("/login")
    enter(page, "reader", PASSWORD)
    expect_live(page)
    for path, shown in (
        ("/ui/jobs", "Jobs"),
        (f"/ui/jobs/{job}", "add_numbers"),
        ("/ui/queues", "Queues"),
        ("/ui/workers", "Workers"),
        ("/ui/dead-letters", "Dead letters"),
    ):
        page.goto(cluster.url + path)
        expect(page.get_by_role("heading", name=shown, level=1)).to_be_visible()
        for action in ("New job", "Retry", "Cancel", "Run now", "Pause", "Resume", "Replay", "Discard", "Actions"):
            expect(page.get_by_role("button", name=action)).to_have_count(0)
        expect(page.get_by_role("checkbox")).to_have_count(0)
    page.goto(f"{cluster.url}/ui/settings")
    expect(page.get_by_text("need the scope admin")).to_be_visible()
