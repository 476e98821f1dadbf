"""Logging in with a browser: the link, the page, the cookie, and pages that are not ours."""

import asyncio
import logging
import re
from typing import Any

import httpx2
import pytest

from tests.api.callers import ANN, GUARDED, OWN, Client, at, bearer, enter, logged_in, me, refreshed
from tests.api.conftest import SECRET, Tokens


@pytest.fixture
async def ann(api: Client) -> dict[str, str]:
    """A user who may submit and read."""
    made = await api.post("/v1/users", json={"name": "ann", "password": "correct horse", "scopes": ["submit", "read"]})
    assert made.status_code == 201, made.text
    return ANN


# The browser. -------------------------------------------------------------------------------------------------------


@pytest.fixture
def code(tokens: Tokens) -> str:
    return tokens.signer.sign("admin", ["admin"], 600, "login")


@pytest.fixture
async def cookie(http: Client, code: str) -> dict[str, str]:
    """The headers of a browser that has logged in."""
    answer = await enter(http, code=code)
    assert answer.status_code == 303, answer.text
    http.cookies.clear()
    return {"cookie": answer.headers["set-cookie"].partition(";")[0]}


async def test_looking_at_the_link_does_not_spend_it(http: Client, code: str) -> None:
    for _ in range(3):
        page = await http.get("/login", params={"code": code})
        assert page.status_code == 200
        assert "set-cookie" not in page.headers
        assert code in page.text
        assert (await http.head("/login", params={"code": code})).status_code == 200
    assert (await enter(http, code=code)).status_code == 303


async def test_a_link_is_good_once(http: Client, code: str) -> None:
    answers = await asyncio.gather(*(enter(http, code=code) for _ in range(10)))
    assert sorted(each.status_code for each in answers) == [303] + [401] * 9
    assert sum("set-cookie" in each.headers for each in answers) == 1


async def test_the_cookie_is_for_the_browser_alone(http: Client, code: str) -> None:
    answer = await enter(http, code=code)
    assert answer.headers["location"] == "/ui/"
    said = answer.headers["set-cookie"].lower()
    assert said.startswith("windlass_session=")
    assert {"httponly", "samesite=strict", "path=/"} <= {part.strip() for part in said.split(";")}
    assert "domain" not in said
    assert "secure" not in said  # over plain http it would never come back


async def test_over_https_the_cookie_is_sent_over_nothing_else(app: Any, http: Client, tokens: Tokens) -> None:
    first, second = (tokens.signer.sign("admin", ["admin"], 600, "login") for _ in range(2))
    answer = await enter(http, {"origin": "https://localhost", "x-forwarded-proto": "https"}, code=first)
    assert "Secure" in answer.headers["set-cookie"]
    async with Client(transport=httpx2.ASGITransport(app=app), base_url="https://localhost") as client:
        answer = await enter(client, {"origin": "https://localhost"}, code=second)
    assert "Secure" in answer.headers["set-cookie"]


async def test_a_user_can_log_in_on_the_page(http: Client, ann: dict[str, str]) -> None:
    assert 'name="password"' in (await http.get("/login")).text
    refused = await enter(http, username="ann", password="wrong")
    assert refused.status_code == 401
    assert "set-cookie" not in refused.headers
    answer = await enter(http, **ann)
    assert answer.status_code == 303
    told = (await http.get("/v1/auth/me", headers={"cookie": answer.headers["set-cookie"].partition(";")[0]})).json()
    assert told["subject"] == "user:ann"


async def test_guesses_on_the_page_are_limited_with_all_others(http: Client, ann: dict[str, str]) -> None:
    statuses = [(await enter(http, username="ann", password="wrong")).status_code for _ in range(10)]
    assert statuses == [401] * 10
    late = await enter(http, **ann)
    assert late.status_code == 429
    assert late.headers["retry-after"]
    assert (await http.post("/v1/auth/token", json=ANN)).status_code == 429


async def test_with_the_cookie_one_can_look(http: Client, cookie: dict[str, str]) -> None:
    assert (await http.get("/v1/stats", headers=cookie)).status_code == 200
    linked = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
    assert (await http.get("/v1/stats", headers=cookie | linked)).status_code == 200
    for site in ("cross-site", "same-site"):
        fetched = {"sec-fetch-site": site, "sec-fetch-mode": "cors"}
        assert (await http.get("/v1/stats", headers=cookie | fetched)).status_code == 403


@pytest.mark.parametrize(
    "said",
    [
        {}, {"sec-fetch-site": "same-origin"}, {"origin": "null"}, {"origin": "http://evil.example"}, {"origin": "http://localhost:3000"},
        {"origin": "http://localhost", "sec-fetch-site": "cross-site"}, {"origin": "http://localhost", "sec-fetch-site": "same-site"},
        {"origin": "http://localhost.evil.example", "sec-fetch-site": "same-origin"}, {"referer": "http://localhost/docs"},
    ],
)  # fmt: skip
async def test_a_foreign_page_changes_nothing_with_the_cookie(
    http: Client, cookie: dict[str, str], said: dict[str, str]
) -> None:
    for each in GUARDED:
        if each.method != "GET":
            answer = await http.request(each.method, at(each.path), headers=cookie | said)
            assert answer.status_code == 403, f"{each.method} {each.path}: {answer.status_code}"
            assert answer.json()["code"] == "forbidden"
    assert (await http.get("/v1/stats", headers=cookie)).status_code == 200  # nor was anyone logged out


