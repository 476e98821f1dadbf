#!/usr/bin/env python3
"""Make the pictures of docs/dashboard.md again, in docs/screenshots: `.venv/bin/python tools/screenshots.py`.

Starts `windlass up --demo` with a folder of its own and lets it work for a while (--minutes, 12 by default), so that charts have
something to show. With --url it takes them from a server that runs already, with WINDLASS_AUTH=off.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
from playwright.sync_api import Browser, Page, expect

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.dashboard.chromium import chromium  # noqa: E402
from tests.e2e.household import up  # noqa: E402

FOLDER = ROOT / "docs" / "screenshots"
LAPTOP = {"width": 1280, "height": 800}
PHONE = {"width": 390, "height": 844}
MOST_BYTES = 200_000


@contextmanager
def demonstration(minutes: float) -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder:
        args = ("--demo", "--workers", "4,8", "--queues", "default,mail")
        with up(*args, folder=Path(folder, "cluster"), WINDLASS_AUTH="off") as running:
            fill(running.url)
            time.sleep(minutes * 60)
            yield running.url


def fill(url: str) -> None:
    """What the demonstration has not: other queues, one of them paused, and a wide job that runs for long."""
    letters = [
        {"type": "reverse_string", "queue": queue, "payload": {"text": f"letter {n}"}, "name": f"letter {n}"}
        for queue, count in (("mail", 30), ("reports", 12), ("tenant-acme/exports", 7))
        for n in range(count)
    ]
    wide = {
        "type": "default",
        "payload": {"task": "nightly", "duration_s": 3000},
        "thread_demand": 3,
        "name": "nightly",
    }
    for path, body in (("/v1/jobs/bulk", [*letters, wide]), ("/v1/queues/reports/pause", {})):
        httpx2.post(url + path, json=body, timeout=30).raise_for_status()


def newest(url: str, **query: str) -> str:
    answer = httpx2.get(f"{url}/v1/jobs", params={**query, "limit": "1"}, timeout=30).raise_for_status()
    job_id: str = answer.json()["jobs"][0]["id"]
    return job_id


def open_drawer(page: Page) -> None:
    page.get_by_role("button", name="New job").click()
    drawer = page.get_by_role("dialog", name="New job")
    drawer.get_by_label("Type").fill("cpu_intensive")
    drawer.get_by_label("duration_s").fill("2.5")
    drawer.get_by_text("Options").click()


def select_rows(page: Page) -> None:
    boxes = page.get_by_role("checkbox", name="Select job")
    boxes.nth(1).click()
    boxes.nth(4).click(modifiers=["Shift"])


def pictures(url: str) -> list[tuple[str, str, str, Any]]:
    """Name, path, light or dark, and what is done first. A name that begins with phone is one of a phone."""
    failed = newest(url, status="failed")
    return [
        ("overview", "/ui/", "light", None),
        ("overview-dark", "/ui/", "dark", None),
        ("jobs", "/ui/jobs?tag=demo", "light", select_rows),
        ("job", f"/ui/jobs/{failed}", "light", None),
        ("new-job", "/ui/jobs", "light", open_drawer),
        ("queues", "/ui/queues", "dark", None),
        ("workers", "/ui/workers", "light", None),
        ("dead-letters", "/ui/dead-letters", "dark", None),
        ("phone-overview", "/ui/", "light", None),
        ("phone-jobs", "/ui/jobs", "dark", None),
    ]


def take(browser: Browser, url: str) -> None:
    FOLDER.mkdir(exist_ok=True)
    for name, path, shade, prepare in pictures(url):
        size = PHONE if name.startswith("phone") else LAPTOP
        context = browser.new_context(viewport=size, color_scheme=shade)  # type: ignore[arg-type]
        page = context.new_page()
        page.goto(url + path)
        expect(page.get_by_test_id("live")).to_have_text("Live")
        expect(page.locator("[aria-busy=true]")).to_have_count(0)
        expect(page.get_by_text("Loading")).to_have_count(0)
        if prepare:
            prepare(page)
        file = FOLDER / f"{name}.png"
        page.screenshot(path=file)
        context.close()
        if file.stat().st_size > MOST_BYTES:
            raise SystemExit(f"{file} has {file.stat().st_size} bytes, more than {MOST_BYTES}")
        print(f"{file.relative_to(ROOT)}  {file.stat().st_size // 1000} KB")  # noqa: T201 - says what it makes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", help="a server that runs with WINDLASS_AUTH=off")
    parser.add_argument("--minutes", type=float, default=12, help="how long the demonstration works first")
    args = parser.parse_args()
    with chromium() as browser:
        if args.url:
            take(browser, args.url)
        else:
            with demonstration(args.minutes) as url:
                take(browser, url)


if __name__ == "__main__":
    main()
