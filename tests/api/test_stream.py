"""GET /v1/events on a real server: told as server-sent events, for as long as client, token and server last."""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import httpx2
import msgspec
import pytest

from tests.api.conftest import Tokens
from tests.eventually import aeventually
from tests.factory import Rig
from windlass.api import stream
from windlass.api.events import Stream
from windlass.api.parts import Parts
from windlass.api.server import Server
from windlass.auth.tokens import revocable
from windlass.store.store import Store


class Heard:
    """The events of one stream as they come."""

    def __init__(self, answer: httpx2.Response) -> None:
        self.answer = answer
        self._lines = answer.aiter_lines()
        self.last_id = ""

    async def next(self) -> tuple[str, Any]:
        """The next event's name and data; of a comment, "" and its text."""
        fields: dict[str, str] = {}
        async with asyncio.timeout(10):
            async for line in self._lines:
                if not line and fields:
                    break
                name, _, value = line.partition(":")
                fields[name] = value.removeprefix(" ")
            else:
                raise EOFError
        self.last_id = fields.get("id", self.last_id)
        if "event" not in fields:
            return "", fields
        return fields["event"], msgspec.json.decode(fields["data"])

    async def named(self, name: str) -> Any:
        while True:
            heard, data = await self.next()
            if heard == name:
                return data


@asynccontextmanager
async def following(client: httpx2.AsyncClient, path: str = "/v1/events", **headers: str) -> AsyncIterator[Heard]:
    async with client.stream("GET", path, headers=headers) as answer:
        assert answer.status_code == 200, await answer.aread()
        yield Heard(answer)


async def nobody_listens(parts: Parts) -> None:
    async def gone() -> bool:
        return parts.events.open_streams == 0

    await aeventually(gone)


class Unread:
    """A client that asks, and then takes in next to nothing until it is told to."""

    def __init__(self) -> None:
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self._socket.setblocking(False)
        self._buffer = b""

    async def ask(self, server: Server, tokens: Tokens, path: str) -> None:
        url = urlsplit(server.url)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(self._socket, (url.hostname, url.port))
        head = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {tokens('read')}\r\n\r\n"
        await loop.sock_sendall(self._socket, head.encode())

    async def line(self) -> bytes:
        while b"\n" not in self._buffer:
            self._buffer += await asyncio.get_running_loop().sock_recv(self._socket, 1 << 20)
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def unread() -> Iterator[Unread]:
    client = Unread()
    yield client
    client.close()


async def eventually_open(parts: Parts, count: int) -> list[Stream]:
    async def opened() -> list[Stream]:
        return list(parts.events._streams) if parts.events.open_streams == count else []

    return await aeventually(opened)


@pytest.fixture
def many_words(rig: Rig) -> Any:
    """A state so large that a client that does not read cannot be sent many of them."""

    async def make() -> None:
        await asyncio.gather(*(rig.worker(types=[f"{n:0190}" for n in range(20)]) for _ in range(100)))

    return make


async def test_a_stream_is_told_what_is_and_then_what_changes(served: httpx2.AsyncClient, rig: Rig) -> None:
    async with following(served) as heard:
        assert heard.answer.headers["content-type"].startswith("text/event-stream")
        assert heard.answer.headers["cache-control"] == "no-store"
        assert (await heard.next())[1] == {"retry": "1000"}
        assert [(await heard.next())[0] for _ in range(3)] == ["stats", "queues", "workers"]
        await rig.enqueue()
        assert (await heard.named("stats"))["total"] == 1


async def test_watched_jobs_alone_are_told_when_nothing_else_is_wanted(
    served: httpx2.AsyncClient, rig: Rig, store: Store
) -> None:
    one, two = await rig.enqueue(2)
    async with following(served, f"/v1/events?topic=jobs&job={one}&job={two}") as heard:
        told = [await heard.named("job"), await heard.named("job")]
        assert [each["id"] for each in told] == sorted([str(one), str(two)])
        await store.intake.cancel(two)
        assert [(await heard.next())] == [("job", {"id": str(two), "status": "cancelled"})]


async def test_a_client_that_comes_back_gets_only_what_differs(served: httpx2.AsyncClient, rig: Rig) -> None:
    async with following(served) as heard:
        await heard.named("workers")
    await rig.worker()
    async with following(served, **{"Last-Event-ID": heard.last_id}) as again:
        await again.next()
        assert (await again.next())[0] == "workers"


