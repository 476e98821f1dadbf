"""axe-core finds nothing on any screen, light or dark, on a laptop or on a phone."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.dashboard.visits import failing, submit
from tests.e2e.household import Up

Visiting = Callable[..., Page]
# In the dark only colours differ: the other rules are not asked a second time.
CHECK = """async (shade) => {
    const options = shade === 'dark' ? {runOnly: ['color-contrast']} : {};
    return (await axe.run(document, {resultTypes: ['violations'], ...options})).violations;
}"""


@pytest.fixture(scope="module")
def jobs(cluster: Up) -> dict[str, str]:
    """A job in each state whose page looks different."""
    failed, done, scheduled = submit(
        cluster,
        failing(tags=["invoices"], name="always fails"),
        {"type": "add_numbers", "payload": {"a": 1, "b": 2}},
        {"type": "add_numbers", "payload": {"a": 1, "b": 2}, "delay_s": 3600},
    )
    cluster.until(failed, "failed")
    cluster.until(done, "completed")
    return {"failed": failed, "done": done, "scheduled": scheduled}


def violations(page: Page, axe_script: Path, where: str) -> list[str]:
    """What axe-core finds in the light, then in the dark."""
    page.mouse.move(0, 0)  # nothing is under the pointer
    if not page.evaluate("'axe' in window"):
        page.add_script_tag(path=axe_script)
    found = []
    for shade in ("light", "dark"):
        page.emulate_media(color_scheme=shade)
        expect(page.locator(f"html[data-theme={shade}], html:not([data-theme])")).to_have_count(1)
        expect(page.locator(f".chart:not([data-shade={shade}])")).to_have_count(0)  # charts are drawn anew
        results: list[dict[str, Any]] = page.evaluate(CHECK, shade)
        found += [
            f"{where}, {shade}: {each['id']} ({each['help']}): {[(node['html'][-120:], node['failureSummary'][:300]) for node in each['nodes'][:3]]}"
            for each in results
        ]
    page.emulate_media(color_scheme="light")
    return found


@pytest.mark.parametrize("width", [1280, 390])
def test_no_screen_has_a_violation(
    visit: Visiting, cluster: Up, jobs: dict[str, str], axe_script: Path, width: int
) -> None:
    page = visit("/ui/", bypass_csp=True, viewport={"width": width, "height": 900}, reduced_motion="reduce")
    found = []
    for path, heading in (
        ("/ui/", "Overview"),
        ("/ui/jobs?tag=invoices&text=fails", "Jobs"),
        (f"/ui/jobs/{jobs['failed']}", "default"),
        (f"/ui/jobs/{jobs['done']}", "add_numbers"),
        (f"/ui/jobs/{jobs['scheduled']}", "add_numbers"),
        ("/ui/queues", "Queues"),
        ("/ui/queues/default", "Queue default"),
        ("/ui/workers", "Workers"),
        ("/ui/dead-letters", "Dead letters"),
        ("/ui/settings", "Settings"),
        ("/ui/nowhere", "Not found"),
    ):
        page.goto(cluster.url + path)
        expect(page.get_by_role("heading", name=heading, level=1)).to_be_visible()
        expect(page.get_by_text("Loading")).to_have_count(0)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, f"{path} is wider than the screen"
        found += violations(page, axe_script, path)
    found += opened(page, axe_script, narrow=width < 1000)
    page.goto(f"{cluster.url}/login?next=/ui/")
    found += violations(page, axe_script, "the login")
    assert not found, "\n".join(found)


def opened(page: Page, axe_script: Path, *, narrow: bool) -> list[str]:
    """What opens over a screen."""
    found = []
    if narrow:
        page.get_by_role("button", name="Open the menu").click()
        found += violations(page, axe_script, "the menu of a phone")
    page.get_by_role("button", name="New job").click()
    drawer = page.get_by_role("dialog", name="New job")
    drawer.get_by_label("Type").fill("large_array_sum")
    drawer.get_by_text("Options").click()
    drawer.get_by_label("Threads").fill("many")
    drawer.get_by_role("button", name="Submit").click()
    expect(drawer.get_by_label("Threads")).to_have_attribute("aria-invalid", "true")
    found += violations(page, axe_script, "the drawer")
    page.keyboard.press("Escape")
    page.keyboard.press("Control+k")
    expect(page.get_by_role("dialog", name="Search and commands")).to_be_visible()
    found += violations(page, axe_script, "the palette")
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keyboard")).to_be_visible()
    found += violations(page, axe_script, "the keyboard help")
    page.keyboard.press("Escape")
    page.keyboard.press("g")
    page.keyboard.press("d")
    page.get_by_role("button", name="Replay").first.click()
    expect(page.get_by_text("This will affect")).to_be_visible()
    expect(page.get_by_role("button", name="Replay them")).to_be_enabled()
    return found + violations(page, axe_script, "the bulk dialog")
