"""What is refused before anyone looks at it: headers that are there twice, host names that are not ours, pages of other
origins. Bodies are in bodies.py.
"""

import ipaddress
import socket
from collections.abc import Mapping, Sequence
from typing import Final

from windlass.config import ApiConfig
from windlass.config.hosts import Host, OwnHost, own_hosts, parse_host
from windlass.errors import RequestError

Headers = Mapping[bytes, bytes]


# What may be said once: of two, whoever stands before us may have judged the other one.
_ONCE: Final = frozenset({b"host", b"authorization", b"content-type", b"origin", b"sec-fetch-site", b"idempotency-key"})


def check_once(said: Sequence[tuple[bytes, bytes]], headers: Headers) -> None:
    if len(said) == len(headers):
        return
    seen: set[bytes] = set()
    for name, _ in said:
        if name in _ONCE and name in seen:
            raise RequestError(f"the header {name.decode()} is there twice")
        seen.add(name)


# Hosts. -------------------------------------------------------------------------------------------------------------


class Hosts:
    """The names we answer to. A page elsewhere can have its name point at this machine, and then call us as if it were
    ours: on loopback, where nothing else stands before us, that name must not be answered."""

    def __init__(self, config: ApiConfig) -> None:
        own = own_hosts(config.hosts)
        if not own and is_loopback(config.host):
            own = own_hosts(f"localhost,127.0.0.1,[::1],{config.host}")
            machine = parse_host(socket.gethostname())
            own += (OwnHost(None, *machine),) if machine is not None else ()
        self._own: Final = own
        self._known: set[bytes] = set()  # as they were written, with ports: a look instead of taking them apart

    def check(self, headers: Headers) -> None:
        given = headers.get(b"host", b"")
        if given in self._known or not (given or self._own):
            return
        host = parse_host(given.decode("latin-1"))
        if host is None and given:
            raise RequestError("the Host header is no host name")
        if self._own and not any(_is_own(host, each) for each in self._own):
            raise RequestError("this server does not answer to the host name of the request; see WINDLASS_HOSTS")
        if len(self._known) < 100:
            self._known.add(given)


def _is_own(host: Host | None, own: OwnHost) -> bool:
    return host is not None and host.name == own.name and own.port in (None, host.port)


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


# Pages of other origins. --------------------------------------------------------------------------------------------

_EXPOSED: Final = "ETag, Idempotency-Replayed, Link, Location, Retry-After, X-Request-ID"
_ALLOWED: Final = "Authorization, Content-Type, Idempotency-Key, If-None-Match, Last-Event-ID, X-Request-ID"


class Cors:
    """Origins whose pages may call us, with tokens: cookies are never sent along from there."""

    def __init__(self, config: ApiConfig) -> None:
        said = [origin.strip().rstrip("/") for origin in config.cors_origins.split(",")]
        self._origins: Final = frozenset(origin.encode() for origin in said if origin)

    def headers(self, headers: Headers) -> dict[str, str]:
        """What every answer says to a page of another origin."""
        if not self._origins:
            return {}
        origin = headers.get(b"origin")
        if origin not in self._origins:
            return {"vary": "Origin"}
        return {
            "access-control-allow-origin": origin.decode("latin-1"),
            "access-control-expose-headers": _EXPOSED,
            "vary": "Origin",
        }

    @staticmethod
    def preflight(methods: list[str]) -> dict[str, str]:
        """What is answered to a browser that asks first."""
        return {
            "access-control-allow-methods": ", ".join(methods),
            "access-control-allow-headers": _ALLOWED,
            "access-control-max-age": "600",
        }