async def test_a_client_that_leaves_frees_its_place(served: httpx2.AsyncClient, parts: Parts) -> None:
    async with following(served) as heard:
        await heard.next()
        assert parts.events.open_streams == 1
    await nobody_listens(parts)


async def test_a_head_request_opens_no_stream(served: httpx2.AsyncClient, parts: Parts) -> None:
    answer = await served.head("/v1/events")
    assert (answer.status_code, parts.events.open_streams) == (200, 0)
    assert answer.headers["content-type"].startswith("text/event-stream")


@pytest.mark.parametrize("query", ["job=x", "topic=all", "jobs=x", "job=" + ",".join(["0" * 32] * 101)])
async def test_what_cannot_be_followed_is_refused(api: httpx2.AsyncClient, parts: Parts, query: str) -> None:
    answer = await api.get(f"/v1/events?{query}")
    assert answer.status_code == 422
    assert parts.events.open_streams == 0


async def test_a_token_that_expires_ends_the_stream_which_says_so(server: Server, tokens: Tokens, parts: Parts) -> None:
    headers = {"authorization": f"Bearer {tokens('read', ttl_s=4)}"}
    async with (
        httpx2.AsyncClient(base_url=server.url, headers=headers, trust_env=False) as client,
        following(client) as heard,
    ):
        assert await heard.named("end") == {"reason": "expired"}
        with pytest.raises(EOFError):
            await heard.next()
    await nobody_listens(parts)


async def test_a_token_that_is_revoked_is_told_nothing_more(
    served: httpx2.AsyncClient, parts: Parts, rig: Rig, tokens: Tokens
) -> None:
    async with following(served) as heard:
        await heard.named("workers")
        await parts.gate.revoke(revocable("subject", "tester"), 600)
        await rig.enqueue()
        assert (await heard.next())[0] == "end"


async def test_a_silent_stream_is_kept_alive_by_comments(
    served: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "_HEARTBEAT_S", 0.05)
    async with following(served, "/v1/events?topic=jobs") as heard:
        await heard.next()
        assert await heard.next() == ("", {"": ""})


async def test_a_shutdown_ends_streams_first_and_does_not_wait_for_their_clients(
    parts: Parts, server: Server, served: httpx2.AsyncClient
) -> None:
    async with following(served) as heard:
        await heard.named("workers")
        async with asyncio.timeout(3):
            await server.__aexit__(None, None, None)
        assert await heard.named("end") == {"reason": "closing"}
    await nobody_listens(parts)


async def test_a_client_that_reads_nothing_is_sent_no_more_and_then_the_newest(
    server: Server, parts: Parts, tokens: Tokens, rig: Rig, many_words: Any, unread: Unread
) -> None:
    await many_words()
    await unread.ask(server, tokens, "/v1/events?topic=workers&topic=stats")
    (held,) = await eventually_open(parts, 1)

    changes = 0

    async def stuck() -> bool:
        """Whether it has not been told the last change though others would have been."""
        nonlocal changes
        before = held.id
        await rig.enqueue()
        await rig.worker()
        changes += 1
        looks = parts.events.looks

        async def looked() -> bool:
            return parts.events.looks > looks + 1

        await aeventually(looked)
        return held.id == before

    await aeventually(stuck, 60)
    for _ in range(5):
        await rig.enqueue()
        changes += 1
    totals: list[int] = []
    async with asyncio.timeout(20):
        while not totals or totals[-1] != changes:
            line = await unread.line()
            if line.startswith(b'data: {"total"'):
                totals.append(msgspec.json.decode(line.removeprefix(b"data: "))["total"])
    assert totals == sorted(totals)
    assert len(totals) < changes  # what it missed is not made up for
    unread.close()
    await nobody_listens(parts)


async def test_a_client_that_reads_nothing_does_not_keep_its_stream_when_the_server_ends(
    server: Server, parts: Parts, tokens: Tokens, many_words: Any, unread: Unread
) -> None:
    await many_words()
    await unread.ask(server, tokens, "/v1/events?topic=workers")
    await eventually_open(parts, 1)
    parts.events.close()
    await nobody_listens(parts)
    unread.close()
