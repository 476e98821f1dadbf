"""What strangers and broken clients send: each gets a plain refusal, nothing is stored, and the others notice nothing."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from statistics import quantiles
from typing import Any

import asyncpg
import pytest

from tests.api.raw import Raw
from tests.api.served import Served, served, token
from tests.conftest import database
from tests.eventually import aeventually
from windlass.clock import steady_s
from windlass.embedded.postgres import EmbeddedPostgres


@pytest.fixture(scope="module")
def shared_url(postgres_server: EmbeddedPostgres) -> Iterator[str]:
    """One database for the many small tests."""
    with database(postgres_server, "abused") as url:
        yield url


@pytest.fixture(scope="module")
def shared(shared_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One API for the many small tests."""
    with served(shared_url, tmp_path_factory.mktemp("api")) as api:
        yield api


@pytest.fixture
async def api(url: str, tmp_path: Path) -> AsyncIterator[Served]:
    with served(url, tmp_path, head_timeout_s=2, body_timeout_s=2, connections_max=150) as api:
        yield api


async def stored(url: str) -> int:
    connection = await asyncpg.connect(url)
    try:
        count: int = await connection.fetchval("select count(*) from windlass.job")
        return count
    finally:
        await connection.close()


def nested(depth: int, opening: str, closing: str, middle: str = "1") -> bytes:
    return b'{"type": "noop", "payload": ' + (opening * depth + middle + closing * depth).encode() + b"}"


BODIES: dict[str, bytes | dict[str, Any]] = {
    "nothing": b"",
    "no JSON": b"{type: noop}",
    "half of it": b'{"type": "noop"',
    "two": b'{"type": "noop"} {"type": "noop"}',
    "a list": b'[{"type": "noop"}]',
    "a number": b"7",
    "null": b"null",
    "no UTF-8": b'{"type": "noop", "payload": "\xff\xfe"}',
    "half a character": b'{"type": "noop", "payload": "\\ud800"}',
    "a NUL": b'{"type": "noop", "payload": "\\u0000"}',
    "arrays too deep": nested(100_000, "[", "]"),
    "objects too deep": nested(100_000, '{"a":', "}"),
    "a little too deep": nested(200, "[", "]"),
    "not a number": b'{"type": "noop", "payload": NaN}',
    "infinite": b'{"type": "noop", "payload": 1e400}',
    "a number that grows": b'{"type": "noop", "payload": [' + b",".join([b"1e131071"] * 1_000) + b"]}",
    "an integer of 10,000 digits": b'{"type": "noop", "payload": ' + b"9" * 10_000 + b"}",
    "too large": b'{"type": "noop", "payload": "' + b"x" * 1_100_000 + b'"}',
    "an unknown field": {"type": "noop", "prioritty": 1},
    "no type": {"payload": 1},
    "a type that is none": {"type": 7},
    "a type with a line break": {"type": "no\nop"},
    "a queue with a quote": {"type": "noop", "queue": "a'; drop table windlass.job; --"},
    "priority as text": {"type": "noop", "priority": "5"},
    "priority too high": {"type": "noop", "priority": 101},
    "priority a fraction": {"type": "noop", "priority": 1.5},
    "no threads": {"type": "noop", "thread_demand": 0},
    "threads without end": {"type": "noop", "thread_demand": 10**9},
    "no attempts": {"type": "noop", "max_attempts": 0},
    "negative delay": {"type": "noop", "delay_s": -1},
    "a moment without a zone": {"type": "noop", "scheduled_at": "2030-01-01T00:00:00"},
    "no moment": {"type": "noop", "scheduled_at": "tomorrow"},
    "delay and moment": {"type": "noop", "delay_s": 1, "scheduled_at": "2030-01-01T00:00:00Z"},
    "an id that is none": {"type": "noop", "id": "7"},
    "an id of another kind": {"type": "noop", "id": "6b0a1ff4-5a3f-4ad0-9f4e-3d8b0d1f7e0a"},
    "tags twice": {"type": "noop", "tags": ["a", "a"]},
    "tags without end": {"type": "noop", "tags": [str(n) for n in range(1_000)]},
    "a key without end": {"type": "noop", "idempotency_key": "k" * 10_000},
    "retry that shrinks": {"type": "noop", "retry": {"factor": 0.5}},
    "retry unknown": {"type": "noop", "retry": {"factr": 2}},
}


@pytest.mark.parametrize("name", BODIES)
async def test_a_wrong_submission_is_refused_in_words_and_nothing_is_stored(
    shared: Served, shared_url: str, name: str
) -> None:
    async with Raw(shared.port) as raw:
        heard = await raw.call("POST", "/v1/jobs", BODIES[name], token=token("submit"))
    assert 400 <= heard.status < 500, heard
    assert heard.headers["content-type"] == "application/problem+json"
    problem = heard.json()
    assert problem["status"] == heard.status
    assert problem["code"]
    assert problem["detail"]
    assert "Traceback" not in heard.body.decode()
    if isinstance(body := BODIES[name], dict) and heard.status == 422:
        assert problem["field"].split(".")[0].split("[")[0] in {*body, "type", "prioritty"}
    assert await stored(shared_url) == 0


