"""The one way out: HTTP requests to addresses that strangers name, which must never reach the inside of a network.

A name is resolved once, here; every address it has is judged; and the connection goes to a judged address, with the name
kept for Host, SNI and the certificate. So a name that means something else a moment later (rebinding) gains nothing:
nobody asks again. The judging sits in the network backend, below the HTTP library, so there is no way around it: no
redirect is followed, no proxy of the environment is used, no connection is kept for another job. The whole exchange has
one deadline, and what is read has a limit.

What can never succeed raises EgressRefused, which is final; what may succeed later raises Unreached.
"""

import asyncio
import logging
import re
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from ipaddress import IPv6Address, ip_address
from typing import Any, Final, NamedTuple

import httpcore2
import httpx2

from windlass.config import JobsConfig
from windlass.errors import Fail
from windlass.jobs.addresses import Address, Network, is_public, is_within, literal, networks, plain, ports

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
Headers = Sequence[tuple[str, str]]

url_chars_max: Final = 2_048
_host_chars_max: Final = 253
_addresses_max: Final = 4  # tried one after the other
_connect_s: Final = 10.0
_HOST: Final = re.compile(r"[a-z0-9_]([a-z0-9_.-]*[a-z0-9_.])?", re.IGNORECASE)
# The last label of 0x7f.1, 2130706433 and 0177.0.0.1: names never end so, and every parser reads these in its own way.
_ENDS_IN_A_NUMBER: Final = re.compile(r"(?:.*\.)?(?:[0-9]+|0x[0-9a-f]*)\.?", re.IGNORECASE)
# What a URL holds where two readers may see two hosts: \ as /, blanks and controls that one of them drops.
_AMBIGUOUS: Final = re.compile(r"[\x00-\x20\x7f-\xa0\\\u2028\u2029]")
_PORTS: Final = {"http": 80, "https": 443}
_NOT_PUBLIC: Final = "is not on the public internet, and WINDLASS_EGRESS_ALLOW does not name it"
_NOT_REACHED: Final = "does not resolve, or is not on the public internet and WINDLASS_EGRESS_ALLOW does not name it"
# Ours, and only in the process's log: what a name means inside a network is not for whoever submitted the job.
_log: Final = logging.getLogger("windlass.egress")


class EgressRefused(Fail):
    """This address is not to be reached from here, today or later."""


class Unreached(ConnectionError):
    """No answer, or not a whole one: another attempt may fare better."""


class Target(NamedTuple):
    """A URL taken apart, once, for everyone who needs a part of it."""

    scheme: str
    host: str
    port: int
    path: bytes

    @property
    def authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Answer:
    """`cut`: there was more of the body than was to be kept, or it did not come in time."""

    status: int
    headers: Headers
    body: bytes
    cut: bool = False

    def header(self, name: str) -> str | None:
        return next((value for known, value in self.headers if known.lower() == name), None)


