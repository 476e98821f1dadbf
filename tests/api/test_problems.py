"""What is wrong is said precisely, always in the same form, and nothing of the inside is told."""

import logging
from collections.abc import Awaitable, Callable
from typing import Any

import httpx2
import pytest
from starlette.types import ASGIApp

from tests.api.conftest import Tokens
from windlass.api.app import build
from windlass.api.endpoint import Call, Endpoint
from windlass.api.parts import Parts
from windlass.api.table import table
from windlass.config import ApiConfig, AuthConfig, Config, StoreConfig
from windlass.errors import Unavailable
from windlass.store.store import Store
from windlass.telemetry import LineHandler

Client = httpx2.AsyncClient
JSON = {"content-type": "application/json"}

WRONG: list[tuple[bytes, int, str | None]] = [
    (b"", 400, None),
    (b"{", 400, None),
    (b"nonsense", 400, None),
    (b'{"type":"echo"} x', 400, None),
    (b'{"type":"echo","payload":"\xff"}', 400, None),
    (b"\xef\xbb\xbf{}", 400, None),
    (b'{"type":"echo","payload":NaN}', 400, None),
    (b"[]", 422, "body"),
    (b"null", 422, "body"),
    (b"{}", 422, "type"),
    (b'{"type":3}', 422, "type"),
    (b'{"type":""}', 422, "type"),
    (b'{"type":"a b"}', 422, "type"),
    (b'{"type":"echo\\n"}', 422, "type"),
    (b'{"type":"echo","priority":"high"}', 422, "priority"),
    (b'{"type":"echo","priority":101}', 422, "priority"),
    (b'{"type":"echo","priority":1.5}', 422, "priority"),
    (b'{"type":"echo","priority":99999999999999999999}', 422, "priority"),
    (b'{"type":"echo","thread_demand":0}', 422, "thread_demand"),
    (b'{"type":"echo","thread_demand":true}', 422, "thread_demand"),
    (b'{"type":"echo","max_attempts":0}', 422, "max_attempts"),
    (b'{"type":"echo","timeout_s":0}', 422, "timeout_s"),
    (b'{"type":"echo","delay_s":-1}', 422, "delay_s"),
    (b'{"type":"echo","delay_s":1,"scheduled_at":"2099-01-01T00:00:00Z"}', 422, "delay_s"),
    (b'{"type":"echo","scheduled_at":"tomorrow"}', 422, "scheduled_at"),
    (b'{"type":"echo","scheduled_at":"2099-01-01T00:00:00"}', 422, "scheduled_at"),
    (b'{"type":"echo","scheduled_at":"9999-12-31T23:59:59-12:00"}', 422, "scheduled_at"),
    (b'{"type":"echo","retry":{"factor":0}}', 422, "retry.factor"),
    (b'{"type":"echo","retry":{"colour":0}}', 422, "retry.colour"),
    (b'{"type":"echo","tags":["a",3]}', 422, "tags[1]"),
    (b'{"type":"echo","tags":["a","a"]}', 422, "tags"),
    (b'{"type":"echo","tags":["a\\u0007"]}', 422, "tags[0]"),
    (b'{"type":"echo","id":"x"}', 422, "id"),
    (b'{"type":"echo","id":"6c7e1c2e-8c0f-4ddc-8f4e-0d2b7c3f9a11"}', 422, "id"),
    (b'{"type":"echo","idempotency_key":"a\\nb"}', 422, "idempotency_key"),
    (b'{"type":"echo","if_too_wide":"cut"}', 422, "if_too_wide"),
    (b'{"type":"echo","priorty":1}', 422, "priorty"),
    (b'{"type":"echo","payload":{"a":"\\u0000"}}', 422, "payload.a"),
    (b'{"type":"echo","payload":1e400}', 422, "payload"),
    (b'{"type":"echo","payload":' + b"9" * 5000 + b"}", 422, "payload"),
    (b'{"type":"echo","payload":' + b"[" * 100_000 + b"]" * 100_000 + b"}", 422, "body"),
]


async def test_every_wrong_submission_names_its_field_and_stores_nothing(api: Client, store: Store) -> None:
    for body, status, field in WRONG:
        answer = await api.post("/v1/jobs", content=body, headers=JSON)
        told = answer.json()
        assert (answer.status_code, told.get("field")) == (status, field), (body[:80], told)
        assert answer.headers["content-type"] == "application/problem+json"
        assert told["type"] == f"urn:windlass:problem:{told['code']}"
        assert (told["status"], told["request_id"]) == (status, answer.headers["x-request-id"])
        assert told["title"]
        assert told["detail"]
    assert await store.views.counts() == {}


