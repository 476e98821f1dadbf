"""Whether a request was made by a page of ours. A browser sends the cookie along with whatever page asks it to; what
the page was, it says in headers that pages cannot write.
"""

from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

Headers = Mapping[bytes, bytes]

_SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_OWN: Final = frozenset({b"same-origin", b"none"})


def may_use_cookie(method: str, headers: Headers, own_names: frozenset[str]) -> bool:
    """What changes something needs a page of ours to have asked, in so many words. What only looks may also be a link
    somebody followed, or a browser that says nothing; but no foreign page that fetches, frames or opens streams.

    SameSite=Strict is not enough: another port of this machine is the same site.
    """
    site = headers.get(b"sec-fetch-site")
    if method not in _SAFE:
        return (site is None or site in _OWN) and _origin_is_own(headers, own_names)
    return site is None or site in _OWN or headers.get(b"sec-fetch-mode") == b"navigate"


def is_foreign(method: str, headers: Headers, own_names: frozenset[str]) -> bool:
    """Whether a browser says that a page of another origin wants to change something. For when there is no
    authentication: programs say nothing of the kind, and pass."""
    if method in _SAFE:
        return False
    site = headers.get(b"sec-fetch-site")
    if site is not None and site not in _OWN:
        return True
    return b"origin" in headers and not _origin_is_own(headers, own_names)


def _origin_is_own(headers: Headers, own_names: frozenset[str]) -> bool:
    """The origin is the host that was asked, port included; or, behind a proxy that asks in another name, one of the
    configured ones. The scheme is not compared: a proxy may have taken the TLS off."""
    origin = headers.get(b"origin")
    if origin is None:
        return False
    try:
        parts = urlsplit(origin.decode("ascii"))
        name = parts.hostname
    except ValueError:  # UnicodeDecodeError is one
        return False
    if parts.scheme not in {"http", "https"} or not name:
        return False
    host = headers.get(b"host", b"").decode("latin-1").lower()
    return _with_port(parts.netloc.lower(), parts.scheme) == _with_port(host, parts.scheme) or name in own_names


def _with_port(host: str, scheme: str) -> str:
    """Browsers leave out the usual port, others may not."""
    return host.removesuffix(":443" if scheme == "https" else ":80")