async def system_resolve(host: str, port: int) -> Sequence[str]:
    """The addresses of a name, as this machine sees them."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(address[0]) for *_, address in found]


@cache
def system_tls() -> ssl.SSLContext:
    """Made once: reading the certificates of a system takes a while."""
    return httpx2.create_ssl_context()


@dataclass(frozen=True, slots=True)
class Egress:
    """What may be reached: public addresses and those within `allow`, at `ports` (None: all), within `timeout_s`."""

    allow: tuple[Network, ...] = ()
    ports: frozenset[int] | None = frozenset({80, 443})
    timeout_s: float = 30.0
    resolve: Resolve = system_resolve
    tls: Callable[[], ssl.SSLContext] = system_tls

    @classmethod
    def of(cls, config: JobsConfig) -> "Egress":
        return cls(networks(config.egress_allow), ports(config.egress_ports), config.egress_timeout_s)

    async def request(
        self, method: str, url: str, *, headers: Headers = (), body: bytes = b"", keep_bytes: int, whole: bool = False
    ) -> Answer:
        """Ask, and give the answer with at most `keep_bytes` of its body. `whole`: without all of the body the answer
        is worth nothing; else a body that dawdles is cut off, since the answer itself is there."""
        target = self.target(url)
        sent = [("Host", target.authority), *headers, ("Accept-Encoding", "identity"), ("Connection", "close")]
        if body or method in {"POST", "PUT", "PATCH"}:
            sent.append(("Content-Length", str(len(body))))
        answer: Answer | None = None
        try:
            async with asyncio.timeout(self.timeout_s), self._asked(method, target, sent, body) as response:
                answer = _head(response)
                answer = await _with_body(answer, response, keep_bytes)
        except TimeoutError:
            if answer is None or whole:
                raise Unreached(f"{target.host}: no whole answer within {self.timeout_s:g} s") from None
            answer = Answer(answer.status, answer.headers, b"", cut=True)
        except (httpcore2.NetworkError, httpcore2.TimeoutException, httpcore2.ProtocolError, OSError) as error:
            if answer is None or whole:
                raise _unreached(target, error) from None
            answer = Answer(answer.status, answer.headers, b"", cut=True)
        return answer

    def target(self, url: str) -> Target:
        """The URL's parts, if it is one we go to at all. Nothing is resolved or sent yet."""
        if len(url) > url_chars_max:
            raise EgressRefused(f"the URL has {len(url):,} characters; the most is {url_chars_max:,}")
        if _AMBIGUOUS.search(url):
            raise EgressRefused("the URL holds a blank, a backslash or a control character")
        try:
            parsed = httpx2.URL(url)
            host, port = parsed.raw_host.decode("ascii").lower(), parsed.port
        except (httpx2.InvalidURL, ValueError, TypeError):
            raise EgressRefused("the URL cannot be read; https://host/path is one") from None
        if parsed.scheme not in _PORTS:
            raise EgressRefused("the URL must begin with https:// or http://")
        if parsed.userinfo:
            raise EgressRefused("the URL holds a login; send an Authorization header instead")
        _check_host(host)
        port = _PORTS[parsed.scheme] if port is None else port
        if not 0 < port <= 65_535 or (self.ports is not None and port not in self.ports):
            raise EgressRefused(f"{host}: port {port} is not among those of WINDLASS_EGRESS_PORTS")
        return Target(parsed.scheme, host, port, parsed.raw_path or b"/")

    async def judged(self, host: str, port: int) -> list[Address]:
        """The addresses of a host, all of which may be reached: one that may not refuses them all.

        A name that does not resolve and one that is not public are refused in the same words: told apart, they would
        let whoever submits jobs find out which names there are inside. The log of the worker has the difference.
        """
        said = literal(host)
        if said is not None:
            if not self.may_reach(plain(said)):
                raise EgressRefused(f"{host}: {_NOT_PUBLIC}")
            return [plain(said)]
        addresses = await self._resolved(host, port)
        inside = next((address for address in addresses if not self.may_reach(address)), None)
        if inside is not None:
            _log.warning("%s is %s, which jobs may not reach; WINDLASS_EGRESS_ALLOW could allow it", host, inside)
        if inside is not None or not addresses:
            raise EgressRefused(f"{host}: {_NOT_REACHED}")  # in one place: a traceback shows its line
        return addresses[:_addresses_max]

    async def _resolved(self, host: str, port: int) -> list[Address]:
        """The addresses of a name; none where it does not resolve. Raises Unreached where nobody could be asked."""
        try:
            texts = await self.resolve(host, port)
            addresses = list(dict.fromkeys(plain(ip_address(text)) for text in texts))
        except socket.gaierror as error:
            if error.errno == socket.EAI_AGAIN:
                raise Unreached(f"{host}: names cannot be resolved just now") from None
            problem = error.strerror
        except (OSError, ValueError) as error:  # UnicodeError is one: a label of more than 63 characters
            problem = str(error) or type(error).__name__
        else:
            problem = "no address"
            if addresses:
                return addresses
        _log.warning("%s, which a job names, does not resolve: %s", host, problem)
        return []

    def may_reach(self, address: Address) -> bool:
        if is_within(address, self.allow):
            return True
        return is_public(address) and not _is_own(address)

    @asynccontextmanager
    async def _asked(
        self, method: str, target: Target, headers: Headers, body: bytes
    ) -> AsyncIterator[httpcore2.Response]:
        """On a connection of its own: what one job's server says or sets is nothing to the next."""
        url = httpcore2.URL(
            scheme=target.scheme.encode(), host=target.host.encode(), port=target.port, target=target.path
        )
        tls = await asyncio.to_thread(self.tls) if target.scheme == "https" else None
        pool = httpcore2.AsyncConnectionPool(ssl_context=tls, max_connections=1, network_backend=_Judged(self))
        raw = [(name.encode("ascii"), value.encode("ascii")) for name, value in headers]
        async with pool, pool.stream(method, url, headers=raw, content=body) as response:
            yield response


