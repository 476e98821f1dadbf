"""Texts of others are shown as texts: nothing in them runs, makes an element, or turns what stands beside it."""

from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.dashboard.visits import fresh_tag, submit
from tests.e2e.household import Up

Visiting = Callable[..., Page]

HTML = "<img src=x onerror=alert(1)><script>alert(2)</script><b id=injected>bold</b>"
TURNED = "\u202eevil\u202c \u2066left\u2069 שלום (עולם) مرحبا"
COLOURED = "\x1b[31mred\x1b[0m \x07 javascript:alert(3) {{7*7}} ${7*7} &lt;"
NAME = f"{HTML} {TURNED}"
TEXT = f"{HTML}\n{TURNED}\n{COLOURED}\n'\"--"

# Every text node with right-to-left letters stands in an element that keeps its direction to itself, or between marks of
# isolation; and no character that overrides a direction is left in the page.
TURNS = """() => {
    const found = [];
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    for (let node = walker.nextNode(); node; node = walker.nextNode()) {
        const text = node.data;
        if (/[\\u202a-\\u202e\\u2066\\u2067\\u200e\\u200f]/.test(text)) found.push('override: ' + text);
        if (!/[\\u0590-\\u06ff]/.test(text.replace(/\\u2068[^\\u2069]*\\u2069/g, ''))) continue;
        const style = getComputedStyle(node.parentElement);
        const alone = [...node.parentElement.childNodes].every((one) => one === node || !one.textContent.trim());
        const isolates = /isolate|plaintext/.test(style.unicodeBidi) || (style.display !== 'inline' && alone);
        if (!isolates) found.push(node.parentElement.outerHTML.slice(0, 300));
    }
    return found;
}"""


@pytest.fixture(scope="module")
def hostile(cluster: Up) -> dict[str, str]:
    """Jobs, a key and a user whose every free text is hostile."""
    tag = f"{fresh_tag()} {NAME}"[:100]
    common: dict[str, Any] = {"type": "repeat_text", "name": NAME[:200], "tags": [tag], "max_attempts": 1}
    failed, done, later = submit(
        cluster,
        {**common, "payload": {"text": TEXT, "fail": True}},
        {**common, "payload": {"text": TEXT}, "idempotency_key": NAME[:100]},
        {**common, "payload": {"text": TEXT}, "delay_s": 3600},
    )
    cluster.until(failed, "failed")
    cluster.until(done, "completed")
    for path, body in (
        ("/v1/keys", {"name": NAME[:100], "scopes": ["read"]}),
        (f"/v1/jobs/{later}/cancel", {"reason": TEXT}),
    ):
        answer = cluster.asked("POST", path, json=body)
        assert answer.is_success, answer.text
    return {"failed": failed, "done": done, "tag": tag}


def check(page: Page, where: str) -> None:
    assert page.locator("#injected, img[src='x'], main script").count() == 0, where
    assert page.evaluate(TURNS) == [], where


def test_no_screen_interprets_texts_of_others(visit: Visiting, cluster: Up, hostile: dict[str, str]) -> None:
    page = visit("/ui/")  # a dialog or an error in the console fails the test at its end
    expect(page.get_by_text("What fails")).to_be_visible()
    expect(page.get_by_text("<b id=injected>").first).to_be_visible()
    check(page, "overview")
    for path, shown in (
        ("/ui/jobs?type=repeat_text", page.locator("[data-job]").first),
        ("/ui/dead-letters", page.get_by_role("listitem").filter(has_text="repeat_text")),
        ("/ui/settings", page.get_by_role("listitem").filter(has_text="<script>")),
        ("/ui/queues", page.get_by_role("link", name="default")),
    ):
        page.goto(cluster.url + path)
        expect(shown).to_be_visible()
        if "queues" not in path:
            expect(page.locator("main")).to_contain_text("<script>alert(2)</script>")
        check(page, path)


def test_job_shows_payload_result_error_log_and_tags_as_texts(
    visit: Visiting, cluster: Up, hostile: dict[str, str]
) -> None:
    page = visit(f"/ui/jobs/{hostile['failed']}")
    main = page.locator("main")
    expect(page.get_by_role("region", name="Last error")).to_contain_text("<b id=injected>bold</b>")
    expect(page.locator("figure").filter(has_text="Traceback")).to_contain_text("\\u202eevil")
    expect(page.locator("figure").filter(has_text="Log")).to_contain_text("<script>alert(2)</script>")
    expect(main).to_contain_text("␛[31mred␛[0m")
    check(page, "failed")
    page.goto(f"{cluster.url}/ui/jobs/{hostile['done']}")
    for title in ("Payload", "Result"):
        body = page.locator("section", has=page.get_by_role("heading", name=title, exact=True))
        expect(body).to_contain_text("<img src=x onerror=alert(1)>")
        expect(body).to_contain_text("\\u202eevil")
    check(page, "done")
    page.get_by_role("definition").get_by_role("link", name="<script>").click()
    expect(page.get_by_role("button", name="Drop the filter tag")).to_be_visible()
    expect(page.locator("[data-job]")).to_have_count(3)
    check(page, "by tag")


def test_hostile_input_is_shown_as_text_in_the_palette_and_in_refusals(visit: Visiting) -> None:
    page = visit("/ui/")
    page.get_by_role("button", name="Search and commands").click()
    page.get_by_role("combobox", name="Search jobs").fill(TURNED + HTML)
    expect(page.get_by_role("option").last).to_contain_text("<b id=injected>")
    check(page, "palette")
    page.keyboard.press("Escape")
    page.get_by_role("button", name="New job").click()
    drawer = page.get_by_role("dialog", name="New job")
    drawer.get_by_label("Type").fill(HTML + TURNED)
    drawer.get_by_role("button", name="Submit").click()
    expect(drawer.get_by_label("Type")).to_have_attribute("aria-invalid", "true")
    check(page, "refusal")
