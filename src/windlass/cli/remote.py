"""Where the commands find the API, and how they prove who they are.

The address: WINDLASS_URL, else the file that a running `windlass up` keeps in its data folder. The token: WINDLASS_TOKEN,
or WINDLASS_API_KEY, else one that is signed here with the secret of the API, if this user may read it. Where there is no API, or none
that answers, and WINDLASS_DATABASE_URL is set, the commands work on the database themselves (in_process.py).
"""

import getpass
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from windlass.cli.home import ADDRESS, SECRET
from windlass.cli.output import clean, detail, note
from windlass.cli.wiring import data_folder, settings
from windlass.config import AuthConfig, Config, redacted
from windlass.errors import Unavailable

if TYPE_CHECKING:
    import httpx2

    from windlass.sdk.http import AsyncClient, Client

_TOKEN_S: Final = 300.0
_PATIENCE_S: Final = 1.0  # people see that nothing answers; programs wait for it to come back
_LOOPBACK: Final = {"localhost", "127.0.0.1", "::1"}


@dataclass(frozen=True, slots=True)
class Reached:
    """An API, and what opens it: a token, something that makes one, an API key, or nothing where nothing is asked.
    `transport`: the way to an API that is not on the network."""

    url: str
    token: str | Callable[[], str] | None = None
    api_key: str | None = None
    transport: "httpx2.AsyncBaseTransport | None" = None


def reached() -> Reached:
    config = settings(warn=False)
    folder = data_folder(config)
    url = config.client.url or _announced(folder)
    if config.store.database_url is not None and not (url is not None and _answers(url)):
        return _in_process(config, url)
    if url is None:
        error = Unavailable(
            f"no API is known: neither WINDLASS_URL nor WINDLASS_DATABASE_URL is set, and no `windlass up` runs in {folder}"
        )
        error.add_note("start one with: windlass up")
        raise error
    detail(f"asking the API at {url}")
    if config.client.token or config.client.api_key:
        return Reached(url, config.client.token, None if config.client.token else config.client.api_key)
    return Reached(url, _minter(config, folder, url))


@contextmanager
def client() -> "Iterator[Client]":
    """The blocking client, for commands that ask one thing after another."""
    from windlass.sdk.http import Client  # noqa: PLC0415 - help and completion do without

    at = reached()
    token = at.token or _nothing(at)
    with Client(at.url, token=token, api_key=at.api_key, patience_s=_PATIENCE_S, transport=at.transport) as opened:
        yield opened


def async_client(connections: int = 100) -> "AsyncClient":
    """For commands that do several things at once."""
    from windlass.sdk.http import AsyncClient  # noqa: PLC0415

    at = reached()
    token = at.token or _nothing(at)
    return AsyncClient(
        at.url,
        token=token,
        api_key=at.api_key,
        patience_s=_PATIENCE_S,
        connections=connections,
        transport=at.transport,
    )


def _nothing(at: Reached) -> str | None:
    """An empty token, so that the client does not look for another one: everything there was to find was found."""
    return None if at.api_key else ""


def _announced(folder: Path) -> str | None:
    try:
        return (folder / ADDRESS).read_text(encoding="utf-8").strip()
    except OSError:
        return None


def _answers(url: str) -> bool:
    """Whether anything listens there. Asked only where there is another way to go."""
    try:
        parts = urlsplit(url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        with socket.create_connection((parts.hostname or "", port), timeout=_PATIENCE_S):
            return True
    except ValueError:  # an address that makes no sense is for the client to refuse
        return True
    except OSError:
        return False


def _in_process(config: Config, url: str | None) -> Reached:
    """The API inside this process. Where an address was set, its silence is worth a line: this may be another cluster."""
    from windlass.cli.in_process import URL, InProcessTransport, in_process  # noqa: PLC0415

    database = redacted(config.store.database_url or "")
    if config.client.url is not None:
        note(f"windlass: the API at {clean(url)} does not answer; working on {clean(database)} itself")
    else:
        detail(f"no API answers; working on {database} itself")
    own = in_process(config)
    return Reached(URL, lambda: _minted(own.auth), transport=InProcessTransport(own))


def _minter(config: Config, folder: Path, url: str) -> Callable[[], str] | None:
    """What signs tokens here. With the secret of a data folder only for this machine: it is worth nothing elsewhere, and
    a token made with it would be an admin's key in the hands of whoever is at that address."""
    auth = config.auth
    if auth.auth == "off":
        return None
    if auth.auth_algorithm == "HS256" and auth.auth_secret is None:
        if urlsplit(url).hostname not in _LOOPBACK and config.client.url is not None:
            return None
        try:
            secret = (folder / SECRET).read_text(encoding="utf-8").strip()
        except OSError:
            return None
        auth = replace(auth, auth_secret=secret)
    elif auth.auth_algorithm != "HS256" and auth.auth_private_key is None:
        return None
    return lambda: _minted(auth)


def _minted(auth: AuthConfig) -> str:
    from windlass.auth.tokens import Signer  # noqa: PLC0415

    return Signer.of(auth).sign(f"cli:{_user()}", ["admin"], min(_TOKEN_S, auth.token_ttl_s))


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # no name for this user id, as in some containers
        return "unknown"
