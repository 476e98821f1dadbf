"""Caught mail over the API: listed, shown, and shown as a page in which a stranger's text is only text."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import httpx2
import pytest

from windlass.config import Config
from windlass.mail_catcher.mailbox import Mailbox

EVIL = "<script>alert(1)</script>"
MESSAGE = (
    f"From: {EVIL} <a@example.org>\r\nSubject: Hi {EVIL}\r\nContent-Type: text/html\r\n\r\n<img src=x onerror=y>{EVIL}\r\n"
).encode()


@pytest.fixture
def mail_folder(tmp_path: Path) -> Path:
    return tmp_path / "mail"


@pytest.fixture
def settings(settings: Config, mail_folder: Path) -> Config:
    return replace(settings, api=replace(settings.api, mail_dir=str(mail_folder)))


async def test_caught_mail_is_listed_and_shown(api: httpx2.AsyncClient, mail_folder: Path) -> None:
    assert (await api.get("/v1/dev/mail")).json() == {"mails": []}
    mail_id = Mailbox(mail_folder).add("env@example.org", ["b@example.org"], MESSAGE)
    (mail,) = (await api.get("/v1/dev/mail")).json()["mails"]
    assert (mail["id"], mail["from"], mail["to"]) == (mail_id, "env@example.org", ["b@example.org"])
    assert (mail["subject"], mail["size"]) == (f"Hi {EVIL}", len(MESSAGE))
    shown = (await api.get(f"/v1/dev/mail/{mail_id}")).json()
    assert (shown["text"], EVIL in shown["html"]) == (None, True)
    assert ["Subject", f"Hi {EVIL}"] in shown["headers"]
    for wrong in ("nothing", "..%2Fauth-secret", "1" * 13 + "-00000000"):
        answer = await api.get(f"/v1/dev/mail/{wrong}")
        assert (answer.status_code, answer.json()["code"]) == (404, "mail_not_found")


async def test_the_page_shows_text_as_text_and_runs_nothing(api: httpx2.AsyncClient, mail_folder: Path) -> None:
    mail_id = Mailbox(mail_folder).add(f"{EVIL}@x", [EVIL], MESSAGE)
    for path in ("/dev/mail", f"/dev/mail/{mail_id}"):
        page = await api.get(path)
        assert page.status_code == 200
        assert page.headers["content-type"] == "text/html; charset=utf-8"
        assert "default-src 'none'" in page.headers["content-security-policy"]
        assert "&lt;script&gt;" in page.text
        assert "<script" not in page.text
        assert "<img" not in page.text


@pytest.mark.parametrize("path", ["/v1/dev/mail", "/dev/mail", "/v1/dev/mail/x", "/dev/mail/x"])
async def test_caught_mail_is_for_those_who_may_read(
    http: httpx2.AsyncClient, as_scope: Callable[..., httpx2.AsyncClient], path: str
) -> None:
    assert (await http.get(path)).status_code == 401
    async with as_scope("submit") as submitter:
        assert (await submitter.get(path)).status_code == 403


async def test_a_browser_that_is_not_logged_in_is_led_to_the_login(http: httpx2.AsyncClient) -> None:
    browser = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
    for path in ("/dev/mail", "/dev/mail/x"):
        answer = await http.get(path, headers=browser)
        assert (answer.status_code, answer.headers["location"]) == (303, "/login")
    assert "<code>windlass login</code>" in (await http.get("/login", headers=browser)).text
    assert (await http.get("/v1/dev/mail", headers=browser)).status_code == 401


class TestWhereNoneIsCaught:
    @pytest.fixture
    def settings(self, settings: Config) -> Config:
        return replace(settings, api=replace(settings.api, mail_dir=None))

    async def test_there_is_none(self, api: httpx2.AsyncClient) -> None:
        answer = await api.get("/v1/dev/mail")
        assert (answer.status_code, answer.json()["code"]) == (404, "mail_not_found")
