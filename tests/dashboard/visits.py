"""What the tests do in a browser, and what they ask of the server beside it."""

import json
import os
import subprocess
from typing import Any

from playwright.sync_api import BrowserContext, ConsoleMessage, Dialog, Page, expect

from tests.e2e.household import CLEAN, WINDLASS, Up

# A request that is refused on purpose, or that a restart cuts, is logged by the browser as an error: it is not one of the page.
EXPECTED = ("Failed to load resource", "net::ERR")


class Visit:
    """A page that remembers what went wrong in it."""

    def __init__(self, context: BrowserContext) -> None:
        self.errors: list[str] = []
        self._context = context
        self.page = context.new_page()
        self.page.on("pageerror", lambda error: self.errors.append(f"page: {error}"))
        self.page.on("console", self._note)
        self.page.on("dialog", self._dismiss)

    def _note(self, message: ConsoleMessage) -> None:
        if message.type == "error" and not any(each in message.text for each in EXPECTED):
            self.errors.append(f"console: {message.text}")

    def _dismiss(self, dialog: Dialog) -> None:
        self.errors.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def close(self) -> None:
        self._context.close()


def login_link(cluster: Up, scope: str = "admin") -> str:
    """What `windlass login` prints."""
    environ = {**CLEAN, "WINDLASS_DATA_DIR": str(cluster.folder)}
    asked = [str(WINDLASS), "login", "--scope", scope, "--json"]
    done = subprocess.run(asked, env=environ, capture_output=True, text=True, check=True, timeout=60)
    link: str = json.loads(done.stdout)["link"]
    return link


def log_in_by_link(page: Page, cluster: Up, scope: str = "admin") -> None:
    page.goto(login_link(cluster, scope))
    page.get_by_role("button", name="Log in").click()
    expect_live(page)


def expect_live(page: Page) -> None:
    expect(page.get_by_test_id("live")).to_have_text("Live")


def submit(cluster: Up, *jobs: dict[str, Any]) -> list[str]:
    """Ids in the order of the jobs."""
    answer = cluster.asked("POST", "/v1/jobs/bulk", json=list(jobs))
    assert answer.status_code in {200, 201, 202}, answer.text
    ids: list[str] = answer.json()["ids"]
    return ids


def fresh_tag() -> str:
    """A tag of this test's own: all tests of the folder share one cluster."""
    return f"t-{os.urandom(4).hex()}"


def failing(**options: Any) -> dict[str, Any]:
    return {"type": "default", "payload": {"duration_s": 0, "fail": True}, "max_attempts": 1, **options}
