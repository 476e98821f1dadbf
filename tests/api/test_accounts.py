"""Users, keys and the audit: what is taken away is gone, and what was done is written down."""

from collections.abc import Callable
from typing import Any

import httpx2
import pytest

from tests.api.callers import ANN, Client, enter, logged_in, me, refreshed
from tests.eventually import aeventually
from windlass.api.parts import Parts


@pytest.fixture
async def ann(api: Client) -> dict[str, str]:
    """A user who may submit and read."""
    made = await api.post("/v1/users", json={"name": "ann", "password": "correct horse", "scopes": ["submit", "read"]})
    assert made.status_code == 201, made.text
    return ANN


async def exchanged(http: Client, key: str, **said: Any) -> httpx2.Response:
    return await http.post("/v1/auth/token", json={"api_key": key, **said})


# Users. -------------------------------------------------------------------------------------------------------------


async def test_users_are_listed_without_what_they_log_in_with(api: Client, ann: dict[str, str]) -> None:
    answer = await api.get("/v1/users")
    told = answer.json()["users"]
    assert [(user["name"], user["scopes"]) for user in told] == [("ann", ["submit", "read"])]
    assert "argon2" not in answer.text
    assert "password" not in answer.text


async def test_a_name_is_given_once(api: Client, ann: dict[str, str]) -> None:
    for name in ("ann", "Ann", "ANN"):
        again = await api.post("/v1/users", json={"name": name, "password": "another one", "scopes": ["admin"]})
        assert again.status_code == 409
        assert again.json()["code"] == "name_taken"


@pytest.mark.parametrize(
    "wrong",
    [{"name": ""}, {"name": "a b"}, {"name": "-x"}, {"name": "x" * 101}, {"name": "é"}, {"name": "a\n"}, {"name": "a\0"},
     {"password": "short"}, {"password": "x" * 1001}, {"scopes": []}, {"scopes": ["root"]}, {"scopes": "read"}, {"admin": True}],
)  # fmt: skip
async def test_a_user_that_cannot_be_is_refused(api: Client, wrong: dict[str, Any]) -> None:
    user = {"name": "bob", "password": "long enough", "scopes": ["read"]} | wrong
    assert (await api.post("/v1/users", json=user)).status_code == 422
    assert (await api.get("/v1/users")).json()["users"] == []


@pytest.mark.parametrize("change", ["removed", "password", "scopes"])
async def test_what_a_user_had_ends_when_he_is_changed(
    http: Client, api: Client, ann: dict[str, str], change: str
) -> None:
    got, other = await logged_in(http), await logged_in(http)
    entered = await enter(http, **ann)
    cookie = {"cookie": entered.headers["set-cookie"].partition(";")[0]}
    http.cookies.clear()
    assert (await http.get("/v1/auth/me", headers=cookie)).status_code == 200
    if change == "removed":
        answer = await api.delete("/v1/users/ann")
    elif change == "password":
        answer = await api.put("/v1/users/ann/password", json={"password": "battery staple"})
    else:
        answer = await api.put("/v1/users/ann/scopes", json={"scopes": ["read"]})
    assert answer.status_code in {200, 204}, answer.text
    for token in (got["access_token"], other["access_token"]):
        assert (await me(http, token)).status_code == 401
    assert (await refreshed(http, got["refresh_token"])).status_code == 401
    assert (await http.get("/v1/auth/me", headers=cookie)).status_code == 401


async def test_after_a_change_one_logs_in_at_once_as_what_one_is_now(
    http: Client, api: Client, ann: dict[str, str]
) -> None:
    await logged_in(http)
    await api.put("/v1/users/ann/scopes", json={"scopes": ["operate", "read"]})
    got = await logged_in(http)
    assert (await me(http, got["access_token"])).json()["scopes"] == ["read", "operate"]
    await api.put("/v1/users/ann/password", json={"password": "battery staple"})
    assert (await http.post("/v1/auth/token", json=ANN)).status_code == 401
    got = await logged_in(http, password="battery staple")
    assert (await me(http, got["access_token"])).status_code == 200


