"""A real server on a real socket: it is not worn down, and stops without cutting anyone's answer."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace

import httpx2
import pytest

from tests.api.conftest import Tokens
from tests.eventually import aeventually
from windlass.api.app import build
from windlass.api.endpoint import Answer, Call, Endpoint
from windlass.api.parts import Parts
from windlass.api.server import Server, listen
from windlass.config import ApiConfig, Config
from windlass.errors import Misconfigured

Client = httpx2.AsyncClient


@pytest.fixture
def settings(settings: Config) -> Config:
    api = ApiConfig(port=0, unready_s=0, head_timeout_s=0.3, body_timeout_s=0.6, connections_max=5, api_drain_s=5)
    return replace(settings, api=api)


class Wire:
    """A connection by hand."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def answer(self) -> tuple[int, dict[str, str], bytes]:
        head = (await asyncio.wait_for(self.reader.readuntil(b"\r\n\r\n"), 10)).decode()
        first, *lines = head.strip().split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in lines)
        body = await self.reader.readexactly(int(headers.get("content-length", 0)))
        return int(first.split()[1]), headers, body

    async def ended(self) -> bytes:
        return await asyncio.wait_for(self.reader.read(), 10)


@pytest.fixture
async def dial(server: Server) -> AsyncIterator["Dial"]:
    dial = Dial(server)
    yield dial
    for wire in dial.wires:
        wire.writer.close()


class Dial:
    def __init__(self, server: Server) -> None:
        self.server = server
        self._port = int(server.url.rpartition(":")[2])
        self.wires: list[Wire] = []

    async def __call__(self, sent: bytes = b"") -> Wire:
        wire = Wire(*await asyncio.open_connection("127.0.0.1", self._port))
        self.wires.append(wire)
        wire.writer.write(sent)
        return wire


def _post(token: str, length: int) -> bytes:
    head = f"POST /v1/jobs HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token}\r\n"
    return f"{head}content-type: application/json\r\ncontent-length: {length}\r\n\r\n".encode()


