"""What is sent in disguise, or in such amounts that it would wear the API down: no header counts that nobody before us has
seen, and nobody, not even with a token, fills the memory or holds up the others.
"""

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.api.raw import Heard, Raw
from tests.api.served import Served, served, token
from tests.conftest import database
from tests.eventually import aeventually
from windlass.clock import steady_s
from windlass.embedded.postgres import EmbeddedPostgres


@pytest.fixture(scope="module")
def shared(postgres_server: EmbeddedPostgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One API for all tests here."""
    with database(postgres_server, "worn") as url, served(url, tmp_path_factory.mktemp("api")) as api:
        yield api


# Headers that are none, or there twice. ------------------------------------------------------------------------------


async def test_what_comes_after_a_body_is_no_header(shared: Served) -> None:
    """A proxy judges the headers before a body; those behind it must not count."""
    head = "POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    body = f'f\r\n{{"type": "noop"\r\n1\r\n}}\r\n0\r\nAuthorization: Bearer {token("submit")}\r\n\r\n'
    async with Raw(shared.port) as raw:
        await raw.send((head + body).encode())
        assert (await raw.hear()).status == 401


async def test_headers_without_end_after_a_body_are_cut_off_and_take_no_memory(shared: Served) -> None:
    """By anyone, without a token."""
    before_mb = shared.memory_mb
    head = b"POST /v1/auth/token HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n"
    for lines in ((b"x: " + b"a" * 1000 + b"\r\n") * 1000, b"a" * 1_000_000):
        async with Raw(shared.port) as raw:
            with contextlib.suppress(ConnectionError):
                await raw.send(head)
                for _ in range(64):
                    await raw.send(lines)
    assert shared.memory_mb - before_mb < 40


@pytest.mark.parametrize("name", ["Host", "Authorization", "Content-Type", "Idempotency-Key"])
async def test_a_header_that_may_be_there_once_is_refused_twice(shared: Served, name: str) -> None:
    twice = f"{name}: a\r\n{name}: b"
    host = "" if name == "Host" else "Host: localhost\r\n"
    async with Raw(shared.port) as raw:
        await raw.send(f"GET /livez HTTP/1.1\r\n{host}{twice}\r\n\r\n".encode())
        heard = await raw.hear()
    assert (heard.status, heard.json()["detail"]) == (400, f"the header {name.lower()} is there twice")


@pytest.mark.parametrize(
    "host",
    ["evil@localhost", "localhost:80@evil.example", "a:b@localhost:8080", "localhost/", "local host", "localhost:x"],
)
async def test_a_host_with_user_info_or_worse_is_refused(shared: Served, host: str) -> None:
    async with Raw(shared.port) as raw:
        heard = await raw.call("GET", "/livez", Host=host)
    assert (heard.status, heard.json()["detail"]) == (400, "the Host header is no host name")


@pytest.mark.parametrize("host", ["LOCALHOST", "localhost.", "localhost:8080", "[::1]", "[0:0::1]:80", "127.0.0.1:"])
async def test_a_host_of_ours_is_answered_however_it_is_written(shared: Served, host: str) -> None:
    async with Raw(shared.port) as raw:
        assert (await raw.call("GET", "/livez", Host=host)).status == 200


async def test_a_slash_in_disguise_leads_nowhere(shared: Served) -> None:
    """What stands before us may have let it pass as something else."""
    async with Raw(shared.port) as raw:
        for path in ("/v1%2Fjobs", "/v1%2fauth%2Fme", "/%76%31%2Fusers", "/docs%2fdocs.css"):
            assert (await raw.call("GET", path, token=token("admin"))).status == 404
        assert (await raw.call("GET", "/v1/%6aobs", token=token("read"))).status == 200


# Much, from many or from anyone. --------------------------------------------------------------------------------------


async def test_who_has_not_logged_in_may_send_little(shared: Served) -> None:
    async with Raw(shared.port) as raw:
        heard = await raw.call("POST", "/v1/auth/token", {"username": "a", "password": "x" * 20_000})
    assert (heard.status, heard.json()["code"]) == (413, "too_large")


async def test_a_field_name_of_megabytes_is_refused_quickly(shared: Served) -> None:
    body = b'[{"type": "noop", "' + b"a" * 30_000_000 + b'": 1}]'
    async with Raw(shared.port) as raw:
        asking = asyncio.create_task(raw.call("POST", "/v1/jobs/bulk", body, token=token("submit")))
        longest_s = 0.0
        async with Raw(shared.port) as other:
            while not asking.done():
                began_s = steady_s()
                assert (await other.call("GET", "/livez")).status == 200
                longest_s = max(longest_s, steady_s() - began_s)
        assert (await asking).status == 422
    assert longest_s < 1  # looked for among the known names as it is, it takes many seconds


async def test_large_bodies_share_a_room_that_comes_back(url: str, tmp_path: Path) -> None:
    half = (
        (
            f"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token('submit')}\r\n"
            "Content-Type: application/json\r\nContent-Length: 600000\r\n\r\n"
        ).encode()
        + b'{"type": "noop", "payload": "'
        + b"x" * 500_000
    )
    rest = b"x" * (600_000 - len(half.partition(b"\r\n\r\n")[2]) - 2) + b'"}'
    with served(url, tmp_path, body_bytes_max=1_000_000, bulk_bytes_max=1_000_000) as api:
        async with contextlib.AsyncExitStack() as stack:
            held = [await stack.enter_async_context(Raw(api.port)) for _ in range(6)]
            for raw in held:
                await raw.send(half)
            heard = await _first(held)
            assert (heard.status, heard.json()["code"]) == (503, "unavailable")
            assert heard.headers["retry-after"]

        async def is_stored() -> bool:
            async with Raw(api.port) as raw:
                await raw.send(half + rest)
                return (await raw.hear()).status == 202

        await aeventually(is_stored)


async def _first(callers: list[Raw]) -> Heard:
    hearing = [asyncio.create_task(raw.hear()) for raw in callers]
    done, waiting = await asyncio.wait(hearing, return_when=asyncio.FIRST_COMPLETED, timeout=10)
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    return done.pop().result()


async def test_what_is_no_http_fills_no_log(shared: Served) -> None:
    for said in (
        b"nonsense\r\n\r\n",
        b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
    ):
        async with Raw(shared.port) as raw:
            await raw.send(said)
            await raw.hear()
    assert "Invalid HTTP" not in shared.log.read_text()
    assert "upgrade" not in shared.log.read_text()
