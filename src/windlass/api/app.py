"""The API as one ASGI application: every request takes the same way through it, from the table of endpoints to an answer
or a problem, and nothing that is raised gets past it.

Pure ASGI, without middleware: a submission passes here in some tens of microseconds.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import Any, Final
from uuid import UUID

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from windlass.api.access import AccessLog, request_id
from windlass.api.aside import AT_ONCE_BYTES, aside
from windlass.api.bodies import BodyBudget, Gone, HeldBody, Turns, pieces_of, read_body
from windlass.api.catalogue import Catalogue
from windlass.api.dashboard import checked_base_path
from windlass.api.endpoint import Answer, Call, Endpoint
from windlass.api.events import Events
from windlass.api.gate import Gate
from windlass.api.gathering import Gathering
from windlass.api.limits import Cors, Hosts, check_once
from windlass.api.names import Names
from windlass.api.parts import Parts
from windlass.api.problems import is_of_the_database, problem
from windlass.api.readiness import AwaitedWorkers, Readiness
from windlass.api.reading import BodyReader, BulkReader, query_reader
from windlass.api.routes import Routes
from windlass.api.table import table
from windlass.api.together import Together
from windlass.auth.tokens import ANONYMOUS
from windlass.bus.protocol import Shortcuts
from windlass.config import Config
from windlass.errors import Unauthorized, Unavailable, WindlassError
from windlass.model import Declared, Status
from windlass.store.protocol import Accounts, Intake, Views
from windlass.wire import Told, encode

_NOSNIFF: Final = (b"x-content-type-options", b"nosniff")
_NO_STORE: Final = (b"cache-control", b"no-store")
_JSON: Final = (b"content-type", b"application/json")
_TEXT: Final = (b"content-type", b"text/plain; charset=utf-8")
_BODILESS: Final = frozenset({204, 304})
_OPEN_BYTES_MAX: Final = 16_384
_BOUNDED: Final = frozenset({"submit", "read"})  # the scopes of calls with a time limit
_AROUND_PAYLOAD_BYTES: Final = 65_536
_HUNG_UP: Final = 499  # in the log alone: nobody was there to be answered
_log = logging.getLogger(__name__)


@asynccontextmanager
async def opened(
    intake: Intake,
    views: Views,
    accounts: Accounts,
    config: Config,
    shortcuts: Shortcuts | None = None,
    *,
    built_in: Collection[Declared] = (),
    awaited: AwaitedWorkers | None = None,
) -> AsyncIterator[Parts]:
    """Everything handlers reach, while the block lasts. `intake` is one that wakes workers, and takes the shortcuts.
    `built_in`: types that are known without any worker. `awaited`: the API is not ready before them."""
    async with AsyncExitStack() as stack:
        access_log = AccessLog()
        stack.callback(access_log.write)
        gathering = await stack.enter_async_context(Gathering(intake))
        places = Together[UUID, Status | None](
            lambda ids: _places(views, ids), what="requests are waiting to learn where their jobs are"
        )
        stack.push_async_callback(places.close)
        gate = await stack.enter_async_context(Gate(config, accounts))
        events = await stack.enter_async_context(Events(views, config))
        readiness = Readiness(views, awaited)
        yield Parts(
            config=config,
            intake=intake,
            views=views,
            accounts=accounts,
            catalogue=Catalogue(views, config.api, built_in, readiness.awaits_workers if awaited else None),
            names=Names(intake, config.api),
            gate=gate,
            events=events,
            gathering=gathering,
            places=places,
            access=access_log,
            shortcuts=shortcuts or Shortcuts(),
            readiness=readiness,
        )


async def _places(views: Views, job_ids: list[UUID]) -> list[Status | None]:
    """In the order of the ids; None: nowhere."""
    found = await views.places(job_ids)
    return [found.get(job_id) for job_id in job_ids]


def build(parts: Parts, endpoints: Iterable[Endpoint] | None = None) -> ASGIApp:
    return Api(parts, list(table() if endpoints is None else endpoints))


@dataclass(slots=True)
class _Exchange:
    """A request and the way back."""

    scope: Scope
    receive: Receive
    send: Send
    headers: Mapping[bytes, bytes]
    request_id: str
    cors: Mapping[str, str]
    status: int = 0
    actor: str | None = None
    held: HeldBody | None = None  # of the memory that large bodies share


class _Bound:
    """An endpoint with its readers made, once."""

    __slots__ = ("body", "body_max", "bulk", "endpoint", "query", "status")

    def __init__(self, endpoint: Endpoint, parts: Parts) -> None:
        api = parts.config.api
        self.endpoint = endpoint
        self.query = None if endpoint.query is None else query_reader(endpoint.query)
        self.body = self.bulk = None
        if endpoint.bulk:
            # A job may be as large as one that is submitted alone, or that is as large as is stored.
            most = max(api.body_bytes_max, parts.config.store.payload_bytes_max + _AROUND_PAYLOAD_BYTES)
            self.bulk = BulkReader(endpoint.body, bytes_max=most).read
        elif endpoint.body is not None:
            self.body = BodyReader(endpoint.body, optional=endpoint.optional).read
        self.body_max = api.bulk_bytes_max if endpoint.bulk else api.body_bytes_max
        if endpoint.scope is None:  # anyone may send it: a login, at most
            self.body_max = min(self.body_max, _OPEN_BYTES_MAX)
        self.status = next(iter(endpoint.answers), 200)


class Api:
    def __init__(self, parts: Parts, endpoints: list[Endpoint]) -> None:
        self._parts = parts
        self._routes = Routes((each.method, each.path, _Bound(each, parts)) for each in endpoints)
        self._hosts = Hosts(parts.config.api)
        self._cors = Cors(parts.config.api)
        self._budget = BodyBudget(2 * max(parts.config.api.bulk_bytes_max, parts.config.api.body_bytes_max))
        self._turns = Turns()
        self._base = checked_base_path(parts.config.api)
        self._within_s = parts.config.store.request_timeout_s
        self._logs_access = parts.config.api.access_log == "on"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await _other(scope, receive, send)
            return
        began = perf_counter()
        headers = dict(scope["headers"])
        name = request_id(headers.get(b"x-request-id"))
        exchange = _Exchange(scope, receive, send, headers, name, self._cors.headers(headers))
        try:
            await self._serve(exchange)
        except Gone:
            exchange.status = _HUNG_UP
        finally:
            if exchange.held is not None:
                self._budget.give_back(exchange.held)
            if self._logs_access:
                self._parts.access.told(
                    scope, status=exchange.status, actor=exchange.actor, request_id=name, began=began
                )

    async def _serve(self, exchange: _Exchange) -> None:
        try:
            answer = await self._answer(exchange)
        except Gone:
            raise
        except asyncio.CancelledError:
            if exchange.held is not None and exchange.held.gave_way:
                answer = _problem(exchange.held.ended(), exchange)
            elif not self._parts.events.closing:
                raise
            else:
                # The time for requests in progress is over. Cut off without a word, a caller could not tell why.
                answer = _problem(Unavailable("the server shuts down; this may have been done, or not"), exchange)
        except Exception as error:  # noqa: BLE001 - whatever it is, the caller gets a problem and the log the rest
            answer = _problem(error, exchange)
        if isinstance(answer, Response):
            await _respond(exchange, answer)
        else:
            await _tell(exchange, answer)

    async def _answer(self, exchange: _Exchange) -> Answer | Response:
        scope = exchange.scope
        method, (path, raw_path) = scope["method"], self._own_path(scope["path"], scope.get("raw_path"))
        check_once(scope["headers"], exchange.headers)
        self._hosts.check(exchange.headers)
        if method == "OPTIONS":
            return self._options(path, raw_path, exchange)
        bound, values = self._routes.find(method, path, raw_path)
        endpoint = bound.endpoint
        request = Request(scope, exchange.receive)
        try:
            actor = ANONYMOUS if endpoint.scope is None else self._parts.gate.admit(request, endpoint.scope)
        except Unauthorized:
            if endpoint.media.startswith("text/html") and b"text/html" in exchange.headers.get(b"accept", b""):
                # A person who follows a link to a page can do nothing with a problem.
                return Answer(None, 303, {"location": f"{self._base}/login", "vary": "accept"})
            raise
        exchange.actor = actor.subject
        call = Call(request, self._parts, actor, exchange.request_id, values, exchange.headers)
        if bound.query is not None:
            call.query = bound.query(scope["query_string"])
        told = await self._handled(bound, call, exchange)
        if endpoint.audit is not None:
            await self._note(endpoint.audit, call)
        if isinstance(told, (Answer, Response)):
            return told
        return Answer(told, bound.status)

    def _own_path(self, path: str, raw_path: bytes | None) -> tuple[str, bytes | None]:
        """The path without the prefix that a proxy may have passed on."""
        if not self._base or not f"{path}/".startswith(f"{self._base}/"):
            return path, raw_path
        own_raw = raw_path and raw_path.removeprefix(self._base.encode())
        return path[len(self._base) :] or "/", own_raw or None

    async def _handled(self, bound: _Bound, call: Call, exchange: _Exchange) -> Answer | Told | Response | None:
        """What the handler tells, with the body read: whole before, or by the handler as it arrives."""
        receive, headers, most = exchange.receive, exchange.headers, bound.body_max
        media = headers.get(b"content-type")
        if bound.bulk is not None:
            held = self._hold(call, exchange)
            turn = partial(self._turns.turn, held.caller)
            call.body = bound.bulk(pieces_of(receive, headers, most=most, held=held), media, turn)
        elif bound.body is not None:
            raw = call.raw = await read_body(receive, headers, most=most, hold=lambda: self._hold(call, exchange))
            if len(raw) > AT_ONCE_BYTES:
                async with AsyncExitStack() as stack:
                    await stack.enter_async_context(self._turns.turn(self._caller(call), len(raw)))
                    call.end_turn = stack.aclose
                    call.body = await aside(partial(bound.body, raw, media), len(raw))
                    return await self._answered(bound.endpoint, call)
            call.body = bound.body(raw, media)
        return await self._answered(bound.endpoint, call)

    def _hold(self, call: Call, exchange: _Exchange) -> HeldBody:
        exchange.held = HeldBody(self._budget, self._caller(call))
        return exchange.held

    def _caller(self, call: Call) -> str:
        """Without authentication all callers have one name; their addresses tell them apart."""
        client = call.request.client
        return client.host if client is not None and self._parts.gate.is_open else call.actor.subject

    async def _answered(self, endpoint: Endpoint, call: Call) -> Answer | Told | Response | None:
        """Submissions and looks are answered in time, however long a table is locked or the database hangs: each of
        their waits is bounded by itself, but they may wait for a connection, and for those before them, and then for
        their turn. Not so what may take longer because it is much: then only its single statements are bounded."""
        if endpoint.bulk or endpoint.scope not in _BOUNDED:
            return await endpoint.handler(call)
        deadline = asyncio.timeout(self._within_s)
        try:
            async with deadline:
                return await endpoint.handler(call)
        except TimeoutError as error:
            if not deadline.expired():
                raise
            raise Unavailable(f"no answer within {self._within_s:g} s") from error

    def _options(self, path: str, raw_path: bytes | None, exchange: _Exchange) -> Answer:
        methods = self._routes.methods(path, raw_path)
        headers = {"allow": ", ".join(methods)}
        if b"access-control-request-method" in exchange.headers and "access-control-allow-origin" in exchange.cors:
            headers |= self._cors.preflight(methods)
        return Answer(None, 204, headers)

    async def _note(self, action: str, call: Call) -> None:
        """What was done is written down. It has been done: that the note fails must not look as if it had not."""
        if call.unnoted:
            return
        target, detail = call.note or (next(iter(call.path.values()), None), None)
        try:
            await self._parts.accounts.note(call.actor.subject, action, target, detail, call.request_id)
        except WindlassError as error:
            _log.error(
                "an operator's action was not written down: %s",
                error,
                extra={"actor": call.actor.subject, "action": action, "target": target, "request_id": call.request_id},
            )


def _problem(error: Exception, exchange: _Exchange) -> Answer:
    path = exchange.scope["path"]
    told = problem(error, request_id=exchange.request_id)
    if told.status == 500:
        _log.error("request failed", exc_info=error, extra={"path": path, "request_id": exchange.request_id})
    elif is_of_the_database(error):
        _log.warning("request not served: %s", error, extra={"path": path, "request_id": exchange.request_id})
    return Answer(told.body, told.status, told.headers)


# The way back. ------------------------------------------------------------------------------------------------------


async def _tell(exchange: _Exchange, answer: Answer) -> None:
    told = answer.told
    headers: list[tuple[bytes, bytes]] = [_NOSNIFF, (b"x-request-id", exchange.request_id.encode())]
    body: bytes
    if isinstance(told, Told):
        body, kind = encode(told), _JSON
    elif isinstance(told, str):
        body, kind = told.encode(), _TEXT
    else:
        body, kind = told or b"", _JSON
    named = answer.headers
    if "content-type" not in named and body:
        headers.append(kind)
    if "cache-control" not in named:
        headers.append(_NO_STORE)
    headers += [(name.encode("latin-1"), value.encode("latin-1")) for name, value in named.items()]
    headers += [(name.encode("latin-1"), value.encode("latin-1")) for name, value in exchange.cors.items()]
    exchange.status = answer.status
    if answer.status not in _BODILESS:
        headers.append((b"content-length", b"%d" % len(body)))
    await exchange.send({"type": "http.response.start", "status": answer.status, "headers": headers})
    if exchange.scope["method"] == "HEAD":
        body = b""
    await exchange.send({"type": "http.response.body", "body": body})


async def _respond(exchange: _Exchange, response: Response) -> None:
    """A response that sends itself, such as a stream, with what every answer says."""
    extra = {"x-content-type-options": "nosniff", "x-request-id": exchange.request_id, "cache-control": "no-store"}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            exchange.status = message["status"]
            headers = list(message.get("headers", ()))
            there = {name for name, _ in headers}
            for name, value in (extra | dict(exchange.cors)).items():
                if name.encode() not in there:
                    headers.append((name.encode(), value.encode("latin-1")))
            message = {**message, "headers": headers}
        await exchange.send(message)

    await response(exchange.scope, exchange.receive, send)


async def _other(scope: Scope, receive: Receive, send: Send) -> None:
    """What servers ask beside HTTP: to start and stop, which is done elsewhere, and for web sockets, of which we have none."""
    if scope["type"] != "lifespan":
        await send({"type": "websocket.close", "code": 1000})
        return
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return
