"""One request and its answer, in spite of the network: sent again while that is safe and there is time.

What never arrived is always sent again; what may have arrived only if it is repeatable (submissions are: they carry a
key). `Retry-After` is heeded. Redirects are not followed: the token is for one server. One time limit holds for all of
it, so that nobody waits longer than he said.
"""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar

import httpx2
import msgspec

from windlass import wire
from windlass.clock import steady_s
from windlass.errors import Misconfigured, TooManyRequests, Unauthorized, Unavailable, WindlassError
from windlass.sdk import asks
from windlass.sdk.asks import Ask
from windlass.sdk.credentials import Credentials
from windlass.sdk.problems import error_of

T = TypeVar("T")

_CONNECT_S: Final = 5.0
_FIRST_PAUSE_S: Final = 0.1
_PAUSE_S_MAX: Final = 5.0
_LOOPBACK: Final = {"localhost", "127.0.0.1", "::1"}
# Shorter than servers keep a connection that nobody uses: what is sent while they close it has an unclear fate.
_IDLE_S: Final = 2.0
_NEVER_SENT: Final = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.ProxyError)


class Exchange:
    """The connections to one API, of one event loop; a client used on another loop opens others there."""

    def __init__(
        self,
        url: str,
        credentials: Credentials,
        *,
        timeout_s: float,
        patience_s: float | None = None,
        connections: int = 100,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        self.url = checked(url)
        self._transport = transport
        self._credentials = credentials
        self.timeout_s = timeout_s
        self._patience_s = patience_s
        self._connections = connections
        self._http: httpx2.AsyncClient | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def ask(self, ask: Ask[T], timeout_s: float | None = None) -> T:
        limit_s = self.timeout_s if timeout_s is None else timeout_s
        began_s = steady_s()
        deadline_s = began_s + limit_s
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                async with asyncio.timeout(max(0.001, deadline_s - steady_s())):
                    return await self._sent(ask, limit_s)
            except TimeoutError:
                raise self._unreachable(f"did not answer within {limit_s:g} s") from None
            except WindlassError as error:
                wait_s = max(random.uniform(pause_s / 2, pause_s), getattr(error, "retry_after_s", 0.0))
                if not _worth_repeating(ask, error) or steady_s() + wait_s > deadline_s or self._tired(error, began_s):
                    raise
            await asyncio.sleep(wait_s)
            pause_s = min(_PAUSE_S_MAX, pause_s * 2)

    async def token(self) -> str | None:
        return await self._credentials.token(self._login)

    @asynccontextmanager
    async def stream(self, path: str, query: tuple[tuple[str, str], ...], *, silence_s: float) -> AsyncIterator[Any]:
        """An open stream of server-sent events. Ends by Unavailable when it is silent for too long, and at once over a
        transport of the caller's: those may hold back an answer until it is complete."""
        if self._transport is not None:
            raise self._unreachable("is in this process, and offers no streams")
        token = await self.token()
        timeout = httpx2.Timeout(silence_s, connect=_CONNECT_S)
        try:
            async with self._client().stream(
                "GET", path, params=query, headers=_bearer(token), timeout=timeout
            ) as answer:
                if answer.status_code != 200:
                    raise self._refusal(answer, await answer.aread(), {}, token)
                yield aiter(httpx2.EventSource(answer))
        except httpx2.HTTPError as error:
            raise self._unreachable(_reason(error)) from error

    async def aclose(self) -> None:
        http, self._http = self._http, None
        if http is not None and self._loop is asyncio.get_running_loop():
            await http.aclose()

    def forget(self) -> None:
        """In the child of a fork: the parent's connections are the parent's, and must not even be closed here."""
        _abandoned.append(self._http)
        self._http = None

    def _tired(self, error: WindlassError, began_s: float) -> bool:
        sent = getattr(error, "sent", True)
        return not sent and self._patience_s is not None and steady_s() - began_s >= self._patience_s

    async def _sent(self, ask: Ask[T], limit_s: float) -> T:
        token = await self.token()
        try:
            return await self._once(ask, token, limit_s)
        except Unauthorized:
            if not self._credentials.refused(token):
                raise
        return await self._once(ask, await self.token(), limit_s)

    async def _login(self, login: wire.Login) -> wire.Token:
        return await self._once(asks.token(login), None, self.timeout_s)

    async def _once(self, ask: Ask[T], token: str | None, limit_s: float) -> T:
        headers = _bearer(token) | ({"Content-Type": ask.media} if ask.body is not None else {})
        headers |= {"Cache-Control": "no-cache"} if ask.fresh else {}
        timeout = httpx2.Timeout(limit_s, connect=_CONNECT_S, read=limit_s / 2 if ask.repeatable else limit_s)
        try:
            answer = await self._client().request(
                ask.method, ask.path, params=ask.query or None, content=ask.body, headers=headers, timeout=timeout
            )
        except httpx2.HTTPError as error:
            raise self._unreachable(_reason(error), sent=not isinstance(error, _NEVER_SENT)) from error
        if not answer.is_success:
            raise self._refusal(answer, answer.content, ask.about, token)
        try:
            return msgspec.json.decode(answer.content, type=ask.answer) if answer.content else None  # type: ignore[return-value]
        except msgspec.MsgspecError as error:
            raise self._unreachable(f"answered what the API does not say ({error})", sent=True) from error

    def _client(self) -> httpx2.AsyncClient:
        loop = asyncio.get_running_loop()
        if self._http is None or self._loop is not loop:
            near = httpx2.URL(self.url).host in _LOOPBACK
            self._loop = loop
            self._http = httpx2.AsyncClient(
                base_url=self.url,
                limits=httpx2.Limits(
                    max_connections=self._connections,
                    max_keepalive_connections=self._connections,
                    keepalive_expiry=_IDLE_S,
                ),
                # Reading the certificates takes longer than a whole call; no proxy reaches this very machine.
                verify=self.url.startswith("https:"),
                trust_env=not near,
                transport=self._transport,
            )
        return self._http

    @staticmethod
    def _refusal(answer: httpx2.Response, body: bytes, about: Any, token: str | None) -> WindlassError:
        error = error_of(answer.status_code, answer.headers.get("content-type", ""), body, about)
        after = answer.headers.get("retry-after", "")
        if after.isdecimal():
            error.__dict__["retry_after_s"] = float(after[:6])
        if isinstance(error, Unauthorized) and not token:
            error.add_note("set WINDLASS_TOKEN or WINDLASS_API_KEY")
        return error

    def _unreachable(self, reason: str, *, sent: bool = True) -> Unavailable:
        error = Unavailable(f"the API at {self.url} {reason}")
        error.__dict__["sent"] = sent
        error.add_note("is it running, and WINDLASS_URL right?")
        return error


def checked(url: str) -> str:
    """The address without a slash at its end; one that cannot be right is refused before anything is sent."""
    try:
        parsed = httpx2.URL(url)
    except httpx2.InvalidURL:
        raise Misconfigured("WINDLASS_URL: is no URL; http://127.0.0.1:8080 is one") from None
    if parsed.scheme not in {"http", "https"} or not parsed.host or parsed.query or parsed.fragment:
        raise Misconfigured("WINDLASS_URL: must be like http://127.0.0.1:8080, without query or fragment")
    if parsed.userinfo:
        raise Misconfigured("WINDLASS_URL: holds a login; use WINDLASS_API_KEY or WINDLASS_TOKEN for that")
    return url.rstrip("/")


def _worth_repeating(ask: Ask[Any], error: WindlassError) -> bool:
    if isinstance(error, TooManyRequests) or not getattr(error, "sent", True):
        return True  # it has done nothing
    return error.retryable and ask.repeatable


def _bearer(token: str | None) -> dict[str, str]:
    return {} if not token else {"Authorization": f"Bearer {token}"}


def _reason(error: httpx2.HTTPError) -> str:
    if isinstance(error, httpx2.TimeoutException):
        return "did not answer in time"
    if isinstance(error, _NEVER_SENT):
        return "cannot be reached"
    return f"broke off the connection ({str(error) or type(error).__name__})"


# Never let go of in a child: ending a connection there would say goodbye on the socket that the parent still uses.
_abandoned: list[Any] = []