async def test_a_payload_too_deep_is_refused_by_its_path(api: Client) -> None:
    body = b'{"type":"echo","payload":' + b"[" * 150 + b"]" * 150 + b"}"
    answer = await api.post("/v1/jobs", content=body, headers=JSON)
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_payload")


async def test_other_media_are_refused(api: Client) -> None:
    for media in ("text/plain", "application/x-www-form-urlencoded", "application/x-ndjson", "x" * 1000):
        answer = await api.post("/v1/jobs", content=b"{}", headers={"content-type": media})
        assert (answer.status_code, answer.json()["code"]) == (415, "wrong_media")
    assert (await api.post("/v1/jobs", content=b'{"type":"echo"}')).status_code == 415
    charset = {"content-type": "Application/JSON; charset=utf-8"}
    assert (await api.post("/v1/jobs", content=b'{"type":"echo"}', headers=charset)).status_code == 202


async def test_a_body_too_large_is_refused_whatever_it_says_of_its_length(api: Client) -> None:
    async def pieces() -> Any:
        for _ in range(40):
            yield b" " * 65_536

    said = await api.post("/v1/jobs", content=b" " * 1_100_000, headers=JSON)
    unsaid = await api.post("/v1/jobs", content=pieces(), headers=JSON)
    for answer in (said, unsaid):
        assert (answer.status_code, answer.json()["code"]) == (413, "too_large")


async def test_what_is_not_there_and_what_is_not_done_there(api: Client) -> None:
    for path in ("/nope", "/v1/jobs/", "/v1//jobs", "/v1/jobs/x/y/z", "/%ff", "/v1/queues//pause"):
        answer = await api.get(path)
        assert (answer.status_code, answer.json()["code"]) == (404, "no_such_path"), path
    for method, path, allow in (
        ("DELETE", "/v1/jobs", "GET, HEAD, OPTIONS, POST"),
        ("GET", "/v1/jobs/bulk", "OPTIONS, POST"),
        ("PATCH", "/v1/jobs/some-id", "GET, HEAD, OPTIONS"),
        ("TRACE", "/health", "GET, HEAD, OPTIONS"),
    ):
        answer = await api.request(method, path)
        assert (answer.status_code, answer.headers["allow"]) == (405, allow)


async def test_head_is_get_without_the_body(api: Client) -> None:
    whole = await api.get("/v1/stats")
    head = await api.head("/v1/stats")
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-length"] == whole.headers["content-length"]
    options = await api.options("/v1/jobs/x")
    assert (options.status_code, options.headers["allow"]) == (204, "GET, HEAD, OPTIONS")


async def test_nothing_but_probes_pages_and_the_login_is_open(http: Client) -> None:
    """Every endpoint there is, without a token."""
    closed = 0
    for endpoint in table():
        path = endpoint.path.replace("{id}", "01890000-0000-7000-8000-000000000000").replace("{name}", "x")
        if endpoint.scope is None:
            known = path.startswith(("/v1/auth/", "/login", "/docs", "/ui")) or path in {
                "/",
                "/livez",
                "/readyz",
                "/health",
                "/openapi.json",
            }
            assert known, path
            continue
        answer = await http.request(endpoint.method, path)
        assert answer.status_code == 401, path
        assert answer.headers["www-authenticate"].startswith("Bearer")
        closed += 1
    assert closed > 30


async def test_a_request_id_is_taken_over_if_it_can_be_written_anywhere(http: Client) -> None:
    assert (await http.get("/health", headers={"x-request-id": "a-B_1.2"})).headers["x-request-id"] == "a-B_1.2"
    for bad in ("a b", "x" * 65, "é", "<script>", ""):
        made = (await http.get("/health", headers={b"x-request-id": bad.encode()})).headers["x-request-id"]
        assert made not in {bad, ""}


async def test_every_answer_forbids_guessing_and_keeping(api: Client) -> None:
    for path in ("/v1/jobs", "/health", "/nope"):
        headers = (await api.get(path)).headers
        assert (headers["x-content-type-options"], headers["cache-control"]) == ("nosniff", "no-store")


# Faults of ours. ----------------------------------------------------------------------------------------------------