async def test_our_own_page_changes_things_with_the_cookie(http: Client, cookie: dict[str, str]) -> None:
    answer = await http.post("/v1/queues/default/pause", headers=cookie | OWN)
    assert answer.status_code == 200, answer.text


async def test_a_foreign_page_logs_nobody_in(http: Client, code: str, ann: dict[str, str]) -> None:
    for said in ({}, {"origin": "http://evil.example"}, OWN | {"sec-fetch-site": "cross-site"}):
        assert (await enter(http, dict(said), code=code)).status_code == 403
        assert (await enter(http, dict(said), **ann)).status_code == 403
    assert (await enter(http, code=code)).status_code == 303  # it was not spent either


async def test_the_cookie_is_no_token_and_a_token_no_cookie(
    http: Client, cookie: dict[str, str], tokens: Tokens, code: str
) -> None:
    session = cookie["cookie"].partition("=")[2]
    assert (await me(http, session)).status_code == 401
    for token in (tokens("admin"), code, "", "x"):
        answer = await http.get("/v1/stats", headers={"cookie": f"windlass_session={token}"})
        assert answer.status_code == 401
        assert (await me(http, code)).status_code == 401


async def test_of_two_sessions_none_is_believed(http: Client, cookie: dict[str, str]) -> None:
    tossed = f"windlass_session=x; {cookie['cookie']}"
    assert (await http.get("/v1/stats", headers={"cookie": tossed})).status_code == 401
    beside = f"theme=dark; {cookie['cookie']}; windlass_session_x=1"
    assert (await http.get("/v1/stats", headers={"cookie": beside})).status_code == 200


async def test_a_wrong_token_is_not_made_good_by_a_cookie(http: Client, cookie: dict[str, str]) -> None:
    assert (await http.get("/v1/stats", headers=cookie | bearer("x"))).status_code == 401
    assert (await http.get("/v1/stats", headers=cookie | {"authorization": ""})).status_code == 401


async def test_a_browser_can_log_out(http: Client, cookie: dict[str, str]) -> None:
    assert (await http.post("/v1/auth/logout", headers=cookie | OWN)).status_code == 204
    assert (await http.get("/v1/stats", headers=cookie)).status_code == 401


async def test_the_page_shows_what_is_in_the_address_as_text(http: Client) -> None:
    page = await http.get("/login", params={"code": '"><script>alert(1)</script><img src=x onerror=$fields${message}'})
    assert "<script" not in page.text
    assert "<img" not in page.text
    assert "&quot;&gt;&lt;script&gt;" in page.text


async def test_the_page_loads_nothing_and_tells_nobody_where_it_was(http: Client, code: str) -> None:
    for answer in (await http.get("/login", params={"code": code}), await enter(http, code="x")):
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "script-src" not in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert answer.headers["referrer-policy"] == "same-origin"  # and no stricter: the form needs its Origin
        assert answer.headers["cache-control"] == "no-store"
        assert "http" not in re.sub(r"http-equiv", "", answer.text)


@pytest.mark.parametrize(
    ("content", "kind", "status"),
    [
        (b"{}", "application/json", 415),
        (b"code=x", "text/plain", 415),
        (b"", "application/x-www-form-urlencoded", 401),
        (b"code=%ff", "application/x-www-form-urlencoded", 422),
        (b"\xff", "application/x-www-form-urlencoded", 422),
        (b"&".join(b"a=b" for _ in range(50)), "application/x-www-form-urlencoded", 422),
        (b"code=" + b"x" * 20_000, "application/x-www-form-urlencoded", 413),
        (b"username=a%00b&password=%00", "application/x-www-form-urlencoded; charset=utf-8", 401),
    ],
)
async def test_a_broken_form_is_refused(http: Client, content: bytes, kind: str, status: int) -> None:
    answer = await http.post("/login", content=content, headers=OWN | {"content-type": kind})
    assert answer.status_code == status, answer.text


# Nothing is told. ---------------------------------------------------------------------------------------------------


async def test_no_secret_reaches_the_log_or_the_audit(
    http: Client, api: Client, ann: dict[str, str], code: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    made = (await api.post("/v1/keys", json={"name": "k", "scopes": ["read"]})).json()
    got = await logged_in(http)
    await http.post("/v1/auth/token", json={"api_key": made["key"]})
    await http.post("/v1/auth/token", json={"username": "ann", "password": "another wrong one"})
    await http.get("/login", params={"code": code})
    await enter(http, code=code)
    await refreshed(http, got["refresh_token"])
    await refreshed(http, got["refresh_token"])
    await api.put("/v1/users/ann/password", json={"password": "a new password"})
    ours = [record for record in caplog.records if not record.name.startswith("httpx2")]  # the caller's own log
    said = " ".join(str(record.__dict__) for record in ours) + (await api.get("/v1/audit")).text
    secrets = ["correct horse", "another wrong one", "a new password", made["key"], code, SECRET, "argon2"]
    for secret in [*secrets, got["access_token"].split(".")[2], got["refresh_token"].split(".")[2]]:
        assert secret not in said