async def test_another_user_of_the_same_name_is_another_user(http: Client, api: Client, ann: dict[str, str]) -> None:
    before = await logged_in(http)
    await api.delete("/v1/users/ann")
    assert (await http.post("/v1/auth/token", json=ANN)).status_code == 401
    await api.post("/v1/users", json={"name": "ann", "password": "correct horse", "scopes": ["submit", "read"]})
    assert (await me(http, before["access_token"])).status_code == 401
    assert (await refreshed(http, before["refresh_token"])).status_code == 401
    after = await logged_in(http)
    assert (await me(http, after["access_token"])).status_code == 200


async def test_nobody_can_be_changed_who_is_not_there(api: Client) -> None:
    for name in ("bob", "a%00b", "%F0%9F%92%A9", "a%2Fb", "x" * 1000):
        answers = [
            await api.delete(f"/v1/users/{name}"),
            await api.put(f"/v1/users/{name}/password", json={"password": "long enough"}),
            await api.put(f"/v1/users/{name}/scopes", json={"scopes": ["read"]}),
        ]
        assert [each.status_code for each in answers] == [404] * 3


# Keys. --------------------------------------------------------------------------------------------------------------


async def test_a_key_is_told_once(api: Client) -> None:
    answer = await api.post("/v1/keys", json={"name": "deploy", "scopes": ["submit"]})
    assert answer.status_code == 201
    made = answer.json()
    assert made["key"].startswith(made["prefix"])
    listed = await api.get("/v1/keys")
    assert made["key"] not in listed.text
    assert listed.json()["keys"][0] | {"key": made["key"]} == made


@pytest.mark.parametrize("name", ["a\x1b[2J", "a\n", "a\u2028b", "a\x00"])
async def test_a_key_has_a_name_that_can_be_shown(api: Client, name: str) -> None:
    answer = await api.post("/v1/keys", json={"name": name, "scopes": ["submit"]})
    assert (answer.status_code, answer.json()["field"]) == (422, "name")


async def test_a_key_is_exchanged_for_tokens_and_is_none(http: Client, api: Client) -> None:
    made = (await api.post("/v1/keys", json={"name": "deploy", "scopes": ["submit", "read"]})).json()
    got = (await exchanged(http, made["key"])).json()
    assert got["scopes"] == ["submit", "read"]
    assert got["refresh_token"] is None
    assert (await me(http, got["access_token"])).json()["subject"] == f"key:{made['id']}"
    assert (await exchanged(http, made["key"], scopes=["read"])).json()["scopes"] == ["read"]
    assert (await exchanged(http, made["key"], scopes=["admin"])).status_code == 403
    assert (await me(http, made["key"])).status_code == 401
    used = (await api.get("/v1/keys")).json()["keys"][0]
    assert used["last_used_at"]


async def test_a_revoked_key_and_its_tokens_are_void(http: Client, api: Client) -> None:
    made, other = [(await api.post("/v1/keys", json={"name": "deploy", "scopes": ["read"]})).json() for _ in range(2)]
    tokens = [(await exchanged(http, each["key"])).json()["access_token"] for each in (made, other)]
    for _ in range(2):
        gone = await api.delete(f"/v1/keys/{made['id']}")
        assert gone.status_code == 200
        assert gone.json()["revoked_at"]
    assert (await exchanged(http, made["key"])).status_code == 401
    assert [(await me(http, token)).status_code for token in tokens] == [401, 200]


async def test_a_token_does_not_outlive_its_key(http: Client, api: Client) -> None:
    made = (await api.post("/v1/keys", json={"name": "short", "scopes": ["read"], "ttl_s": 100})).json()
    got = (await exchanged(http, made["key"])).json()
    assert got["expires_in"] <= 100
    brief = (await api.post("/v1/keys", json={"name": "brief", "scopes": ["read"], "ttl_s": 0.2})).json()

    async def is_void() -> bool:
        return (await exchanged(http, brief["key"])).status_code == 401

    await aeventually(is_void)


