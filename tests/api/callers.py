"""What the tests of who gets in share: a user, what he sends, and every door there is."""

import base64
import json
import re
from typing import Any

import httpx2

from windlass.api.table import table

Client = httpx2.AsyncClient
OWN = {"origin": "http://localhost", "sec-fetch-site": "same-origin"}
ANN = {"username": "ann", "password": "correct horse"}

OPEN = {
    ("GET", "/livez"), ("GET", "/readyz"), ("GET", "/health"), ("GET", "/login"), ("POST", "/login"),
    ("POST", "/v1/auth/token"), ("POST", "/v1/auth/refresh"),
}  # fmt: skip
PAGES = re.compile(r"/|/(docs|ui)(/.*)?|/openapi\.json|/favicon\.ico")  # they say what is there for everyone to install
GUARDED = [each for each in table() if (each.method, each.path) not in OPEN and not PAGES.fullmatch(each.path)]


def at(path: str) -> str:
    """A path with something in each of its gaps."""
    return re.sub(r"\{\w+\}", "0198c0de-0000-7000-8000-000000000000", path)


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


async def me(http: Client, token: str) -> httpx2.Response:
    return await http.get("/v1/auth/me", headers=bearer(token))


async def logged_in(http: Client, **said: Any) -> dict[str, Any]:
    answer = await http.post("/v1/auth/token", json=ANN | said)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


async def refreshed(http: Client, token: str) -> httpx2.Response:
    return await http.post("/v1/auth/refresh", json={"refresh_token": token})


async def enter(http: Client, said: Any = None, **form: str) -> httpx2.Response:
    """What the login page's button does; `said`: other headers than those of a page of ours."""
    return await http.post("/login", data=form, headers=OWN if said is None else said)


def claims(token: str) -> dict[str, Any]:
    part = token.split(".")[1]
    return dict(json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))))
