"""The server of the API: HTTP/1.1 by uvicorn, inside this process's loop. It must not be worn down by those who send
slowly, or nothing, or without end, and it must stop without anyone's answer being cut.
"""

import asyncio
import logging
import os
import socket
from types import TracebackType
from typing import Any, Final, Self

import uvicorn
from starlette.types import ASGIApp
from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from windlass.api.limits import is_loopback
from windlass.api.parts import Parts
from windlass.api.problems import problem, title
from windlass.config import ApiConfig
from windlass.errors import Misconfigured, RequestError, TooSlow, Unavailable, WindlassError

head_bytes_max: Final = 65_536
_KEEP_ALIVE_S: Final = 75
_SWEEP_S: Final = 0.5
_LINGER_S: Final = 2.0
_STUCK_S: Final = 30.0  # a slow network takes nothing for a while; who takes nothing for so long does not want it
_RATE_S: Final = (
    5.0  # the minimum rate of a body holds over every such span, so that a short stall costs nobody a request
)
_PIPELINED_MAX: Final = 32  # requests that wait on one connection; each holds 3 KB, and one packet could hold 14,000


class Guarded(HttpToolsProtocol):
    """A connection that is closed when a request takes too long to come or its head grows too large; and one too many is
    told so at once. What still comes of a body after the answer is thrown away, not cut off, or the caller might never
    get to see why it was refused."""

    api: ApiConfig

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._refused_at: float | None = None
        self._left = -1  # bytes that were not taken yet when it was looked at last
        self._left_since = 0.0
        self._head_bytes = 0
        self._framing_bytes = 0
        self._waits_since: float | None = self.loop.time()
        self._body_since: float | None = None
        self._rate_since = 0.0
        self._rate_bytes = 0
        self._running: RequestResponseCycle | None = None
        if len(self.connections) > self.api.connections_max:
            self._refuse(Unavailable("too many connections are open; try again"))

    def data_received(self, data: bytes) -> None:
        if self._refused_at is not None:
            return
        if self._waits_since is not None:
            self._head_bytes += len(data)
        else:
            self._framing_bytes += len(data)
        super().data_received(data)
        counts = self._head_bytes if self._waits_since is not None else self._framing_bytes
        if counts > head_bytes_max and (self._waits_since is not None or self._body_since is not None):
            self._cut_off(_HeadTooLarge())

    def on_header(self, name: bytes, value: bytes) -> None:
        """What comes as a header after the body is none: nothing that stands before us has seen it as one, and without
        end it would fill the memory."""
        if self._waits_since is not None:
            super().on_header(name, value)

    def on_body(self, body: bytes) -> None:
        self._framing_bytes = 0  # counted is what comes between two pieces of the body, and after the last
        self._rate_bytes += len(body)
        super().on_body(body)

    def on_message_begin(self) -> None:
        if len(self.pipeline) >= _PIPELINED_MAX:
            raise _TooManyPipelined
        super().on_message_begin()
        if self._waits_since is None:
            self._waits_since = self.loop.time()
            self._head_bytes = 0

    def on_headers_complete(self) -> None:
        self._waits_since = None
        self._head_bytes = 0
        self._framing_bytes = 0
        self._body_since = self._rate_since = self.loop.time()
        self._rate_bytes = 0
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._body_since = None
        super().on_message_complete()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._running = cycle
        super()._start_asgi_task(cycle, app)

    def connection_lost(self, exc: Exception | None) -> None:
        self._abandon()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        if len(self.pipeline) >= _PIPELINED_MAX:
            msg = f"more than {_PIPELINED_MAX} requests were sent without waiting for an answer"
        self._cut_off(RequestError(msg))

    def sweep(self, now: float, *, stuck_s: float) -> None:
        """Close what has not come in time. Between two requests uvicorn's own patience counts."""
        if self.transport.is_closing():
            # A closed connection waits for its last bytes to be taken; who reads nothing would keep it for ever. Who
            # reads slowly gets his answer whole.
            left = self.transport.get_write_buffer_size()
            if left != self._left:
                self._left, self._left_since = left, now
            elif now - self._left_since > stuck_s:
                self.transport.abort()
        elif self._refused_at is not None:
            if now - self._refused_at > _LINGER_S:
                self._close()
        elif self._waits_since is not None and now - self._waits_since > self.api.head_timeout_s:
            if self._head_bytes:
                self._cut_off(TooSlow(f"the head of a request must have come within {self.api.head_timeout_s:g} s"))
            else:
                self._close()
        elif self._body_since is not None:
            self._check_body(now, now - self._body_since)

    def _check_body(self, now: float, age_s: float) -> None:
        """Refuse a body that takes too long as a whole, or that brings too little in a span of its own."""
        api, span_s = self.api, now - self._rate_since
        if age_s > api.body_timeout_s:
            self._cut_off(TooSlow(f"the body of a request must have come within {api.body_timeout_s:g} s"))
        elif span_s >= _RATE_S:
            # While reading is paused it is this process that is slow.
            if not self.flow.read_paused and self._rate_bytes < api.body_rate_min * span_s:
                least = f"{api.body_rate_min:,} bytes a second"
                self._cut_off(TooSlow(f"the body of a request must bring at least {least}"))
            self._rate_since, self._rate_bytes = now, 0

    def _cut_off(self, error: WindlassError) -> None:
        """Refuse the request that is arriving, if the caller can only take the answer as one to that request: an
        earlier one that is still unanswered may have stored a job, and one that has its answer gets no second. Else
        close."""
        running = self._running
        due = running is not None and not running.response_complete
        in_its_body = running is not None and running is self.cycle and self._body_since is not None
        if due != in_its_body or (running is not None and due and running.response_started):
            self._close()
        else:
            self._refuse(error)

    def _close(self) -> None:
        self._abandon()
        self.transport.close()

    def _abandon(self) -> None:
        """Tell the request that runs, and those behind it, that nobody is there any more. uvicorn tells the last one
        alone; of pipelined requests the first would go on, write to a closed transport and leave a traceback."""
        self.pipeline.clear()
        for cycle in (self._running, self.cycle):
            if cycle is not None and not cycle.response_complete:
                cycle.disconnected = True
                cycle.message_event.set()

    def _refuse(self, error: WindlassError) -> None:
        """Say why, and hear no more. The connection is closed a moment later: closed under what is still being sent, it
        would be reset, and the answer lost."""
        if self.transport.is_closing() or self._refused_at is not None:
            return
        self._refused_at = self.loop.time()
        told = problem(error)
        headers = told.headers | {"connection": "close", "content-length": str(len(told.body))}
        lines = [
            f"HTTP/1.1 {told.status} {title(told.status)}",
            *(f"{name}: {value}" for name, value in headers.items()),
        ]
        self.transport.write("\r\n".join([*lines, "", ""]).encode("latin-1") + told.body)
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self._abandon()


