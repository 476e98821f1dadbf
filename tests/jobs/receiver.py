"""A real HTTP server that keeps what came, and says what it is told to: the other end of webhooks and downloads."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

Reply = Callable[["Heard", asyncio.StreamWriter], Awaitable[None]]


@dataclass(slots=True)
class Heard:
    """One request, as it came over the wire."""

    line: str
    headers: dict[str, str]
    names: list[str]
    body: bytes


def said(status: int, body: bytes = b"", **headers: str) -> Reply:
    """Always the same answer."""

    async def reply(_: Heard, writer: asyncio.StreamWriter) -> None:
        lines = [f"HTTP/1.1 {status} Said", f"Content-Length: {len(body)}"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        writer.write("\r\n".join([*lines, "", ""]).encode() + body)

    return reply


@dataclass(slots=True)
class Receiver:
    host: str
    port: int = 0
    connections: int = 0
    heard: list[Heard] = field(default_factory=list)
    reply: Reply = field(default_factory=lambda: said(200, b"ok"))
    bytes_sent: int = 0

    @property
    def url(self) -> str:
        return f"http://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            pairs = [(name.lower(), value.strip()) for name, _, value in (line.partition(":") for line in head[1:-2])]
            headers = dict(pairs)
            body = await reader.readexactly(int(headers.get("content-length", "0")))
            heard = Heard(head[0], headers, [name for name, _ in pairs], body)
            self.heard.append(heard)
            await self.reply(heard, writer)
            await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass  # the other side has had enough
        finally:
            writer.close()


@asynccontextmanager
async def receiving(
    host: str = "127.0.0.1", port: int = 0, *, tls: ssl.SSLContext | None = None
) -> AsyncIterator[Receiver]:
    receiver = Receiver(host)
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            await receiver.serve(reader, writer)
        except asyncio.CancelledError:
            writer.close()
        finally:
            tasks.discard(task)

    server = await asyncio.start_server(serve, host, port, ssl=tls)
    receiver.port = server.sockets[0].getsockname()[1]
    try:
        yield receiver
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await server.wait_closed()
