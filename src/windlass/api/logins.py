"""Proofs of who somebody is, and the tokens they are exchanged for: a user's password, an API key, a login link."""

import hashlib
import logging
import re
import secrets
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Protocol

from windlass.auth import keys
from windlass.auth.attempts import Attempts, network_of
from windlass.auth.passwords import Passwords
from windlass.auth.scopes import Scope, granted, known, written
from windlass.auth.tokens import Actor, Signer, Verifier, revocable
from windlass.clock import steady_s
from windlass.config import AuthConfig
from windlass.errors import TooManyRequests, Unauthorized
from windlass.store.protocol import KEY, USER, Accounts, User
from windlass.wire import Token

_BEARER: Final = "Bearer"
_key_attempts: Final = (
    10  # times as many as with passwords: keys cannot be guessed, but a fleet may sit behind one address
)
_a_minute: Final = 60  # refreshes of a session and logouts of somebody: each is kept until its tokens have expired
NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]{0,99}")  # as those of new users: others are nobody's
_log: Final = logging.getLogger(__name__)


class Door(Protocol):
    """What is needed of the gate."""

    signer: Signer
    verifier: Verifier

    async def revoke(self, name: str, for_s: float) -> None: ...


@dataclass(frozen=True, slots=True)
class Identity:
    """Somebody who has proved who he is. `epoch` changes with his password and scopes: what was given before is
    void."""

    subject: str
    scopes: frozenset[Scope]
    epoch: str | None = None
    expires_at: datetime | None = None


def epoch_of(user: User) -> str:
    """The salt in the stored hash is random: the same password set again makes another one."""
    said = f"{user.password_hash} {' '.join(sorted(user.scopes))}"
    return hashlib.sha256(said.encode()).hexdigest()[:24]


