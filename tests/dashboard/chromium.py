"""The browser of these tests: Debian's Chromium, driven by Playwright, which fetches none of its own."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, sync_playwright

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
NAMES = ("chromium", "chromium-browser", "google-chrome")


def find_chromium() -> str | None:
    return next((path for name in NAMES if (path := shutil.which(name))), None)


def required_chromium() -> str:
    """Skips the test where there is no browser; with CI=true that is a failure."""
    path = find_chromium()
    if path is None:
        message = "no Chromium here: `tools/chromium` as root, or `apt-get install chromium`"
        if os.environ.get("CI") == "true":
            pytest.fail(message, pytrace=False)
        pytest.skip(message)
    return path


@contextmanager
def chromium() -> Iterator[Browser]:
    path = required_chromium()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield browser
        browser.close()