@pytest.mark.parametrize(
    "wrong",
    [{"name": ""}, {"name": "x" * 201}, {"name": "a\0b"}, {"scopes": []}, {"scopes": ["root"]}, {"ttl_s": 0}, {"ttl_s": -1},
     {"ttl_s": 1e300}, {"ttl_s": "1h"}, {"key": "wl_x"}],
)  # fmt: skip
async def test_a_key_that_cannot_be_is_refused(api: Client, wrong: dict[str, Any]) -> None:
    answer = await api.post("/v1/keys", json={"name": "deploy", "scopes": ["read"]} | wrong)
    assert answer.status_code == 422, answer.text
    assert (await api.get("/v1/keys")).json()["keys"] == []


async def test_a_key_that_is_not_there_cannot_be_revoked(api: Client) -> None:
    for key_id in ("0198c0de-0000-7000-8000-000000000000", "x", "a%00", "wl_" + "a" * 60):
        answer = await api.delete(f"/v1/keys/{key_id}")
        assert answer.status_code == 404
        assert answer.json()["code"] == "key_not_found"


# The audit. ---------------------------------------------------------------------------------------------------------


async def test_what_an_admin_did_is_written_down(api: Client, ann: dict[str, str]) -> None:
    await api.put("/v1/users/ann/scopes", json={"scopes": ["read"]}, headers={"x-request-id": "asked-1"})
    await api.put("/v1/users/ann/password", json={"password": "battery staple"})
    await api.delete("/v1/users/ann")
    key = (await api.post("/v1/keys", json={"name": "deploy", "scopes": ["read"]})).json()
    await api.delete(f"/v1/keys/{key['id']}")
    entries = (await api.get("/v1/audit")).json()["entries"]
    assert [(each["action"], each["target"]) for each in reversed(entries)] == [
        ("user.add", "ann"), ("user.scopes", "ann"), ("user.password", "ann"), ("user.remove", "ann"),
        ("key.add", key["id"]), ("key.revoke", key["id"]),
    ]  # fmt: skip
    assert {each["actor"] for each in entries} == {"tester"}
    assert entries[-2]["request_id"] == "asked-1"
    assert entries[-2]["detail"] == {"scopes": ["read"]}


async def test_what_was_refused_is_not_written_down_as_done(
    api: Client, ann: dict[str, str], as_scope: Callable[..., Client]
) -> None:
    await api.post("/v1/users", json={"name": "ann", "password": "another one", "scopes": ["admin"]})
    await api.delete("/v1/users/bob")
    async with as_scope("operate") as operator:
        assert (await operator.delete("/v1/users/ann")).status_code == 403
        assert (await operator.get("/v1/audit")).status_code == 403
    assert len((await api.get("/v1/audit")).json()["entries"]) == 1


async def test_the_audit_is_read_page_by_page(api: Client, parts: Parts) -> None:
    for n in range(25):
        await parts.accounts.note("tester", "test", str(n))
    seen: list[str] = []
    cursor = None
    while True:
        query = {"limit": "10"} | ({"cursor": cursor} if cursor else {})
        page = (await api.get("/v1/audit", params=query)).json()
        seen += [each["target"] for each in page["entries"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert seen == [str(n) for n in reversed(range(25))]


@pytest.mark.parametrize("query", ["limit=0", "limit=201", "limit=x", "cursor=x", "cursor=-1", "cursor=", "cursor=٣", "offset=1",
                                   "cursor=99999999999999999999999"])  # fmt: skip
async def test_a_page_that_cannot_be_is_refused(api: Client, query: str) -> None:
    assert (await api.get(f"/v1/audit?{query}")).status_code == 422


async def test_a_cursor_beyond_all_numbers_is_answered(api: Client) -> None:
    assert (await api.get(f"/v1/audit?cursor={'9' * 20}")).json()["entries"] == []
