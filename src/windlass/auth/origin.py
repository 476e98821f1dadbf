"""Whether a request was made by a page of ours. A browser sends the cookie along with whatever page asks it to; what
the page was, it says in headers that pages cannot write.
"""

from collections.abc import Collection, Mapping
from typing import Final

from windlass.config.hosts import Origin, OwnHost, default_port, parse_host, parse_origin

Headers = Mapping[bytes, bytes]
Own = Collection[OwnHost]

_SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_OWN: Final = frozenset({b"same-origin", b"none"})


def may_use_cookie(method: str, headers: Headers, own: Own) -> bool:
    """What changes something needs a page of ours to have asked, in so many words. What only looks may also be a link
    somebody followed, or a browser that says nothing; but no foreign page that fetches, frames or opens streams.

    SameSite=Strict is not enough: another port of this machine is the same site.
    """
    site = headers.get(b"sec-fetch-site")
    if method not in _SAFE:
        return (site is None or site in _OWN) and _origin_is_own(headers, own)
    return site is None or site in _OWN or headers.get(b"sec-fetch-mode") == b"navigate"


def is_foreign(method: str, headers: Headers, own: Own) -> bool:
    """Whether a browser says that a page of another origin wants to change something. For when there is no
    authentication: programs say nothing of the kind, and pass."""
    if method in _SAFE:
        return False
    site = headers.get(b"sec-fetch-site")
    if site is not None and site not in _OWN:
        return True
    return b"origin" in headers and not _origin_is_own(headers, own)


def _origin_is_own(headers: Headers, own: Own) -> bool:
    """Whether scheme, host and port of the page are ours: those that WINDLASS_HOSTS lists, or those of the Host header,
    if WINDLASS_HOSTS does not say more about that name.

    This server speaks plain http, and a proxy may have taken the TLS off. A proxy that says https is believed: no
    foreign page can send that header. One that says http, or nothing, may stand behind another: then either scheme
    may be meant.
    """
    origin = parse_origin(headers.get(b"origin", b"").decode("latin-1"))
    if origin is None:
        return False
    told = headers.get(b"x-forwarded-proto", b"").partition(b",")[0].strip().lower()
    listed = [each for each in own if each.name == origin.name]
    if any(_is_listed(origin, each, told) for each in listed):
        return True
    if any(each.scheme is not None for each in listed) or (told == b"https" and origin.scheme != "https"):
        return False
    host = parse_host(headers.get(b"host", b"").decode("latin-1"))
    return host is not None and (host.name, host.port or default_port(origin.scheme)) == (origin.name, origin.port)


def _is_listed(origin: Origin, own: OwnHost, told: bytes) -> bool:
    """Behind a proxy that asks in another name than people do. Without a scheme in the list, TLS is expected."""
    if own.scheme is None:
        fits = origin.scheme == "https" or (origin.scheme == "http" and told == b"http")
    else:
        fits = origin.scheme == own.scheme
    return fits and origin.port == (own.port or default_port(origin.scheme))