class _Judged(httpcore2.AsyncNetworkBackend):
    """Connects to judged addresses only. Every connection of the HTTP library begins here."""

    def __init__(self, egress: Egress) -> None:
        self._egress = egress
        self._inner = httpcore2.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - the library's; the deadline is over all of it
        local_address: str | None = None,  # noqa: ARG002
        socket_options: Iterable[Any] | None = None,  # noqa: ARG002
    ) -> httpcore2.AsyncNetworkStream:
        problem: Exception = Unreached(f"{host}: cannot be reached")
        for address in await self._egress.judged(host, port):
            try:
                return await self._inner.connect_tcp(str(address), port, timeout or _connect_s)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                problem = error
        raise problem

    async def connect_unix_socket(self, *_: Any, **__: Any) -> httpcore2.AsyncNetworkStream:
        raise EgressRefused("sockets of this machine are not reached")

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


def _check_host(host: str) -> None:
    if ":" in host:
        if not isinstance(literal(host), IPv6Address):
            raise EgressRefused("the URL's host is no IPv6 address")
    elif not host or len(host) > _host_chars_max or not _HOST.fullmatch(host):
        raise EgressRefused("the URL has no host, or one that is no name")
    elif _ENDS_IN_A_NUMBER.fullmatch(host) and literal(host) is None:
        raise EgressRefused("the URL's host is an address in a notation that is not read; write 192.0.2.1")


def _is_own(address: Address) -> bool:
    """Whether it is this machine's: what listens here may count on nobody from outside coming by.

    To itself the kernel would send from the very same address. A UDP socket tells, and sends nothing.
    """
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((str(address), 9))
            return ip_address(probe.getsockname()[0]) == address
    except OSError:  # no way there, or none of that kind of address at all
        return False


def _head(response: httpcore2.Response) -> Answer:
    return Answer(
        response.status, [(name.decode("latin-1"), value.decode("latin-1")) for name, value in response.headers], b""
    )


async def _with_body(answer: Answer, response: httpcore2.Response, keep_bytes: int) -> Answer:
    """As it came: what is compressed stays so, whatever it would grow to."""
    kept = bytearray()
    async for piece in response.aiter_stream():
        kept += piece[: keep_bytes + 1 - len(kept)]
        if len(kept) > keep_bytes:
            break
    return Answer(answer.status, answer.headers, bytes(kept[:keep_bytes]), cut=len(kept) > keep_bytes)


def _unreached(target: Target, error: Exception) -> Unreached:
    """In our words: what a library says of an exchange may quote it."""
    if isinstance(error, Unreached):
        return error
    kind, cause = type(error).__name__, error.__cause__ or error.__context__
    if isinstance(cause, ssl.SSLCertVerificationError):
        return Unreached(f"{target.host}: its certificate is not trusted: {cause.verify_message}")
    why = f"{kind}, {type(cause).__name__}" if cause is not None else kind
    return Unreached(f"{target.host}: cannot be reached, or broke off ({why})")