async def test_one_connection_serves_many_requests(dial: Dial) -> None:
    wire = await dial()
    for _ in range(5):
        wire.writer.write(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n")
        assert (await wire.answer())[0] == 200


async def test_who_sends_nothing_is_hung_up_on(dial: Dial) -> None:
    silent, slow = await dial(), await dial(b"GET /health HTTP/1.1\r\nhost: loc")
    assert await silent.ended() == b""
    status, _, body = await slow.answer()
    assert (status, json.loads(body)["code"]) == (408, "too_slow")
    assert await slow.ended() == b""


async def test_a_body_that_does_not_come_is_not_waited_for(dial: Dial, tokens: Tokens) -> None:
    wire = await dial(_post(tokens("submit"), 100) + b'{"type":')
    status, _, body = await wire.answer()
    assert (status, json.loads(body)["code"]) == (408, "too_slow")
    assert await wire.ended() == b""


async def test_a_body_that_only_trickles_is_not_waited_for(
    parts: Parts, settings: Config, tokens: Tokens, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A byte now and then kept 32 MB of memory in use for as long as a body may take."""
    monkeypatch.setattr("windlass.api.server._RATE_S", 0.2)
    config = replace(settings, api=replace(settings.api, body_timeout_s=60, body_rate_min=1_000))
    async with Server(build(parts), replace(parts, config=config)) as server:
        slow, quick = Dial(server), Dial(server)
        trickling = await slow(_post(tokens("submit"), 100_000) + b'{"type":"echo","payload":"')
        flowing = await quick(_post(tokens("submit"), 100_000) + b'{"type":"echo","payload":"')
        heard = asyncio.create_task(trickling.answer())
        while not heard.done():
            trickling.writer.write(b"x")
            flowing.writer.write(b"x" * 1_000)
            await asyncio.wait([heard], timeout=0.02)
        status, _, body = heard.result()
        assert (status, json.loads(body)["code"]) == (408, "too_slow")
        assert not flowing.reader.at_eof()
        for each in (trickling, flowing):
            each.writer.close()


async def test_more_than_a_few_requests_at_once_on_a_connection_are_not_taken(dial: Dial) -> None:
    get = b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n"
    few = await dial(get * 30)
    for _ in range(30):
        assert (await few.answer())[0] == 200
    many = await dial(get * 1_000)
    assert len(await many.ended()) < 30_000  # closed, with the answer to none or some of them


async def test_what_follows_an_unanswered_request_is_not_answered_in_its_place(parts: Parts) -> None:
    """A caller takes the first answer for that to the first request, which may have stored a job."""
    go = asyncio.Event()

    async def slow(call: Call) -> Answer:
        await go.wait()
        return Answer("done")

    endpoint = Endpoint("GET", "/slow", None, slow, summary="", tag="", answers={200: str})
    async with Server(build(parts, [endpoint]), parts) as server:
        wire = await Dial(server)(b"GET /slow HTTP/1.1\r\nhost: localhost\r\n\r\nNONSENSE\r\n\r\n")
        assert await wire.ended() == b""
        wire.writer.close()
        go.set()


async def test_a_head_without_end_is_refused(dial: Dial) -> None:
    wire = await dial(b"GET /health HTTP/1.1\r\nhost: localhost\r\n")
    for _ in range(40):
        wire.writer.write(b"x-more: " + b"x" * 4000 + b"\r\n")
    assert (await wire.answer())[0] == 431


async def test_what_is_no_http_is_told_so(dial: Dial) -> None:
    for sent in (
        b"NONSENSE\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc",
        b"POST /v1/jobs HTTP/1.1\r\nhost: localhost\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /v1/jobs HTTP/1.1\r\nhost: localhost\r\ncontent-length: -1\r\n\r\n",
        b"GET /health HTTP/1.1\r\nhost: localhost\r\n bad: folded\r\n\r\n",
    ):
        wire = await dial(sent)
        status, headers, _ = await wire.answer()
        assert (status, headers["content-type"]) == (400, "application/problem+json"), sent
        wire.writer.close()


async def test_who_sends_too_much_gets_to_see_the_refusal(dial: Dial, tokens: Tokens) -> None:
    wire = await dial(_post(tokens("submit"), 3_000_000))
    wire.writer.write(b" " * 3_000_000)
    await wire.writer.drain()
    assert (await wire.answer())[0] == 413
    wire.writer.write(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n")  # and may go on
    assert (await wire.answer())[0] == 200


async def test_one_connection_too_many_is_answered_at_once(dial: Dial) -> None:
    wires = [await dial(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n") for _ in range(5)]
    for wire in wires:
        assert (await wire.answer())[0] == 200
    one_more = await dial()
    status, headers, _ = await one_more.answer()
    assert (status, "retry-after" in headers) == (503, True)
    wires[0].writer.close()

    async def room() -> bool:
        wire = await dial(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n")
        served = (await wire.answer())[0] == 200
        wire.writer.close()
        return served

    await aeventually(room)


async def test_a_shutdown_lets_a_request_end_and_takes_no_other(parts: Parts) -> None:
    begun, go = asyncio.Event(), asyncio.Event()

    async def slow(call: Call) -> Answer:
        begun.set()
        await go.wait()
        return Answer("done")

    endpoint = Endpoint("GET", "/slow", None, slow, summary="", tag="", answers={200: str})
    server = Server(build(parts, [endpoint]), parts)
    await server.__aenter__()
    async with Client(base_url=server.url, trust_env=False) as client:
        answer = asyncio.create_task(client.get("/slow"))
        await begun.wait()
        stopping = asyncio.create_task(server.__aexit__(None, None, None))

        async def closed() -> bool:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", int(server.url.rpartition(":")[2]))
            except OSError:
                return True
            writer.close()
            return False

        await aeventually(closed)
        assert not stopping.done()
        go.set()
        assert (await answer).text == "done"
    await stopping


_LARGE = 20_000_000


@pytest.fixture
async def large(parts: Parts) -> AsyncIterator[Dial]:
    """A server of an answer that does not fit the buffers of the network, and who calls it without reading ahead."""

    async def tell(call: Call) -> Answer:
        return Answer(b"x" * _LARGE)

    endpoint = Endpoint("GET", "/large", None, tell, summary="", tag="", answers={200: bytes})
    async with Server(build(parts, [endpoint]), parts) as server:
        yield Dial(server)


_GET_LARGE = b"GET /large HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"


async def test_who_reads_slowly_gets_the_whole_answer(large: Dial, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("windlass.api.server._LINGER_S", 0.1)
    wire = await large(_GET_LARGE)
    await wire.reader.readuntil(b"\r\n\r\n")
    taken = 0
    while piece := await wire.reader.read(65_536):
        taken += len(piece)
        await asyncio.sleep(0.004)  # slowly
    assert taken == _LARGE
    wire.writer.close()


async def test_who_reads_nothing_is_given_up(large: Dial, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("windlass.api.server._STUCK_S", 0.2)
    wire = await large(_GET_LARGE)
    await wire.reader.readuntil(b"\r\n\r\n")

    async def lost() -> bool:
        return not large.server._uvicorn.server_state.connections

    await aeventually(lost)
    wire.writer.close()


async def test_who_reads_nothing_does_not_hold_up_a_shutdown(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("windlass.api.server._LINGER_S", 0.2)
    begun = asyncio.Event()

    async def tell(call: Call) -> Answer:
        begun.set()
        return Answer(b"x" * _LARGE)

    endpoint = Endpoint("GET", "/large", None, tell, summary="", tag="", answers={200: bytes})
    server = Server(build(parts, [endpoint]), parts)
    await server.__aenter__()
    wire = await Dial(server)(_GET_LARGE)
    await begun.wait()
    began_s = asyncio.get_running_loop().time()
    await server.__aexit__(None, None, None)
    assert asyncio.get_running_loop().time() - began_s < 4  # and not what requests in progress are given
    wire.writer.close()


@pytest.mark.parametrize("in_a_hurry", [True, False])
async def test_who_cannot_be_waited_for_any_longer_is_told_so(
    parts: Parts, settings: Config, in_a_hurry: bool, caplog: pytest.LogCaptureFixture
) -> None:
    begun = asyncio.Event()

    async def never(call: Call) -> None:
        begun.set()
        await asyncio.Event().wait()

    parts = replace(parts, config=replace(settings, api=replace(settings.api, api_drain_s=1)))
    endpoint = Endpoint("GET", "/never", None, never, summary="", tag="", answers={200: None})
    server = Server(build(parts, [endpoint]), parts)
    await server.__aenter__()
    async with Client(base_url=server.url, trust_env=False) as client:
        call = asyncio.create_task(client.get("/never"))
        await begun.wait()
        if in_a_hurry:
            server.hurry()
        await asyncio.wait_for(server.__aexit__(None, None, None), 5)
        answer = await asyncio.wait_for(call, 5)
    assert (answer.status_code, answer.json()["code"]) == (503, "unavailable")
    assert "retry-after" in answer.headers
    assert "Exception in ASGI" not in caplog.text


async def test_a_port_that_is_taken_is_one_line(server: Server, settings: Config) -> None:
    taken = replace(settings.api, port=int(server.url.rpartition(":")[2]))
    with pytest.raises(
        Misconfigured, match=r"cannot listen on 127\.0\.0\.1:\d+: Address already in use; set WINDLASS_"
    ):
        listen(taken)
