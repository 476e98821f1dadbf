"""Large bodies at a real API: one caller's keep no other out, and none takes more memory than a few times its size."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path

import pytest

from tests.api.raw import Heard, Raw
from tests.api.served import Served, served, token
from tests.conftest import database
from tests.eventually import aeventually
from windlass.embedded.postgres import EmbeddedPostgres

_BULK = 32 * 2**20
JSON, NDJSON = "application/json", "application/x-ndjson"


@pytest.fixture(scope="module")
def api(postgres_server: EmbeddedPostgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with (
        database(postgres_server, "bodies") as url,
        served(url, tmp_path_factory.mktemp("api"), access_log="off", connections_max=300) as api,
    ):
        yield api


def head(path: str, length: int, subject: str, media: str = JSON) -> bytes:
    lines = (
        f"POST {path} HTTP/1.1",
        "Host: 127.0.0.1",
        f"Authorization: Bearer {token('submit', subject=subject)}",
        f"Content-Type: {media}",
        f"Content-Length: {length}",
    )
    return "\r\n".join([*lines, "", ""]).encode()


async def in_two_packets(api: Served, body: bytes, subject: str, path: str = "/v1/jobs") -> Heard:
    """The second leaves only when the server has had the first, as on a network."""
    async with Raw(api.port) as raw:
        await raw.send(head(path, len(body), subject) + body[:-1])
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(raw.reader.read(1), 0.2)
        await raw.send(body[-1:])
        return await raw.hear()


@asynccontextmanager
async def unfinished(api: Served, count: int, subject: str) -> AsyncIterator[list[Raw]]:
    """Bulks of which all but the last byte has arrived."""
    job = b'{"type":"noop","payload":"' + b"x" * (2**19) + b'"},'
    body = b"[" + job * ((_BULK - 1_000) // len(job))
    async with AsyncExitStack() as stack:
        uploads = [await stack.enter_async_context(Raw(api.port)) for _ in range(count)]
        for upload in uploads:
            await upload.send(head("/v1/jobs/bulk", _BULK, subject) + body)
        yield uploads


async def test_unfinished_uploads_of_one_caller_keep_nobody_out(api: Served) -> None:
    async with unfinished(api, 3, "hog"):
        small = b'{"type":"noop","payload":"' + b"x" * 20_000 + b'"}'
        large = b'{"type":"noop","payload":"' + b"x" * 800_000 + b'"}'
        bulk = b"[" + b",".join([large] * 38) + b"]"
        for body, subject, path in (
            (small, "hog", "/v1/jobs"),
            (small, "other", "/v1/jobs"),
            (large, "other", "/v1/jobs"),
            (bulk, "other", "/v1/jobs/bulk"),
        ):
            heard = await in_two_packets(api, body, subject, path)
            assert heard.status == 202, heard


async def test_who_gives_way_is_told_so_and_may_try_again(api: Served) -> None:
    async with unfinished(api, 2, "hog") as uploads:
        large = b'{"type":"noop","payload":"' + b"x" * 900_000 + b'"}'
        answers = [asyncio.create_task(upload.hear()) for upload in uploads]

        async def gave_way() -> bool:
            heard = await in_two_packets(api, b"[" + b",".join([large] * 30) + b"]", "other", "/v1/jobs/bulk")
            assert heard.status == 202, heard
            return any(answer.done() for answer in answers)

        await aeventually(gave_way)
        told = next(answer.result() for answer in answers if answer.done())
        assert (told.status, told.json()["code"], "retry-after" in told.headers) == (503, "unavailable", True)
        for answer in answers:
            answer.cancel()


@contextmanager
def growth_mb(api: Served) -> Iterator[list[float]]:
    """By how much its memory grows at most, meanwhile."""
    before_mb, grown, ended = api.memory_mb, [0.0], False

    def watch() -> None:
        while not ended:
            grown[0] = max(grown[0], api.memory_mb - before_mb)
            time.sleep(0.005)

    with ThreadPoolExecutor(1) as pool:
        watching = pool.submit(watch)
        try:
            yield grown
        finally:
            ended = True
        watching.result()


def filled(unit: bytes, between: bytes, begin: bytes = b"", end: bytes = b"", size: int = _BULK - 300) -> bytes:
    return begin + between.join([unit] * (size // len(unit + between))) + end


EMPTY = filled(b"{}", b",", b"[", b"]", 3_000)
BULKS = {
    "lines of {}": (NDJSON, filled(b"{}", b"\n"), "jobs[0].type"),
    "an array of {}": (JSON, filled(b"{}", b",", b"[", b"]"), "jobs[0].type"),
    "two million jobs": (JSON, filled(b'{"type":"x"}', b",", b"[", b"]"), "jobs"),
    "two million lines": (NDJSON, filled(b'{"type":"x"}', b"\n"), "jobs"),
    "blank lines": (NDJSON, b"\n" * _BULK, "jobs"),
    "a job of 32 MB": (JSON, filled(b"{}", b",", b'[{"type":"x","payload":[', b"]}]"), "jobs[0]"),
    "tags without end": (JSON, filled(b'"a"', b",", b'[{"type":"x","tags":[', b"]}]"), "jobs[0]"),
    "many large payloads, and a wrong one": (
        JSON,
        b"[" + b'{"type":"x","payload":' + EMPTY + b"}," + b'{"type":"x","payload":' * 2,
        None,
    ),
}


@pytest.mark.parametrize("name", BULKS)
async def test_a_bulk_that_is_refused_takes_little_memory(api: Served, name: str) -> None:
    media, body, field = BULKS[name]
    with growth_mb(api) as grown:
        async with Raw(api.port) as raw:
            heard = await raw.call("POST", "/v1/jobs/bulk", body, token=token("submit"), Content_Type=media)
    assert (heard.status, heard.json().get("field")) == (422 if field else 400, field), heard
    assert grown[0] < 100, grown


async def test_a_bulk_is_refused_before_it_has_arrived(api: Served) -> None:
    async with Raw(api.port) as raw:
        await raw.send(head("/v1/jobs/bulk", _BULK, "tester", NDJSON) + b'{"type":"x"}\n{}\n')
        heard = await asyncio.wait_for(raw.hear(), 20)
    assert (heard.status, heard.json()["field"]) == (422, "jobs[1].type")


async def test_many_payloads_that_are_all_brackets_take_a_few_times_their_size(api: Served) -> None:
    job = b'{"type":"x","payload":' + EMPTY + b"}"
    with growth_mb(api) as grown:
        async with Raw(api.port) as raw:
            heard = await raw.call("POST", "/v1/jobs/bulk", filled(job, b"\n", size=2**23), token=token("submit"),
                                   Content_Type=NDJSON)  # fmt: skip
    assert heard.status == 202, heard
    assert grown[0] < 100  # decoded at once, 200


async def test_large_jobs_at_once_take_no_more_memory_than_one(api: Served) -> None:
    body = filled(b"{}", b",", b'{"type":"x","payload":[', b"]}", 500_000)

    async def submit() -> int:
        async with Raw(api.port) as raw:
            return (await raw.call("POST", "/v1/jobs", body, token=token("submit"))).status

    with growth_mb(api) as grown:
        assert set(await asyncio.gather(*(submit() for _ in range(20)))) == {202}
    assert grown[0] < 120  # decoded side by side, 250 and more


async def test_resetting_pipelined_requests_leaves_no_error_in_the_log(url: str, tmp_path: Path) -> None:
    body = b'{"type":"noop"}'
    post = head("/v1/jobs", len(body), "tester") + body
    reads = f"GET /v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token('read')}\r\n\r\n".encode()
    with served(url, tmp_path) as api:
        for sent in (post * 5, post * 2 + post[:-3], reads * 5, reads + post[:-3], reads * 2 + b"NONSENSE\r\n\r\n"):
            for _ in range(10):
                async with Raw(api.port) as raw:  # leaving it resets the connection
                    await raw.send(sent)
        async with Raw(api.port) as raw:
            assert (await raw.call("GET", "/livez")).status == 200
    log = api.log.read_text()
    assert "Traceback" not in log
    assert '"level": "error"' not in log


async def test_requests_that_wait_on_one_connection_are_few(api: Served) -> None:
    with growth_mb(api) as grown:
        async with AsyncExitStack() as stack:
            for _ in range(100):
                raw = await stack.enter_async_context(Raw(api.port))
                await raw.send(b"GET /v1/jobs HTTP/1.1\r\n\r\n" * 10_000)
            async with Raw(api.port) as raw:
                assert (await raw.call("GET", "/livez")).status == 200
    assert grown[0] < 150  # each of a million held 3 KB