class _TooManyPipelined(Exception):
    """Raised inside the parser, which then stops in the middle of a packet."""


class _HeadTooLarge(RequestError):
    code = "too_large"
    http_status = 431

    def __init__(self) -> None:
        super().__init__(f"the head of a request must not be larger than {head_bytes_max:,} bytes")


class Server:
    """Serves while the block lasts: `async with Server(app, parts) as server`; `url` says where. On `door`, if there is a
    socket that listens already (`listen`); it is closed in the end. Installs no signal handlers."""

    def __init__(self, app: ASGIApp, parts: Parts, door: socket.socket | None = None) -> None:
        self._api = parts.config.api
        self._parts = parts
        protocol = type("Guarded", (Guarded,), {"api": self._api})
        config = uvicorn.Config(
            app,
            http=protocol,
            ws="none",
            lifespan="off",
            interface="asgi3",
            access_log=False,
            log_config=None,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=_KEEP_ALIVE_S,
            timeout_graceful_shutdown=max(1, round(self._api.api_drain_s)),
            backlog=2048,
        )
        # What it does as told is nobody's news, nor is what strangers send that is no HTTP: anyone could fill the log.
        logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
        self._uvicorn = _Quiet(config)
        self._door = door
        self._tasks: list[asyncio.Task[Any]] = []
        self.url = ""

    async def __aenter__(self) -> Self:
        door = self._door or listen(self._api)
        # Handed on to every connection. asyncio sets it for sockets of its own making alone: without, the body of an
        # answer waits until its head is acknowledged, 40 ms on a connection that is kept.
        door.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.url = _url(door, self._api.host)
        serving = asyncio.create_task(self._uvicorn.serve([door]))
        self._tasks = [serving, asyncio.create_task(self._sweep())]
        while not self._uvicorn.started:
            if serving.done():
                serving.result()
                raise Misconfigured("the server did not start")
            await asyncio.sleep(0.005)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """First nothing but the answer to /readyz changes, so that those who send requests here stop. Then the streams end:
        they would keep the connections busy that are waited for."""
        serving, sweeping = self._tasks
        if not serving.done():
            await self._parts.readiness.leave(self._api.unready_s)
        self._parts.events.close()
        self._uvicorn.should_exit = True
        await asyncio.wait([serving])
        if late := list(self._uvicorn.server_state.tasks):  # in a hurry, or after all the time there was
            for task in late:
                task.cancel()
            await asyncio.wait(late, timeout=_LINGER_S)
        sweeping.cancel()
        await asyncio.wait([sweeping])
        serving.result()

    def hurry(self) -> None:
        """Wait for nobody any longer, also while the block ends."""
        self._uvicorn.force_exit = True
        self._parts.readiness.hurry()

    async def ended(self) -> None:
        """Returns when it no longer serves, whatever the reason."""
        await asyncio.wait([self._tasks[0]])

    async def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(min(_SWEEP_S, self._api.head_timeout_s / 4, self._api.body_timeout_s / 4))
            now = loop.time()
            for connection in list(self._uvicorn.server_state.connections):
                if isinstance(connection, Guarded):
                    connection.sweep(now, stuck_s=_LINGER_S if self._uvicorn.should_exit else _STUCK_S)


class _Quiet(uvicorn.Server):
    """Signals are for whoever runs the process, not for a part of it."""

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        await self._serve(sockets)


def listen(api: ApiConfig) -> socket.socket:
    """A listening socket, or one line that says why not."""
    family = socket.AF_INET6 if ":" in api.host else socket.AF_INET
    try:
        return socket.create_server((api.host.strip("[]"), api.port), family=family, backlog=2048)
    except OSError as error:
        what = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
        raise Misconfigured(
            f"cannot listen on {api.host}:{api.port}: {what}; set WINDLASS_HOST or WINDLASS_PORT"
        ) from None


def _url(bound: socket.socket, host: str) -> str:
    """As it can be called from this machine."""
    name = host if is_loopback(host) else "127.0.0.1" if host in {"0.0.0.0", ""} else host  # noqa: S104
    name = "[::1]" if host == "::" else f"[{name}]" if ":" in name and not name.startswith("[") else name
    return f"http://{name}:{bound.getsockname()[1]}"
