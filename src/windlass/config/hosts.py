"""Names of hosts as values: what a Host header, an Origin header and WINDLASS_HOSTS name. Pure.

Two spellings of one host are equal here: case, a trailing dot, the usual port, and the notation of an IPv6 address make
no difference. What holds anything else, user info say, names no host: two readers could see two hosts in it.
"""

import re
from ipaddress import IPv6Address
from typing import Final, NamedTuple

_HOST: Final = re.compile(
    r"(?P<name>\[[0-9a-f:.]+\]|[a-z0-9_](?:[a-z0-9_.-]*[a-z0-9_])?\.?)(?::(?P<port>[0-9]{0,5}))?", re.ASCII
)
_PORTS: Final = {"http": 80, "https": 443}


class Host(NamedTuple):
    """`port`: None where none is named."""

    name: str
    port: int | None = None


class Origin(NamedTuple):
    """Of a page: all three must be equal."""

    scheme: str
    name: str
    port: int


class OwnHost(NamedTuple):
    """An entry of WINDLASS_HOSTS: `name`, `name:port`, or either behind `https://` or `http://`."""

    scheme: str | None
    name: str
    port: int | None


def parse_host(text: str) -> Host | None:
    found = _HOST.fullmatch(text.lower())
    if found is None:
        return None
    name, port = found["name"], int(found["port"] or 0)
    if port > 65_535:
        return None
    if name.startswith("["):
        try:
            name = f"[{IPv6Address(name[1:-1])}]"
        except ValueError:
            return None
    return Host(name.removesuffix("."), port or None)


def parse_origin(text: str) -> Origin | None:
    scheme, colon, rest = text.lower().partition("://")
    host = parse_host(rest) if colon and scheme in _PORTS else None
    return None if host is None else Origin(scheme, host.name, host.port or _PORTS[scheme])


def default_port(scheme: str) -> int:
    return _PORTS[scheme]


def own_hosts(setting: str) -> tuple[OwnHost, ...]:
    """`a,b:8443,https://c` as values. Raises ValueError."""
    return tuple(_own_host(each) for each in map(str.strip, setting.split(",")) if each)


def _own_host(text: str) -> OwnHost:
    scheme, colon, rest = text.lower().removesuffix("/").rpartition("://")
    host = parse_host(f"[{rest}]" if rest.count(":") > 1 and not rest.startswith("[") else rest)
    if host is None or (colon and scheme not in _PORTS):
        raise ValueError(f"{text[:60]!a} is no host; write jobs.example.com, or https://jobs.example.com:8443")
    return OwnHost(scheme or None, host.name, host.port)
