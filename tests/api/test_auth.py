"""Who gets in, by what, for how long; and who does not."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519

from tests.api.callers import ANN, GUARDED, OWN, Client, at, bearer, claims, logged_in, me, refreshed
from tests.api.conftest import Tokens
from tests.unit import forgeries
from tests.unit.test_tokens import pem
from windlass.api.gate import Gate
from windlass.api.parts import Parts
from windlass.auth.scopes import ORDER
from windlass.auth.tokens import Signer
from windlass.config import AuthConfig, Config
from windlass.errors import Unauthorized, Unavailable
from windlass.store.store import Store


@pytest.fixture
async def ann(api: Client) -> dict[str, str]:
    """A user who may submit and read."""
    made = await api.post("/v1/users", json={"name": "ann", "password": "correct horse", "scopes": ["submit", "read"]})
    assert made.status_code == 201, made.text
    return ANN


# Every door. ---------------------------------------------------------------------------------------------------------


async def test_nothing_but_probes_login_and_the_manual_is_open(http: Client) -> None:
    assert len(GUARDED) > 30
    for each in GUARDED:
        answer = await http.request(each.method, at(each.path))
        assert answer.status_code == 401, f"{each.method} {each.path}: {answer.status_code}"
        assert answer.headers["www-authenticate"].startswith("Bearer")
        assert answer.headers["content-type"] == "application/problem+json"


async def test_who_is_unknown_has_nothing_read_of_what_he_sends(http: Client) -> None:
    for each in GUARDED:
        if each.method in {"POST", "PUT"}:
            answer = await http.request(each.method, at(each.path), content=b"\xff" * 2_000_000)
            assert answer.status_code == 401, f"{each.method} {each.path}: {answer.status_code}"


async def test_each_door_opens_to_its_own_scope_alone(as_scope: Callable[..., Client]) -> None:
    for scope in ORDER:
        async with as_scope(scope) as client:
            for each in GUARDED:
                if each.scope is None or scope in {each.scope, "admin"}:
                    continue
                answer = await client.request(each.method, at(each.path))
                assert answer.status_code == 403, f"{scope} at {each.method} {each.path}: {answer.status_code}"


async def test_what_changes_something_never_needs_the_scope_read_alone() -> None:
    for each in GUARDED:
        if each.method != "GET":
            assert each.scope != "read", f"{each.method} {each.path}"


async def test_what_changes_the_cluster_is_written_down() -> None:
    for each in GUARDED:
        if each.scope in {"operate", "admin"} and each.method != "GET":
            assert each.audit, f"{each.method} {each.path}"


# Tokens that are none. ----------------------------------------------------------------------------------------------


async def test_every_forged_token_gets_the_same_answer(http: Client) -> None:
    # Headers cannot carry all of them; tests/unit/test_tokens.py has the rest.
    forged = [
        text
        for text in forgeries.all_of_them().values()
        if text.isascii() and text.isprintable() and len(text) < 20_000
    ]
    assert len(forged) > 100
    answers = set()
    for text in forged:
        answer = await http.get("/v1/stats", headers=bearer(text))
        told = answer.json()
        told.pop("request_id")
        answers.add((answer.status_code, json.dumps(told), answer.headers["www-authenticate"]))
    assert len(answers) == 1
    assert answers.pop()[0] == 401


@pytest.mark.parametrize(
    "given",
    [
        "",
        "Bearer",
        "Bearer ",
        "Basic YTpi",
        "bearer",
        "Token {}",
        "{}",
        "Bearer  {}",
        "Bearer {} x",
        "Bearer,{}",
        "Bearer\t{}",
    ],
)
async def test_a_token_is_sent_in_one_way_alone(http: Client, tokens: Tokens, given: str) -> None:
    answer = await http.get("/v1/stats", headers={"authorization": given.format(tokens("read"))})
    assert answer.status_code == 401


async def test_the_word_bearer_may_be_written_in_any_case(http: Client, tokens: Tokens) -> None:
    for word in ("Bearer", "bearer", "BEARER"):
        assert (await http.get("/v1/stats", headers={"authorization": f"{word} {tokens('read')}"})).status_code == 200


async def test_a_token_in_the_address_is_not_looked_at(http: Client, tokens: Tokens) -> None:
    for name in ("token", "access_token", "authorization"):
        assert (await http.get(f"/v1/auth/me?{name}={tokens('admin')}")).status_code in {401, 422}


# Passwords. ---------------------------------------------------------------------------------------------------------


async def test_a_user_gets_a_token_for_what_he_may(http: Client, ann: dict[str, str]) -> None:
    got = await logged_in(http)
    assert got["token_type"] == "Bearer"
    assert got["scopes"] == ["submit", "read"]
    assert 3500 < got["expires_in"] <= 3600
    told = (await me(http, got["access_token"])).json()
    assert told["subject"] == "user:ann"
    assert told["scopes"] == ["submit", "read"]
    assert told["expires_at"]


async def test_a_token_may_be_made_for_less_and_never_for_more(http: Client, ann: dict[str, str]) -> None:
    got = await logged_in(http, scopes=["read"])
    assert got["scopes"] == ["read"]
    assert (await http.post("/v1/jobs", json={"type": "x"}, headers=bearer(got["access_token"]))).status_code == 403
    for more in (["admin"], ["read", "operate"]):
        assert (await http.post("/v1/auth/token", json=ANN | {"scopes": more})).status_code == 403
    assert (await http.post("/v1/auth/token", json=ANN | {"scopes": ["root"]})).status_code == 422


async def test_a_wrong_password_and_an_unknown_user_get_the_same_answer(http: Client, ann: dict[str, str]) -> None:
    answers = []
    for said in ({"password": "wrong"}, {"username": "bob"}, {"username": "a\0b"}, {"username": "' or 1=1 --"}):
        answer = await http.post("/v1/auth/token", json=ANN | said)
        told = answer.json()
        told.pop("request_id")
        answers.append((answer.status_code, told, dict(answer.headers) | {"x-request-id": "", "content-length": ""}))
    assert [each[0] for each in answers] == [401] * 4
    assert all(each == answers[0] for each in answers)


@pytest.mark.parametrize(
    "body",
    [
        {}, {"username": "ann"}, {"password": "x"}, {"api_key": "wl_x", "username": "ann"}, {"username": ["ann"], "password": "x"},
        {"api_key": "wl_x", "password": "x"}, {"username": "ann", "password": {"$ne": ""}}, {"user": "ann"}, {"username": "", "password": ""},
        [], "ann", {"username": "ann", "password": "x" * 1001}, {"refresh_token": "x"},
    ],
)  # fmt: skip
async def test_a_login_that_is_none_is_told_what_is_missing(http: Client, body: Any) -> None:
    assert (await http.post("/v1/auth/token", json=body)).status_code == 422


# Guessing. ----------------------------------------------------------------------------------------------------------


async def guess(http: Client, **said: str) -> httpx2.Response:
    return await http.post("/v1/auth/token", json=ANN | {"password": "wrong"} | said)


async def test_after_ten_wrong_guesses_even_the_right_one_must_wait(http: Client, ann: dict[str, str]) -> None:
    statuses = [(await guess(http)).status_code for _ in range(12)]
    assert statuses == [401] * 10 + [429] * 2
    late = await http.post("/v1/auth/token", json=ANN)
    assert late.status_code == 429
    assert 1 <= int(late.headers["retry-after"]) <= 6


async def test_guesses_sent_at_once_are_counted_before_they_are_judged(http: Client, ann: dict[str, str]) -> None:
    answers = await asyncio.gather(*(guess(http) for _ in range(30)))
    assert sorted(each.status_code for each in answers) == [401] * 10 + [429] * 20


async def test_one_address_may_not_try_many_names(http: Client, ann: dict[str, str]) -> None:
    statuses = [(await guess(http, username=f"user{n}")).status_code for n in range(12)]
    assert statuses == [401] * 10 + [429] * 2


async def test_many_addresses_may_not_try_one_name(app: Any, ann: dict[str, str]) -> None:
    statuses = []
    for n in range(12):
        transport = httpx2.ASGITransport(app=app, client=(f"10.0.0.{n}", 1))
        async with Client(transport=transport, base_url="http://localhost") as client:
            statuses.append((await guess(client, username="ANN" if n % 2 else "ann")).status_code)
    assert statuses == [401] * 10 + [429] * 2


async def test_right_logins_are_not_counted(http: Client, ann: dict[str, str]) -> None:
    for _ in range(12):
        await logged_in(http)


async def test_a_login_that_could_not_be_judged_is_no_guess(
    http: Client, ann: dict[str, str], parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*_: Any) -> Any:
        raise Unavailable("the database is away")

    with monkeypatch.context() as patch:
        patch.setattr(type(parts.accounts), "user", away)
        assert [(await guess(http)).status_code for _ in range(15)] == [503] * 15
    with monkeypatch.context() as patch:
        patch.setattr("windlass.auth.passwords.inside_max", 0)
        assert [(await guess(http)).status_code for _ in range(15)] == [429] * 15
    await logged_in(http)


async def test_a_guesser_does_not_keep_programs_from_exchanging_their_keys(http: Client, api: Client) -> None:
    key = (await api.post("/v1/keys", json={"name": "k", "scopes": ["read"]})).json()["key"]
    for _ in range(11):
        await guess(http)
    assert (await http.post("/v1/auth/token", json={"api_key": key})).status_code == 200


async def test_wrong_keys_are_limited_too(http: Client, parts: Parts) -> None:
    async def statuses(tries: int) -> list[int]:
        return [(await http.post("/v1/auth/token", json={"api_key": f"wl_{n}"})).status_code for n in range(tries)]

    assert await statuses(105) == [401] * 100 + [429] * 5
    parts.gate.logins.clock = lambda: 1.2  # a hundred come back in a minute
    assert await statuses(4) == [401] * 2 + [429] * 2


# Refreshing. --------------------------------------------------------------------------------------------------------


async def test_a_refresh_token_gives_new_tokens_for_the_same(http: Client, ann: dict[str, str]) -> None:
    first = await logged_in(http, scopes=["read"])
    second = (await refreshed(http, first["refresh_token"])).json()
    assert second["scopes"] == ["read"]
    assert (await me(http, second["access_token"])).json()["subject"] == "user:ann"
    assert (await me(http, first["access_token"])).status_code == 200
    third = await refreshed(http, second["refresh_token"])
    assert third.status_code == 200


async def test_a_session_cannot_be_refreshed_for_longer_than_it_was_given(http: Client, ann: dict[str, str]) -> None:
    first = await logged_in(http)
    second = (await refreshed(http, first["refresh_token"])).json()
    assert claims(second["refresh_token"])["exp"] <= claims(first["refresh_token"])["exp"]


async def test_a_refresh_token_that_comes_again_ends_the_session(http: Client, ann: dict[str, str]) -> None:
    first, other = await logged_in(http), await logged_in(http)
    second = (await refreshed(http, first["refresh_token"])).json()
    assert (await refreshed(http, first["refresh_token"])).status_code == 401
    for token in (first["access_token"], second["access_token"]):
        assert (await me(http, token)).status_code == 401
    assert (await refreshed(http, second["refresh_token"])).status_code == 401
    assert (await me(http, other["access_token"])).status_code == 200


async def test_of_many_who_refresh_at_once_one_succeeds_at_most(http: Client, ann: dict[str, str]) -> None:
    token = (await logged_in(http))["refresh_token"]
    answers = await asyncio.gather(*(refreshed(http, token) for _ in range(20)))
    assert sorted(each.status_code for each in answers)[:1] == [200]
    assert sum(each.status_code == 200 for each in answers) == 1


async def test_no_other_token_refreshes(http: Client, ann: dict[str, str], tokens: Tokens) -> None:
    got = await logged_in(http)
    for token in (got["access_token"], tokens("admin"), "x", tokens.signer.sign("user:ann", ["admin"], 60, "refresh")):
        assert (await refreshed(http, token)).status_code == 401
    assert (await me(http, got["refresh_token"])).status_code == 401


# Logging out. -------------------------------------------------------------------------------------------------------


async def test_who_logs_out_ends_all_that_came_of_his_login(http: Client, ann: dict[str, str]) -> None:
    got = await logged_in(http)
    answer = await http.post("/v1/auth/logout", headers=bearer(got["access_token"]))
    assert answer.status_code == 204
    assert "Max-Age=0" in answer.headers["set-cookie"]
    assert (await me(http, got["access_token"])).status_code == 401
    assert (await refreshed(http, got["refresh_token"])).status_code == 401
    assert (await http.post("/v1/auth/logout", headers=bearer(got["access_token"]))).status_code == 401


async def test_a_token_without_a_session_is_ended_alone(http: Client, tokens: Tokens) -> None:
    one, other = tokens("read"), tokens("read")
    assert (await http.post("/v1/auth/logout", headers=bearer(one))).status_code == 204
    assert [(await me(http, each)).status_code for each in (one, other)] == [401, 200]


async def test_the_other_processes_hear_of_it(
    http: Client, ann: dict[str, str], settings: Config, store: Store
) -> None:
    got = await logged_in(http)
    async with Gate(settings, store.accounts) as other:
        assert other.verifier.verify(got["access_token"]).subject == "user:ann"
        await http.post("/v1/auth/logout", headers=bearer(got["access_token"]))
        await other._read()
        with pytest.raises(Unauthorized):
            other.verifier.verify(got["access_token"])
    async with Gate(settings, store.accounts) as later:
        with pytest.raises(Unauthorized):
            later.verifier.verify(got["access_token"])


async def test_what_was_revoked_while_the_list_was_read_is_not_forgotten(
    http: Client, parts: Parts, tokens: Tokens, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = tokens("read")
    before = await parts.accounts.revoked()
    assert (await http.post("/v1/auth/logout", headers=bearer(token))).status_code == 204

    async def asked_earlier(_: Any) -> Any:
        return before

    monkeypatch.setattr(type(parts.accounts), "revoked", asked_earlier)
    await parts.gate._read()
    assert (await me(http, token)).status_code == 401


async def test_nobody_is_let_in_while_it_is_unknown_who_is_revoked(
    http: Client, parts: Parts, tokens: Tokens, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (await me(http, tokens("read"))).status_code == 200
    monkeypatch.setattr(parts.gate, "_read_s", parts.gate._read_s - 60)
    answer = await me(http, tokens("read"))
    assert answer.status_code == 503
    assert answer.headers["retry-after"]
    await parts.gate._read()
    assert (await me(http, tokens("read"))).status_code == 200


# Other ways to be set up. -------------------------------------------------------------------------------------------


class TestOff:
    @pytest.fixture
    def settings(self, settings: Config) -> Config:
        return replace(settings, auth=replace(settings.auth, auth="off", auth_secret=None))

    @pytest.fixture
    def tokens(self) -> Tokens:
        return Tokens(Signer.of(AuthConfig(auth_secret=forgeries.SECRET)))

    async def test_everyone_may_do_everything(self, http: Client) -> None:
        told = (await http.get("/v1/auth/me")).json()
        assert (told["subject"], told["scopes"], told["expires_at"]) == ("anyone", list(ORDER), None)
        assert (await http.get("/v1/audit")).status_code == 200
        assert (await http.get("/v1/stats", headers=bearer("nonsense"))).status_code == 200
        assert (await http.post("/v1/auth/logout")).status_code == 204
        assert (await http.get("/login")).status_code == 303
        assert (await http.post("/login")).status_code == 303

    async def test_users_and_keys_can_be_made_for_later(self, http: Client) -> None:
        user = {"name": "ann", "password": "correct horse", "scopes": ["read"]}
        assert (await http.post("/v1/users", json=user)).status_code == 201
        assert (await http.put("/v1/users/ann/password", json={"password": "battery staple"})).status_code == 204
        assert (await http.delete("/v1/users/ann")).status_code == 204
        key = (await http.post("/v1/keys", json={"name": "k", "scopes": ["read"]})).json()
        assert (await http.delete(f"/v1/keys/{key['id']}")).status_code == 200

    async def test_no_tokens_are_made(self, http: Client) -> None:
        assert (await http.post("/v1/auth/token", json=ANN)).status_code == 409
        assert (await http.post("/v1/auth/refresh", json={"refresh_token": "x"})).status_code == 409

    async def test_a_foreign_page_changes_nothing(self, http: Client) -> None:
        for said in ({"origin": "http://evil.example"}, {"sec-fetch-site": "cross-site"}, {"origin": "null"}):
            answer = await http.post("/v1/queues/default/pause", headers=said)
            assert answer.status_code == 403
        assert (await http.post("/v1/queues/default/pause", headers=OWN)).status_code == 200


class TestSignedElsewhere:
    """The API has public keys alone."""

    KEY = ed25519.Ed25519PrivateKey.generate()

    @pytest.fixture
    def settings(self, settings: Config, tmp_path: Path) -> Config:
        (tmp_path / "main.pem").write_text(pem(self.KEY.public_key()))
        return replace(settings, auth=AuthConfig(auth_algorithm="EdDSA", auth_public_keys=str(tmp_path)))

    @pytest.fixture
    def tokens(self) -> Tokens:
        return Tokens(Signer.of(AuthConfig(auth_algorithm="EdDSA", auth_private_key=pem(self.KEY))))

    async def test_what_they_sign_is_good_here(self, http: Client, tokens: Tokens) -> None:
        assert (await me(http, tokens("read"))).json()["subject"] == "tester"
        assert (await http.get("/v1/stats", headers=bearer(tokens("read")))).status_code == 200
        assert (await http.post("/v1/auth/logout", headers=bearer(tokens("read")))).status_code == 204
        with_secret = Signer.of(AuthConfig(auth_secret=forgeries.SECRET)).sign("tester", ["admin"], 60)
        assert (await me(http, with_secret)).status_code == 401

    async def test_no_tokens_are_made(self, http: Client) -> None:
        assert (await http.post("/v1/auth/token", json=ANN)).status_code == 403
        assert (await http.post("/v1/auth/refresh", json={"refresh_token": "x"})).status_code == 403
        assert (await http.post("/login", data=ANN, headers=OWN)).status_code == 403
