"""The socket the API is reached by. `windlass up` opens it before anything else: a port that is taken is told at once,
and while an API that has died is started again, those who connect wait instead of being refused.
"""

import errno
import socket
from typing import Final

from windlass.config import ApiConfig
from windlass.errors import Misconfigured

_BACKLOG: Final = 1024


def listening(config: ApiConfig) -> socket.socket:
    """A socket that listens where the settings say. Raises Misconfigured, in words for whoever chose the port."""
    family, address = _resolved(config.host, config.port)
    opened = socket.socket(family, socket.SOCK_STREAM)
    try:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family is socket.AF_INET6:
            opened.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(config.host != "::"))
        opened.bind(address)
        opened.listen(_BACKLOG)
    except OSError as error:
        opened.close()
        raise _refusal(config, error) from None
    return opened


def port_of(opened: socket.socket) -> int:
    port: int = opened.getsockname()[1]
    return port


def url_of(host: str, port: int) -> str:
    """How to reach a server on this machine that listens there."""
    near = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)  # noqa: S104
    return f"http://{near}:{port}"


def _resolved(host: str, port: int) -> tuple[socket.AddressFamily, tuple[str, int]]:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (socket.gaierror, UnicodeError):
        raise Misconfigured(f"WINDLASS_HOST = {host!r}: this machine knows no such address (--host)") from None
    family, _, _, _, address = min(found, key=lambda each: each[0] is not socket.AF_INET)
    return family, (str(address[0]), port)


def _refusal(config: ApiConfig, error: OSError) -> Misconfigured:
    where = f"{config.host}:{config.port}"
    if error.errno == errno.EADDRINUSE:
        return Misconfigured(f"{where} is taken by another program; choose another port: --port or WINDLASS_PORT")
    if error.errno == errno.EACCES:
        return Misconfigured(f"{where}: this user may not listen there; choose a port above 1023: --port")
    return Misconfigured(f"cannot listen on {where}: {error.strerror} (--host, --port)")
