"""A door before the API that misbehaves on command: it loses answers, refuses, redirects, or never says anything.

It relays whole HTTP/1.1 requests over real sockets, one at a time on a connection, and remembers what passed.
"""

import asyncio
from collections import deque
from contextlib import suppress
from typing import Literal, Self
from urllib.parse import urlsplit

Way = Literal["pass", "lose", "hang"] | bytes


class Door:
    """`ways`: what happens to the next requests, one each; then they pass. `lose`: the API gets the request, the client
    gets no answer. Bytes: this is the answer, and the API hears nothing."""

    def __init__(self, url: str, *ways: Way) -> None:
        self._to = urlsplit(url)
        self._ways = deque(ways)
        self._writers: set[asyncio.StreamWriter] = set()
        self.always: dict[str, bytes] = {}  # by the beginning of the path: what is answered there
        self.requests: list[str] = []
        self.heads: list[bytes] = []

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for writer in list(self._writers):
            writer.close()
        await self._server.wait_closed()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            while await self._one(reader, writer):
                pass
        self._writers.discard(writer)
        writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        request = await _message(reader)
        self.heads.append(request.partition(b"\r\n\r\n")[0])
        self.requests.append(" ".join(request.split(b" ", 2)[n].decode() for n in (0, 1)))
        path = self.requests[-1].partition(" ")[2]
        fixed = next((way for start, way in self.always.items() if path.startswith(start)), None)
        way: Way = fixed or (self._ways.popleft() if self._ways else "pass")
        if isinstance(way, bytes):
            writer.write(way)
            await writer.drain()
            return True
        if way == "hang":
            await asyncio.Event().wait()
        inner_reader, inner = await asyncio.open_connection(self._to.hostname, self._to.port)
        inner.write(request)
        answer = await _message(inner_reader)
        inner.close()
        if way == "lose":
            return False
        writer.write(answer)
        await writer.drain()
        return True


def answer(status: int, *headers: str, body: bytes = b"") -> bytes:
    lines = [f"HTTP/1.1 {status} Said", *headers, f"Content-Length: {len(body)}"]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


async def _message(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    said = head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0].strip()
    return head + await reader.readexactly(int(said or 0))
