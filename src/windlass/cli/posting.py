"""Submitting as fast as an API takes it, over connections kept alive, one request at a time on each. Lean: the ordinary
client would be busier than the server it measures.
"""

import asyncio
import ssl
from collections import Counter
from typing import Any, Final
from urllib.parse import urlsplit

from windlass.clock import steady_s
from windlass.errors import Unavailable

_ANSWER_BYTES_MAX: Final = 1_000_000


async def posted(
    url: str, token: str | None, body: bytes, duration_s: float, connections: int
) -> tuple[list[float], "Counter[str]"]:
    """How long each submission of `body` took, and how many were answered with which status."""
    parts = urlsplit(url)
    bearer = f"Authorization: Bearer {token}\r\n" if token else ""
    head = (
        f"POST {parts.path}/v1/jobs HTTP/1.1\r\nHost: {parts.netloc}\r\n{bearer}"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    secure = ssl.create_default_context() if parts.scheme == "https" else None
    times_s: list[float] = []
    statuses: Counter[str] = Counter()
    until_s = steady_s() + duration_s
    loop = asyncio.get_running_loop()
    posters = []
    for _ in range(connections):
        try:
            _, poster = await loop.create_connection(
                lambda: Poster(head.encode() + body, until_s, times_s, statuses),
                parts.hostname or "",
                parts.port or (443 if secure else 80),
                ssl=secure,
            )
        except OSError as error:
            raise Unavailable(f"the API at {url} cannot be reached: {error.strerror or error}") from None
        posters.append(poster.ended)
    await asyncio.wait(posters, timeout=duration_s + 30)
    return times_s, statuses


class Poster(asyncio.Protocol):
    """One connection: posts, waits for the whole answer, posts again, until the time is up."""

    def __init__(self, request: bytes, until_s: float, times_s: list[float], statuses: "Counter[str]") -> None:
        self._request = request
        self._until_s = until_s
        self._times_s = times_s
        self._statuses = statuses
        self._heard = bytearray()
        self._sent_s = 0.0
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: Any = transport
        self._post()

    def data_received(self, data: bytes) -> None:
        self._heard += data
        length = _length(self._heard)
        if length is None or len(self._heard) < length:
            return
        now_s = steady_s()
        self._times_s.append(now_s - self._sent_s)
        self._statuses[self._heard[9:12].decode()] += 1
        if length == len(self._heard) and now_s < self._until_s:
            self._heard.clear()
            self._post()
        else:
            self._transport.close()

    def connection_lost(self, error: Exception | None) -> None:  # noqa: ARG002 - the counts tell
        if not self.ended.done():
            self.ended.set_result(None)

    def _post(self) -> None:
        self._sent_s = steady_s()
        self._transport.write(self._request)


def _length(heard: bytearray) -> int | None:
    """The bytes of the whole answer, once its head is here."""
    head = heard.find(b"\r\n\r\n")
    if head < 0:
        return None if len(heard) < _ANSWER_BYTES_MAX else 0
    said = bytes(heard[:head]).lower().partition(b"content-length:")[2].partition(b"\r\n")[0].strip()
    return head + 4 + (int(said) if said.isdigit() else 0)
