"""The address of a Redis, read from its URL: one server, a socket, a group under Sentinel, or a cluster.

Pure, and used by those who check settings as well as by those who connect. No message quotes any part of the URL: what
cannot be read may be a part of the password.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

Kind = Literal["single", "socket", "sentinel", "cluster"]

_KINDS: Final[Mapping[str, Kind]] = {
    "redis": "single",
    "rediss": "single",
    "unix": "socket",
    "redis+sentinel": "sentinel",
    "rediss+sentinel": "sentinel",
    "redis+cluster": "cluster",
    "rediss+cluster": "cluster",
}
_PORT: Final = 6379
_SENTINEL_PORT: Final = 26_379
_DB_MAX: Final = 65_535
# What may be said about TLS, as redis-py names it.
_TLS: Final = frozenset({"ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "ssl_cert_reqs", "ssl_check_hostname"})
_REQUIREMENTS: Final = ("required", "optional", "none")


@dataclass(frozen=True, slots=True)
class RedisAddress:
    """`nodes`: the server, the sentinels, or some of the cluster. `service`: what the sentinels call it."""

    kind: Kind
    nodes: tuple[tuple[str, int], ...] = ()
    path: str = ""
    service: str = ""
    db: int = 0
    tls: bool = False
    tls_options: Mapping[str, str | bool] = field(default_factory=dict)
    username: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)
    sentinel_username: str | None = field(default=None, repr=False)
    sentinel_password: str | None = field(default=None, repr=False)


def parse_redis_url(url: str) -> RedisAddress:
    """Raises ValueError, in words that can be shown."""
    try:
        parts = urlsplit(url)
    except ValueError:
        raise ValueError("is no URL; redis://:password@host:6379/0 is one") from None
    kind = _KINDS.get(parts.scheme)
    if kind is None or not url.startswith(f"{parts.scheme}://"):
        raise ValueError("must begin with redis://, rediss://, unix://, redis+sentinel:// or redis+cluster://")
    if parts.fragment or "@" in parts.path:
        raise ValueError("has a # or / in its login; write them as %23 and %2F")
    login, _, hosts = parts.netloc.rpartition("@")
    user, _, password = login.partition(":")
    options = _options(parts, kind)
    path, service, db = _place(parts, kind, options)
    return RedisAddress(
        kind=kind,
        nodes=_nodes(hosts, kind),
        path=path,
        service=service,
        db=db,
        tls=parts.scheme.startswith("rediss"),
        tls_options={name: _tls_value(name, options[name]) for name in _TLS & options.keys()},
        username=unquote(user) or options.get("username"),
        password=unquote(password) or options.get("password"),
        sentinel_username=options.get("sentinel_username"),
        sentinel_password=options.get("sentinel_password"),
    )


def _options(parts: SplitResult, kind: Kind) -> dict[str, str]:
    known = {"db", "username", "password"} if kind == "socket" else {"db"}
    known |= {"sentinel_username", "sentinel_password"} if kind == "sentinel" else set()
    known |= _TLS if parts.scheme.startswith("rediss") else set()
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    if not options.keys() <= known:
        raise ValueError(f"has an option that is not known here; there are {', '.join(sorted(known))}")
    return options


def _tls_value(name: str, text: str) -> str | bool:
    if name == "ssl_check_hostname":
        if text.lower() not in {"true", "false"}:
            raise ValueError("has an ssl_check_hostname that is neither true nor false")
        return text.lower() == "true"
    if name == "ssl_cert_reqs" and text not in _REQUIREMENTS:
        raise ValueError(f"has an ssl_cert_reqs that is none of {', '.join(_REQUIREMENTS)}")
    return text


def _place(parts: SplitResult, kind: Kind, options: Mapping[str, str]) -> tuple[str, str, int]:
    """The path of a socket, the service of sentinels, and the number of the database."""
    if kind == "socket":
        if not parts.path.strip("/"):
            raise ValueError("names no socket; unix:///run/valkey.sock is one")
        return unquote(parts.path), "", _db(options.get("db", "0"))
    pieces = [unquote(piece) for piece in parts.path.strip("/").split("/") if piece]
    service = ""
    if kind == "sentinel":
        if not pieces:
            raise ValueError("names no service; redis+sentinel://host:26379/mymaster is one")
        service = pieces.pop(0)
    if len(pieces) > 1 or (pieces and "db" in options):
        raise ValueError("has more in its path than the number of a database")
    db = _db(pieces[0] if pieces else options.get("db", "0"))
    if kind == "cluster" and db:
        raise ValueError("names a database, of which a cluster has only 0")
    return "", service, db


def _db(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= 5 and int(text) <= _DB_MAX):
        raise ValueError("has a database that is no number")
    return int(text)


def _nodes(hosts: str, kind: Kind) -> tuple[tuple[str, int], ...]:
    if kind == "socket":
        if hosts:
            raise ValueError("names a host and a socket; write unix:///path with three slashes")
        return ()
    nodes = tuple(_node(text, _SENTINEL_PORT if kind == "sentinel" else _PORT) for text in hosts.split(","))
    if kind == "single" and len(nodes) > 1:
        raise ValueError("names several hosts; write redis+sentinel:// or redis+cluster:// for them")
    return nodes


def _node(text: str, default_port: int) -> tuple[str, int]:
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            raise ValueError("has a host that cannot be read")
        port = rest[1:]
    else:
        host, _, port = text.partition(":")
    if not host:
        raise ValueError("names no host; redis://host:6379/0 does")
    if port and not (port.isascii() and port.isdecimal() and len(port) <= 5 and 0 < int(port) <= 65_535):
        raise ValueError("has a port that is none from 1 to 65535; / ? # @ % in a password are %2F %3F %23 %40 %25")
    return host, int(port) if port else default_port
