"""A pooler in front of PostgreSQL that can be had everywhere: it speaks the protocol, as PgBouncer does before 1.21.

In transaction mode each transaction goes to the server connection that has rested longest, so that two in a row of one client are
never on the same; names of prepared statements are passed on as they are. It knows only the settings of a start that PgBouncer
knows, and tells clients a process id of its own making. In session mode a client keeps its server connection.
"""

import asyncio
import contextlib
import struct
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final
from urllib.parse import parse_qs, urlsplit, urlunsplit

_VERSION: Final = 196_608
_TLS: Final = 80_877_103
_CANCEL: Final = 80_877_102
_KNOWN: Final = {"user", "database", "application_name", "client_encoding", "datestyle", "timezone"}

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Pooler:
    """`shared`: transaction mode. May be changed while clients are connected: it holds from their next transaction on."""

    def __init__(self, server_url: str, *, servers: int = 4, shared: bool = True) -> None:
        self.shared = shared
        self._parts = urlsplit(server_url)
        self._servers = servers
        self._free: deque[Streams] = deque()
        self._returned = asyncio.Condition()
        self._made: list[Streams] = []
        self._greeting = b""
        self._listening: asyncio.Server | None = None
        self._clients: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        assert self._listening is not None
        port = self._listening.sockets[0].getsockname()[1]
        return urlunsplit(("postgresql", f"windlass@127.0.0.1:{port}", self._parts.path, "sslmode=disable", ""))

    async def start(self) -> None:
        for _ in range(self._servers):
            self._free.append(await self._connect())
        self._made = list(self._free)
        self._listening = await asyncio.start_server(self._accept, "127.0.0.1", 0)

    async def stop(self) -> None:
        assert self._listening is not None
        self._listening.close()
        for client in self._clients:
            client.cancel()
        await asyncio.gather(*self._clients, return_exceptions=True)
        for _, writer in self._made:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _connect(self) -> Streams:
        query = parse_qs(self._parts.query)
        port = query.get("port", ["5432"])[0]
        reader, writer = await asyncio.open_unix_connection(f"{query['host'][0]}/.s.PGSQL.{port}")
        user = self._parts.username or "windlass"
        said = f"user\0{user}\0database\0{self._parts.path[1:]}\0\0".encode()
        writer.write(struct.pack("!II", len(said) + 8, _VERSION) + said)
        greeting = b""
        while (message := await _message(reader))[:1] != b"Z":
            assert message[:1] in b"RSNK", message
            greeting += message if message[:1] in b"RS" else b""
        self._greeting = greeting
        return reader, writer

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._clients.add(task)
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            if await self._greet(reader, writer):
                await _Client(self, reader, writer).serve()
        writer.close()
        self._clients.discard(task)

    async def _greet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        code, body = await _hello(reader)
        if code == _TLS:
            writer.write(b"N")
            code, body = await _hello(reader)
        if code == _CANCEL:
            return False
        names = body.split(b"\0")[0:-2:2]
        unknown = [name.decode() for name in names if name.decode().lower() not in _KNOWN]
        if unknown:
            fields = f"SFATAL\0C08P01\0Munsupported startup parameter: {unknown[0]}\0\0".encode()
            writer.write(b"E" + struct.pack("!I", len(fields) + 4) + fields)
            return False
        writer.write(self._greeting + b"K" + struct.pack("!III", 12, 1, 1) + b"Z\0\0\0\5I")
        return True

    async def take(self) -> Streams:
        async with self._returned:
            await self._returned.wait_for(lambda: self._free)
            return self._free.popleft()

    async def give(self, server: Streams) -> None:
        async with self._returned:
            self._free.append(server)
            self._returned.notify()


class _Client:
    def __init__(self, pooler: Pooler, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._pooler = pooler
        self._reader = reader
        self._writer = writer
        self._server: Streams | None = None
        self._answers: asyncio.Task[None] | None = None
        self._waiting = 0  # answers that are still to come
        self._begun = False  # something was sent that no answer will end

    async def serve(self) -> None:
        try:
            while (message := await _message(self._reader))[:1] != b"X":
                if self._server is None:
                    self._server = await self._pooler.take()
                    self._answers = asyncio.create_task(self._pass_answers(self._server))
                self._begun = message[:1] not in b"QS"
                self._waiting += not self._begun
                self._server[1].write(message)
        finally:
            await self._leave()

    async def _pass_answers(self, server: Streams) -> None:
        while True:
            message = await _message(server[0])
            self._writer.write(message)
            if message[:1] != b"Z":
                continue
            self._waiting -= 1
            if self._pooler.shared and message[5:] == b"I" and not self._waiting and not self._begun:
                self._server = self._answers = None
                await self._pooler.give(server)
                return

    async def _leave(self) -> None:
        """What a client leaves behind in the middle of something is rolled back."""
        server, answers = self._server, self._answers
        if server is None or answers is None:
            return
        answers.cancel()
        await asyncio.gather(answers, return_exceptions=True)
        server[1].write(b"S\0\0\0\4" + b"Q\0\0\0\x0drollback\0")
        self._waiting += 2
        while self._waiting:
            self._waiting -= (await _message(server[0]))[:1] == b"Z"
        await self._pooler.give(server)


async def _message(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readexactly(5)
    return head + await reader.readexactly(struct.unpack("!I", head[1:])[0] - 4)


async def _hello(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    length, code = struct.unpack("!II", await reader.readexactly(8))
    return code, await reader.readexactly(length - 8)


@asynccontextmanager
async def pooled(server_url: str, *, servers: int = 4, shared: bool = True) -> AsyncIterator[Pooler]:
    pooler = Pooler(server_url, servers=servers, shared=shared)
    await pooler.start()
    try:
        yield pooler
    finally:
        await pooler.stop()
