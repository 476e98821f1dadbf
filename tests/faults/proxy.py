"""A network between a client and PostgreSQL that can fail in the ways networks do: silent, one-way, cut.

Silent means silent: a filter in the kernel throws away whatever comes from the client, so that it is not even
acknowledged, as when a cable is pulled. No privilege is needed for it.
"""

import asyncio
import contextlib
import ctypes
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final, Literal
from urllib.parse import parse_qs, urlsplit, urlunsplit

Direction = Literal["to_server", "to_client"]
_SO_ATTACH_FILTER: Final = 26
_SO_DETACH_FILTER: Final = 27
_REFUSE_ALL: Final = ctypes.create_string_buffer(struct.pack("HBBI", 0x06, 0, 0, 0))  # one instruction: return 0
_PROGRAM: Final = struct.pack("@HP", 1, ctypes.addressof(_REFUSE_ALL))


class Link:
    """One connection through the proxy."""

    def __init__(self, client: asyncio.StreamWriter, server: asyncio.StreamWriter) -> None:
        self._client = client
        self._server = server
        self._dropped: set[Direction] = set()
        self._flowing = asyncio.Event()
        self._flowing.set()

    def blackhole(self) -> None:
        """Nothing arrives on either side any more, and nothing is acknowledged to the client."""
        self._flowing.clear()
        self._socket.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, _PROGRAM)

    def drop(self, direction: Direction) -> None:
        """What goes this way is acknowledged and lost."""
        self._dropped.add(direction)

    def cut(self) -> None:
        """Both sides see a reset."""
        for writer in (self._client, self._server):
            writer.transport.abort()

    async def pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, direction: Direction) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(65_536):
                await self._flowing.wait()
                if direction not in self._dropped:
                    sink.write(data)
                    await sink.drain()
        if self._flowing.is_set():
            sink.close()

    @property
    def _socket(self) -> socket.socket:
        found: socket.socket = self._client.get_extra_info("socket")
        return found


class Proxy:
    """Passes on whatever is not told to fail. `links` are those that are open, the oldest first.

    `refused`: a setting that a client must not ask for when it connects, as with some poolers.
    """

    def __init__(self, server_url: str, refused: str | None = None) -> None:
        self._server_url = server_url
        self._refused = refused
        self._listening: asyncio.Server | None = None
        self._pumps: set[asyncio.Task[None]] = set()
        self.links: list[Link] = []
        self.opened = 0  # connections ever made

    @property
    def url(self) -> str:
        """The same database, over TCP, through here."""
        assert self._listening is not None
        port = self._listening.sockets[0].getsockname()[1]
        parts = urlsplit(self._server_url)
        login = parts.netloc.rpartition("@")[0]
        return urlunsplit((parts.scheme, f"{login}@127.0.0.1:{port}", parts.path, "sslmode=disable", ""))

    def blackhole(self) -> None:
        for link in self.links:
            link.blackhole()

    def drop(self, direction: Direction) -> None:
        for link in self.links:
            link.drop(direction)

    def cut(self) -> None:
        for link in self.links:
            link.cut()

    async def start(self) -> None:
        self._listening = await asyncio.start_server(self._accept, "127.0.0.1", 0)

    async def stop(self) -> None:
        assert self._listening is not None
        self._listening.close()
        self.cut()
        for pump in self._pumps:
            pump.cancel()
        await asyncio.gather(*self._pumps, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        from_server, server = await self._to_server()
        hello = await reader.read(65_536)
        if self._refused and self._refused.encode() in hello:
            await _refuse(client, server, self._refused)
            return
        server.write(hello)
        link = Link(client, server)
        self.links.append(link)
        self.opened += 1
        pumps = [
            asyncio.create_task(link.pump(reader, server, "to_server")),
            asyncio.create_task(link.pump(from_server, client, "to_client")),
        ]
        self._pumps.update(pumps)
        await asyncio.wait(pumps)
        self._pumps.difference_update(pumps)
        self.links.remove(link)

    async def _to_server(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        parts = urlsplit(self._server_url)
        folder = parse_qs(parts.query).get("host")
        if folder:
            port = parse_qs(parts.query).get("port", ["5432"])[0]
            return await asyncio.open_unix_connection(f"{folder[0]}/.s.PGSQL.{port}")
        return await asyncio.open_connection(parts.hostname, parts.port or 5432)


async def _refuse(client: asyncio.StreamWriter, server: asyncio.StreamWriter, setting: str) -> None:
    """As PgBouncer says it."""
    fields = f"SFATAL\0C08P01\0Munsupported startup parameter: {setting}\0\0".encode()
    client.write(b"E" + struct.pack("!I", len(fields) + 4) + fields)
    await client.drain()
    client.close()
    server.close()


@asynccontextmanager
async def proxied(server_url: str, refused: str | None = None) -> AsyncIterator[Proxy]:
    proxy = Proxy(server_url, refused)
    await proxy.start()
    try:
        yield proxy
    finally:
        await proxy.stop()
