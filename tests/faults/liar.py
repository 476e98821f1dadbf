"""A server that speaks Redis's protocol, or nearly: late, in another tongue, or with refusals."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

Reply = Callable[[list[bytes]], bytes | None]


def garbage(_command: list[bytes]) -> bytes:
    return b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n\x00\xff{}"


def silence(_command: list[bytes]) -> None:
    """As from one that takes five seconds, as far as anyone waits for it."""


def wrong_kinds(command: list[bytes]) -> bytes:
    """Well-formed answers to other questions, but to the probe's."""
    return {b"GET": b"$-1\r\n", b"MGET": b"*3\r\n:7\r\n+OK\r\n*1\r\n:1\r\n"}.get(command[0].upper(), b":42\r\n")


def refusals(command: list[bytes]) -> bytes:
    """As of one without memory or disk to write to: it answers, reads and takes nothing."""
    name = command[0].upper()
    if name == b"MGET":
        return b"*%d\r\n" % (len(command) - 1) + b"$-1\r\n" * (len(command) - 1)
    return b"$-1\r\n" if name == b"GET" else b"-MISCONF Errors writing to disk\r\n"


@asynccontextmanager
async def lying(reply: Reply) -> AsyncIterator[str]:
    """Its URL."""
    writers: set[asyncio.StreamWriter] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.add(writer)
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, ValueError):
            while True:
                command = await _command(reader)
                said = b"+OK\r\n" if command[0].upper() in {b"HELLO", b"CLIENT", b"SELECT"} else reply(command)
                if said is not None:
                    writer.write(said)
                    await writer.drain()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}/0"
    finally:
        server.close()
        for writer in writers:
            writer.transport.abort()


async def _command(reader: asyncio.StreamReader) -> list[bytes]:
    count = int((await reader.readuntil(b"\r\n"))[1:])
    parts = []
    for _ in range(count):
        size = int((await reader.readuntil(b"\r\n"))[1:])
        parts.append((await reader.readexactly(size + 2))[:-2])
    return parts