class Logins:
    def __init__(self, config: AuthConfig, accounts: Accounts, gate: Door, passwords: Passwords) -> None:
        self._config = config
        self._accounts = accounts
        self._gate = gate
        self._by_name = Attempts(config.login_attempts)
        self._by_address = Attempts(config.login_attempts)
        self._keys_by_address = Attempts(config.login_attempts * _key_attempts)
        self._refreshes = Attempts(_a_minute)
        self._logouts = Attempts(_a_minute)
        self._passwords = passwords
        self.clock = steady_s  # by which allowances come back

    async def by_password(self, name: str, password: str, address: str | None) -> Identity:
        """The same work and the same words whether the user is unknown or the password wrong. Tries count by name and by
        address: one guesser with many names, many guessers of one."""
        with self._tried((self._by_address, network_of(address)), (self._by_name, name.casefold())):
            user = await self._accounts.user(name) if NAME.fullmatch(name) else None
            if not await self._passwords.match(user.password_hash if user else None, password) or user is None:
                _log.warning("login refused", extra={"client": address})
                raise Unauthorized
        return Identity(f"{USER}{user.name}", known(user.scopes), epoch_of(user))

    async def by_key(self, key: str, address: str | None) -> Identity:
        with self._tried((self._keys_by_address, network_of(address))):
            found = await self._accounts.key(keys.digest(key)) if keys.is_whole(key) else None
            if found is None:
                _log.warning("API key refused", extra={"client": address})
                raise Unauthorized
        return Identity(f"{KEY}{found.id}", known(found.scopes), expires_at=found.expires_at)

    async def by_link(self, code: str) -> Identity:
        """Good once: who comes second may be the one it was meant for, but nobody can tell."""
        actor = self._gate.verifier.verify(code, "login")
        await self._spend(actor)
        return Identity(actor.subject, actor.scopes)

    def tokens(self, who: Identity, asked: Iterable[Scope] | None) -> Token:
        """A token; for a user also what to refresh it with. A program has its key for that."""
        scopes = granted(who.scopes, asked)
        if not who.subject.startswith(USER):
            return self._token(who, scopes, session=None, refresh=None)
        session = secrets.token_urlsafe(18)
        refresh = self._gate.signer.sign(
            who.subject, scopes, self._config.refresh_ttl_s, "refresh", session=session, epoch=who.epoch
        )
        return self._token(who, scopes, session=session, refresh=refresh)

    def cookie(self, who: Identity) -> str:
        """A session for a browser. It lasts as long as one may be refreshed, and ends at once when it is revoked."""
        session = secrets.token_urlsafe(18)
        return self._gate.signer.sign(
            who.subject, who.scopes, self.session_s(who), "session", session=session, epoch=who.epoch
        )

    def session_s(self, who: Identity) -> int:
        """How long a browser's session lasts: never longer than the API key that it was opened with."""
        if who.expires_at is None:
            return int(self._config.refresh_ttl_s)
        left_s = (who.expires_at - datetime.now(UTC)).total_seconds()
        return max(1, int(min(self._config.refresh_ttl_s, left_s)))

    async def refreshed(self, token: str) -> Token:
        """Each refresh token is good once. One that comes again was stolen, or its thief was first: the whole session
        ends. All of a session's tokens end when the first would have."""
        actor = self._gate.verifier.verify(token, "refresh")
        named = actor.subject.removeprefix(USER)
        user = await self._accounts.user(named) if named != actor.subject else None
        left_s = actor.expires_s - time.time()
        if user is None or epoch_of(user) != actor.epoch or actor.session is None or left_s < 1:
            raise Unauthorized
        await self._spend(actor)  # first: that a token comes twice must be seen, however often its thief has refreshed
        self._take(self._refreshes, actor.session, "too many refreshes of one session")
        who = Identity(actor.subject, actor.scopes, actor.epoch)
        fresh = self._gate.signer.sign(
            who.subject, who.scopes, left_s, "refresh", session=actor.session, epoch=who.epoch
        )
        return self._token(who, who.scopes, session=actor.session, refresh=fresh)

    async def ended(self, actor: Actor) -> None:
        """Log out: the session with all its tokens, or the one token. What is revoked is in the memory of every process:
        who makes himself tokens only to end them must not fill it."""
        self._take(self._logouts, actor.subject, "too many logouts")
        if actor.session is not None:
            await self._gate.revoke(revocable("session", actor.session), self._config.refresh_ttl_s)
        elif actor.token_id is not None:
            await self._gate.revoke(revocable("token", actor.token_id), max(actor.expires_s - time.time(), 0) + 60)

    def _token(self, who: Identity, scopes: frozenset[Scope], *, session: str | None, refresh: str | None) -> Token:
        ttl_s = int(self._config.token_ttl_s)
        if who.expires_at is not None:
            ttl_s = min(ttl_s, int((who.expires_at - datetime.now(UTC)).total_seconds()))
        if ttl_s < 1:
            raise Unauthorized
        access = self._gate.signer.sign(who.subject, scopes, ttl_s, session=session, epoch=who.epoch)
        return Token(
            access_token=access, token_type=_BEARER, expires_in=ttl_s, scopes=written(scopes), refresh_token=refresh
        )

    async def _spend(self, actor: Actor) -> None:
        assert actor.token_id is not None  # noqa: S101 - it was verified
        assert actor.expires_at is not None  # noqa: S101
        if await self._accounts.spend(actor.token_id, actor.expires_at):
            return
        _log.warning("a token that is good once came again", extra={"actor": actor.subject})
        if actor.session is not None:
            await self._gate.revoke(revocable("session", actor.session), self._config.refresh_ttl_s)
        raise Unauthorized

    @contextmanager
    def _tried(self, *counted: tuple[Attempts, str]) -> Iterator[None]:
        """Count a try before it is made. Given back unless it was a wrong one: neither who is right nor who could not be
        judged, because the database was away or too many came at once, has guessed."""
        with ExitStack() as giving_back:
            for attempts, name in counted:
                self._take(attempts, name, "too many logins that failed")
                giving_back.callback(attempts.give_back, name)
            try:
                yield
            except Unauthorized:
                giving_back.pop_all()
                raise

    def _take(self, attempts: Attempts, name: str, why: str) -> None:
        early_s = attempts.take(name, self.clock())
        if early_s > 0:
            raise TooManyRequests(early_s, why)
