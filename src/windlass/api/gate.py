"""The door: who calls, and whether he may. Asked before a body is read, for every request that is not open to all; a
plain function of what is in memory, because it stands before every submission.
"""

import asyncio
import contextlib
import logging
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Final, Self

from starlette.requests import Request

from windlass.api.logins import Logins
from windlass.api.quotas import Quotas
from windlass.auth.keyring import keyring
from windlass.auth.origin import Headers, is_foreign, may_use_cookie
from windlass.auth.passwords import Passwords
from windlass.auth.tokens import ANONYMOUS, ANYONE, Actor, Signer, Verifier
from windlass.clock import steady_s
from windlass.config import Config
from windlass.config.hosts import own_hosts
from windlass.errors import Forbidden, NotPossible, Unauthorized, Unavailable, WindlassError
from windlass.store.protocol import Accounts
from windlass.wire import Scope

COOKIE: Final = "windlass_session"
_every_s: Final = 5.0
_stale_s: Final = 30.0
_overlap: Final = timedelta(minutes=2)
_FOREIGN: Final = "a page of another origin may not do this"
_log: Final = logging.getLogger(__name__)


class Gate:
    """Enter it before requests come: what is revoked, and who has which quota, is read at once, then every few
    seconds. When it could not be read for long, nobody is let in: a database that is down must not bring revoked
    tokens back to life."""

    def __init__(self, config: Config, accounts: Accounts) -> None:
        self.is_open: Final = config.auth.auth == "off"
        self.config: Final = config
        self._accounts = accounts
        self._own = own_hosts(config.api.hosts)
        self.passwords: Final = Passwords()
        self.quotas: Final = Quotas(accounts, enforced=not self.is_open)
        self._read_s = -_stale_s - 1
        self._watch: asyncio.Task[None] | None = None
        if not self.is_open:
            self._keys = keyring(config.auth)
            self.signer = Signer(self._keys, config.auth)
            self.verifier = Verifier(self._keys, config.auth)
            self.logins = Logins(config.auth, accounts, self, self.passwords)

    async def __aenter__(self) -> Self:
        if not self.is_open:
            await self._read()
            await self.passwords.prepare()
            self._watch = asyncio.create_task(self._watched())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._watch is not None:
            self._watch.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._watch
        self.passwords.close()

    def admit(self, request: Request, needed: Scope | None) -> Actor:
        """Who calls, if he may do what needs this scope; anyone where none is needed. Raises Unauthorized, Forbidden,
        and Unavailable."""
        if needed is None:
            return ANONYMOUS
        actor = self.identify(request)
        actor.need(needed)
        return actor

    def identify(self, request: Request) -> Actor:
        """Who calls, whatever he may. A token that is sent is what counts, also when it is wrong and there is a
        cookie."""
        method, headers = request.scope["method"], dict(request.scope["headers"])
        if self.is_open:
            if is_foreign(method, headers, self._own):
                raise Forbidden(_FOREIGN)
            return ANYONE
        if steady_s() - self._read_s > _stale_s:
            raise Unavailable("whether this token is revoked cannot be told, as long as the database does not answer")
        given = headers.get(b"authorization")
        if given is not None:
            kind, _, token = given.partition(b" ")
            if kind.lower() != b"bearer":
                raise Unauthorized
            return self.verifier.verify(token.decode("latin-1"))
        actor = self.verifier.verify(_cookie(headers), "session")
        if not may_use_cookie(method, headers, self._own):
            raise Forbidden(_FOREIGN)
        return actor

    def check_signs(self) -> None:
        """That tokens are made here. Raises NotPossible, Forbidden."""
        if self.is_open:
            raise NotPossible("authentication is off: everything is possible without a token")
        if not self._keys.signs:
            raise Forbidden("no tokens are made here: they are signed elsewhere")

    def check_own_page(self, request: Request) -> None:
        """That a form comes from a page of ours: a foreign one could log a browser in as somebody else."""
        if not may_use_cookie("POST", dict(request.scope["headers"]), self._own):
            raise Forbidden(_FOREIGN)

    async def revoke(self, name: str, for_s: float) -> None:
        """Here at once, with the other processes when they next ask. Kept while there can be tokens with this name."""
        now = datetime.now(UTC)
        await self._accounts.revoke(name, now + timedelta(seconds=for_s))
        self.verifier.revoked = {**self.verifier.revoked, name: now}

    async def _watched(self) -> None:
        while True:
            await asyncio.sleep(_every_s)
            try:
                await self._read()
            except WindlassError as error:
                _log.warning("what is revoked, or the quotas, could not be read: %s", error)
            except Exception:  # noqa: BLE001 - the next round may go well; without one nobody would be let in any more
                _log.exception("what is revoked, or the quotas, could not be read")

    async def _read(self) -> None:
        # First: a user that is removed loses its tokens before its quotas.
        await self.quotas.read()
        asked_s = steady_s()  # not when it was answered: what was revoked in between is not in it
        read = await self._accounts.revoked()
        # Nor is what was revoked here in between: kept for a while beside what was read, it is not forgotten for a
        # round.
        edge = datetime.now(UTC) - _overlap
        self.verifier.revoked = {name: at for name, at in self.verifier.revoked.items() if at > edge} | dict(read)
        self._read_s = asked_s


def _cookie(headers: Headers) -> str:
    """The one session there is. Of two, one was put there by another host of this site, and none is believed."""
    pairs = (pair.partition(b"=") for pair in headers.get(b"cookie", b"").split(b";"))
    found = [value.strip() for name, _, value in pairs if name.strip() == COOKIE.encode()]
    if len(found) != 1:
        raise Unauthorized
    return found[0].decode("latin-1")
