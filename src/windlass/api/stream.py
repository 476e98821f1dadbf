"""GET /v1/events: the news of events.py as server-sent events, for as long as client, token and server last."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Annotated, Final
from uuid import UUID

from msgspec import Meta, field
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from windlass.api.endpoint import Call, Endpoint
from windlass.api.events import Event, Stream, Topic, topics, watched_max
from windlass.errors import RequestError, Unavailable
from windlass.wire import Asked, End, encode

_HEARTBEAT_S: Final = 15.0  # well below the minute after which proxies give up a silent connection
_STUCK_S: Final = 30.0  # a client that takes nothing for so long is gone, or wants to hold our memory
_GOODBYE_S: Final = 0.5
_AGAIN_MS: Final = 1000
_ID_MAX: Final = 400
_HEADERS: Final = {"cache-control": "no-store", "x-accel-buffering": "no"}  # a proxy that buffers would hold all back


class Watch(Asked):
    """What to tell."""

    topic: Annotated[list[Topic], Meta(description="which kinds of events; left out: all")] = field(
        default_factory=list
    )
    job: Annotated[list[UUID], Meta(max_length=watched_max, description="jobs to watch")] = field(default_factory=list)


async def events(call: Call) -> Response:
    if call.request.method == "HEAD":
        return Response(headers=_HEADERS, media_type=EventStream.media_type)
    last_id = call.request.headers.get("last-event-id", "")
    wanted: list[Topic] = call.query.topic or list(topics)
    stream = call.parts.events.open(wanted, call.query.job, last_id if len(last_id) <= _ID_MAX else None)
    return EventStream(call, stream)


class EventStream(Response):
    media_type = "text/event-stream"

    def __init__(self, call: Call, stream: Stream) -> None:
        super().__init__(headers=_HEADERS)
        del self.headers["content-length"]
        self._call = call
        self._events = call.parts.events
        self._stream = stream

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        del scope
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            await _first(lambda: self._talk(send), lambda: _gone(receive), self._shut)
        finally:
            self._events.leave(self._stream)

    async def _talk(self, send: Send) -> None:
        said = f"retry: {_AGAIN_MS}\n\n".encode()
        while self._is_welcome():
            await _write(send, said)
            said = await self._next()
        end = End(reason="closing" if self._events.closing else "expired")
        await _write(send, b"event: end\ndata: " + encode(end) + b"\n\n", more=False)

    async def _next(self) -> bytes:
        """The news; or a comment, should there be none for so long that someone might think we are gone."""
        try:
            async with asyncio.timeout(min(_HEARTBEAT_S, self._call.actor.expires_s - time.time())):
                return b"".join(written(event) for event in await self._events.next(self._stream))
        except TimeoutError:
            return b":\n\n"

    def _is_welcome(self) -> bool:
        """Judged anew before all that is told: a token may expire, or be revoked, while its stream is open."""
        try:
            self._call.parts.gate.admit(self._call.request, "read")
        except RequestError:
            return False
        except Unavailable:  # nobody can tell just now; nor is there any news while the database is away
            pass
        return not self._events.closing

    async def _shut(self) -> None:
        """A client that takes nothing must not hold up a shutdown."""
        await self._events.closed.wait()
        await asyncio.sleep(_GOODBYE_S)


def written(event: Event) -> bytes:
    """One event as it goes over the wire: encoded JSON has no line ends that could part it."""
    return b"id: %b\nevent: %b\ndata: %b\n\n" % (event.id.encode(), event.name.encode(), event.data)


async def _write(send: Send, body: bytes, *, more: bool = True) -> None:
    """Waits until the client has taken what it was sent before. What it is sent next is then the newest there is."""
    async with asyncio.timeout(_STUCK_S):
        await send({"type": "http.response.body", "body": body, "more_body": more})


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _first(*works: Callable[[], Awaitable[None]]) -> None:
    """Do all of these until one is done, and end the others."""
    tasks = [asyncio.ensure_future(work()) for work in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    with suppress(TimeoutError, OSError):  # the client was stuck, or went while it was written to
        for task in done:
            task.result()


endpoints: Final = [
    Endpoint(
        *("GET", "/v1/events", "read", events),
        summary="Follow what changes",
        description="Server-sent events: `stats`, `queues` and `workers` as the answers of the endpoints of the same "
        "names, and `job` with `id` and `status` for each watched job. Each is sent at once and again whenever it has "
        "changed, the newest state only, at most four times a second. A client that comes back with `Last-Event-ID` gets "
        "only what is different from what it had. A comment is sent every 15 s; `end` says why the stream ends: "
        "`closing` or `expired`.",
        tag="cluster",
        answers={200: str},
        query=Watch,
        problems=(503,),
        takes={"Last-Event-ID": "the id of the last event that was received: only what differs from then is sent"},
        media="text/event-stream",
    ),
]
