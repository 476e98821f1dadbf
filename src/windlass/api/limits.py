"""What is refused before anyone looks at it: headers that are there twice, host names that are not ours, pages of other
origins. Bodies are in bodies.py.
"""

import ipaddress
import socket
from collections.abc import Mapping, Sequence
from typing import Final

from windlass.config import ApiConfig
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
        said = {name.strip().lower() for name in config.hosts.split(",") if name.strip()}
        if not said and is_loopback(config.host):
            said = {"localhost", "127.0.0.1", "[::1]", config.host.lower(), socket.gethostname().lower()}
        self._names: Final = frozenset(said)
        self._known: set[bytes] = set()  # as they were written, with ports: a look instead of taking them apart

    def check(self, headers: Headers) -> None:
        host = headers.get(b"host", b"")
        if not self._names or host in self._known:
            return
        name = host.decode("latin-1").lower()
        bare = name[: name.rfind(":")] if ":" in name and not name.endswith("]") else name
        if bare not in self._names and name not in self._names:
            raise RequestError("this server does not answer to the host name of the request; see WINDLASS_HOSTS")
        if len(self._known) < 100:
            self._known.add(host)


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