def _failing(handler: Callable[[Call], Awaitable[Any]]) -> Endpoint:
    return Endpoint("GET", "/fails", None, handler, summary="", tag="", answers={200: None})


async def _call(app: ASGIApp, path: str = "/fails") -> httpx2.Response:
    async with Client(transport=httpx2.ASGITransport(app=app), base_url="http://localhost") as client:
        return await client.get(path)


async def test_a_fault_of_ours_is_logged_and_tells_nothing(parts: Parts, caplog: pytest.LogCaptureFixture) -> None:
    async def handler(call: Call) -> None:
        raise RuntimeError("secret-of-the-inside")

    answer = await _call(build(parts, [_failing(handler)]))
    assert (answer.status_code, answer.json()["code"]) == (500, "internal")
    assert "secret-of-the-inside" not in answer.text
    assert "Traceback" not in answer.text
    (record,) = [each for each in caplog.records if each.levelno == logging.ERROR]
    assert record.__dict__["request_id"] == answer.headers["x-request-id"]
    assert record.exc_info is not None
    assert "secret-of-the-inside" in str(record.exc_info[1])


async def test_what_is_unavailable_says_when_to_come_back(parts: Parts) -> None:
    async def handler(call: Call) -> None:
        raise Unavailable("the database does not answer")

    answer = await _call(build(parts, [_failing(handler)]))
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")


async def test_what_the_driver_says_is_for_the_log(parts: Parts, caplog: pytest.LogCaptureFixture) -> None:
    """It names hosts and users, and a login is open to anyone."""

    async def handler(call: Call) -> None:
        raise Unavailable("PostgreSQL cannot be reached: ('10.1.2.3', 5432)") from OSError()

    answer = await _call(build(parts, [_failing(handler)]))
    assert (answer.status_code, answer.json()["code"]) == (503, "unavailable")
    assert "10.1.2.3" not in answer.text
    assert "10.1.2.3" in caplog.text


async def test_the_access_log_has_no_query_string(
    parts: Parts,
    app: ASGIApp,
    tokens: Tokens,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    root = logging.getLogger()  # which another test of this process may have set up to write lines of JSON
    monkeypatch.setattr(root, "handlers", [each for each in root.handlers if not isinstance(each, LineHandler)])
    with caplog.at_level(logging.INFO):
        async with Client(
            transport=httpx2.ASGITransport(app=app), base_url="http://localhost", headers=tokens.headers("read")
        ) as client:
            await client.get("/v1/jobs?tag=hush", headers={"x-request-id": "seen"})
        parts.access.write()
    (record,) = [each.__dict__ for each in caplog.records if each.name == "windlass.api.access"]
    assert (record["path"], record["status"], record["actor"], record["request_id"]) == (
        "/v1/jobs",
        200,
        "tester",
        "seen",
    )
    assert "hush" not in str(record)


# Hosts and other origins. -------------------------------------------------------------------------------------------


@pytest.fixture
def settings(config: StoreConfig) -> Config:
    api = ApiConfig(port=0, cors_origins="https://a.example, https://b.example/")
    return Config(store=config, auth=AuthConfig(auth_secret="0123456789abcdef0123456789abcdef"), api=api)


async def test_a_page_of_another_origin_may_call_only_if_it_is_configured(api: Client) -> None:
    ask = {"access-control-request-method": "POST"}
    for origin in ("https://a.example", "https://b.example"):
        allowed = await api.options("/v1/jobs", headers={"origin": origin, **ask})
        assert allowed.headers["access-control-allow-origin"] == origin
        assert "POST" in allowed.headers["access-control-allow-methods"]
        assert "access-control-allow-credentials" not in allowed.headers
        assert (await api.get("/v1/jobs", headers={"origin": origin})).headers["vary"] == "Origin"
    for origin in ("https://evil.example", "https://a.example.evil", "null"):
        refused = await api.options("/v1/jobs", headers={"origin": origin, **ask})
        assert "access-control-allow-origin" not in refused.headers


async def test_on_loopback_a_name_that_is_not_ours_is_not_answered(api: Client) -> None:
    for host in ("localhost", "localhost:8080", "127.0.0.1", "127.0.0.1:1", "[::1]", "[::1]:8080", "LOCALHOST"):
        assert (await api.get("/health", headers={"host": host})).status_code == 200, host
    for host in ("rebound.example", "localhost.evil.example", "127.0.0.1.evil.example:80", "", "[::2]"):
        assert (await api.get("/health", headers={"host": host})).status_code == 400, host
