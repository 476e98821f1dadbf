"""HTTP by hand, on a connection of its own: for what a well-behaved client would not send, and for many calls at once."""

import asyncio
import json
from dataclasses import dataclass
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class Heard:
    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


class Raw:
    """One connection. `async with Raw(port) as raw`."""

    def __init__(self, port: int, host: str = "127.0.0.1") -> None:
        self._port = port
        self._host = host

    async def __aenter__(self) -> Self:
        self.reader, self.writer = await asyncio.open_connection(self._host, self._port)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.writer.transport.abort()

    async def call(
        self, method: str, path: str, body: bytes | Any = None, *, token: str | None = None, **headers: str
    ) -> Heard:
        content = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        said = {"Host": f"{self._host}:{self._port}", "Content-Length": str(len(content))}
        if body is not None:
            said["Content-Type"] = "application/json"
        if token is not None:
            said["Authorization"] = f"Bearer {token}"
        said |= {name.replace("_", "-"): value for name, value in headers.items()}
        lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in said.items()), "", ""]
        await self.send("\r\n".join(lines).encode("latin-1") + content)
        return await self.hear()

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def hear(self) -> Heard:
        """The next answer; raises IncompleteReadError or ConnectionError when none comes."""
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *lines = head.strip().split("\r\n")
        headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        length = int(headers.get("content-length", "0"))
        return Heard(int(first.split(" ")[1]), headers, await self.reader.readexactly(length))
