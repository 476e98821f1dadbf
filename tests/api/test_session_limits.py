"""What a caller leaves behind at a refresh or logout is kept for long: nobody, however well known, may pile it up."""

from tests.api.callers import ANN, Client, bearer, logged_in, me, refreshed
from tests.api.conftest import Tokens
from windlass.store.store import Store


async def test_a_session_is_not_refreshed_without_end(api: Client, http: Client) -> None:
    made = {"name": ANN["username"], "password": ANN["password"], "scopes": ["read"]}
    assert (await api.post("/v1/users", json=made)).status_code == 201
    first = await logged_in(http)
    token, answers = first["refresh_token"], 0
    while (answer := await refreshed(http, token)).status_code == 200:
        token, answers = answer.json()["refresh_token"], answers + 1
        assert answers < 70
    assert answer.status_code == 429
    assert int(answer.headers["retry-after"]) >= 1
    assert (await refreshed(http, first["refresh_token"])).status_code == 401  # a token that comes twice is still seen
    assert (await me(http, first["access_token"])).status_code == 401


async def test_who_makes_himself_tokens_to_end_them_does_not_fill_the_list_of_the_revoked(
    http: Client, store: Store, tokens: Tokens
) -> None:
    answers = [
        (await http.post("/v1/auth/logout", headers=bearer(tokens("read", subject="key:one")))).status_code
        for _ in range(80)
    ]
    assert set(answers) == {204, 429}
    assert len(await store.accounts.revoked()) < 70
    assert (await http.post("/v1/auth/logout", headers=bearer(tokens("read", subject="key:two")))).status_code == 204