REQUESTS: dict[str, bytes] = {
    "no HTTP": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "a head without end": b"GET /livez HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 1_000_000 + b"\r\n\r\n",
    "a thousand headers": b"GET /livez HTTP/1.1\r\nHost: x\r\n" + b"X-Y: z\r\n" * 20_000 + b"\r\n",
    "a path without end": b"GET /" + b"a" * 1_000_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
    "two lengths": b"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
    "length and chunks": b"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "a negative length": b"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
    "a chunk that lies": b"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzzz\r\n",
}


@pytest.mark.parametrize("name", REQUESTS)
async def test_a_request_that_is_none_is_refused_or_cut_off_and_the_next_is_served(shared: Served, name: str) -> None:
    async with Raw(shared.port) as raw:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            await raw.send(REQUESTS[name])
            async with asyncio.timeout(10):
                heard = await raw.hear()
            assert 400 <= heard.status < 500, heard
    async with Raw(shared.port) as raw:
        assert (await raw.call("GET", "/livez")).status == 200


async def test_a_body_without_end_is_cut_off_early(api: Served) -> None:
    """A gigabyte in chunks: refused once it is larger than allowed, not after it has come."""
    before_mb = api.memory_mb
    sent = 0
    head = (
        "POST /v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        f"Authorization: Bearer {token('submit')}\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    chunk = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
    async with Raw(api.port) as raw:
        await raw.send(head.encode())
        with contextlib.suppress(ConnectionError):
            while sent < 2**30:
                await raw.send(chunk)
                sent += len(chunk)
                if raw.reader._buffer:  # type: ignore[attr-defined]  # it has answered
                    break
        heard = await raw.hear()
    assert heard.status == 413
    assert heard.json()["code"] == "too_large"
    assert sent < 64 * 2**20
    assert api.memory_mb - before_mb < 50


async def test_slow_and_silent_connections_cost_little_and_are_cut_off(api: Served) -> None:
    reader = token("read")

    async def p99_ms() -> float:
        times = []
        async with Raw(api.port) as raw:
            for _ in range(200):
                began_s = steady_s()
                assert (await raw.call("GET", "/v1/stats", token=reader)).status == 200
                times.append((steady_s() - began_s) * 1000)
        return quantiles(times, n=100)[98]

    await p99_ms()
    quiet_ms, before_mb = await p99_ms(), api.memory_mb
    async with contextlib.AsyncExitStack() as stack:
        hanging = [await stack.enter_async_context(Raw(api.port)) for _ in range(100)]
        for n, raw in enumerate(hanging):
            if n % 3 == 1:
                await raw.send(b"GET /v1/stats HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Half: ")
            elif n % 3 == 2:
                said = f"Authorization: Bearer {token('submit')}\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n"
                await raw.send(f"POST /v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\n{said}\r\n{{".encode())
        beside_ms = min([await p99_ms() for _ in range(3)])  # others on this machine slow it now and then
        assert beside_ms < max(2 * quiet_ms, quiet_ms + 20)
        assert api.memory_mb - before_mb < 100
        await aeventually(lambda: _all_ended(hanging), 15)


async def _all_ended(connections: list[Raw]) -> bool:
    for raw in connections:
        with contextlib.suppress(ConnectionError, TimeoutError):
            async with asyncio.timeout(0.01):
                await raw.reader.read(65_536)
    return all(raw.reader.at_eof() or raw.reader.exception() for raw in connections)


async def test_more_connections_than_allowed_are_turned_away_and_room_comes_back(api: Served) -> None:
    async with contextlib.AsyncExitStack() as stack:
        for _ in range(200):
            with contextlib.suppress(ConnectionError):
                await stack.enter_async_context(Raw(api.port))

        async def refused() -> bool:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                async with Raw(api.port) as raw:
                    return (await raw.call("GET", "/livez")).status == 503
            return True

        await aeventually(refused, 5)

    async def served_again() -> bool:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            async with Raw(api.port) as raw:
                return (await raw.call("GET", "/livez")).status == 200
        return False

    await aeventually(served_again, 10)


@pytest.mark.parametrize(
    "query",
    [
        "limit=1000000000",
        "limit=0",
        "limit=-1",
        "limit=x",
        "cursor=x",
        "status=lost",
        "created_after=now",
        "colour=red",
    ],
)
async def test_a_wrong_question_is_refused_by_the_name_of_its_field(shared: Served, query: str) -> None:
    async with Raw(shared.port) as raw:
        heard = await raw.call("GET", f"/v1/jobs?{query}", token=token("read"))
    assert heard.status == 422, heard
    assert heard.json()["field"].partition("[")[0] == query.partition("=")[0]
