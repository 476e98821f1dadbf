"""Tokens: JSON Web Tokens in the strictest form that serves. What is not exactly as it must be is refused, always with
the same words, because what is wrong with a forged token helps only its forger.

Each use has its own `typ`, so that a token for one is none for another: the cookie is no bearer token, a login link no
session. A verified token is remembered, because a busy caller sends the same one thousands of times a second; that it
has not expired and is not revoked is asked each time.
"""

import base64
import binascii
import json
import logging
import math
import re
import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Literal, NoReturn

from windlass.auth.keyring import Keyring, keyring
from windlass.auth.scopes import ALL, Scope, allows, known, written
from windlass.config import AuthConfig
from windlass.errors import Forbidden, RequestError, Unauthorized

Typ = Literal["access", "session", "refresh", "login"]
TYPES: Final[Mapping[Typ, str]] = {
    "access": "at+jwt",
    "session": "session+jwt",
    "refresh": "refresh+jwt",
    "login": "login+jwt",
}

token_chars_max: Final = 4096
leeway_s: Final = 30  # for the clock of who signed: of "not yet" only, an expiry is exact
login_ttl_s_max: Final = 3600.0
remembered_max: Final = 2048  # × 4 KB at most
_second_max: Final = 1 << 37  # well within the years that datetime has
_SEGMENT: Final = re.compile(r"[A-Za-z0-9_-]+")
_SUBJECT: Final = re.compile(
    r"[^\s\x00-\x1f\x7f-\xa0\u2028\u2029\ud800-\udfff](?:[^\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]{0,199})"
)
_NAME: Final = re.compile(r"[\x21-\x7e]{1,128}")
_log: Final = logging.getLogger(__name__)
_HEADER_FIELDS: Final = frozenset({"alg", "typ", "kid"})


@dataclass(frozen=True, slots=True)
class Actor:
    """Who calls. `names`: what this caller is revoked by: his token, his session, his subject as it was then."""

    subject: str
    scopes: frozenset[Scope]
    expires_at: datetime | None = None
    token_id: str | None = None
    session: str | None = None
    epoch: str | None = None
    issued_s: float = 0.0
    expires_s: float = math.inf
    names: frozenset[str] = frozenset()

    def allows(self, needed: Scope) -> bool:
        return allows(self.scopes, needed)

    def need(self, needed: Scope) -> None:
        if not allows(self.scopes, needed):
            raise Forbidden(f"this needs the scope {needed}")


ANONYMOUS: Final = Actor("anonymous", frozenset())  # on open routes
ANYONE: Final = Actor("anyone", ALL)  # under WINDLASS_AUTH=off


def revocable(kind: Literal["token", "session", "subject"], name: str, epoch: str | None = None) -> str:
    """Under which name something is revoked. A subject with its epoch: only what it was given before it changed."""
    return f"{kind}:{name}@{epoch}" if epoch else f"{kind}:{name}"


class _Bad(Exception):
    """What is wrong with a token: for the cause of Unauthorized, never for an answer."""


class Signer:
    """Makes tokens. `ttl_s` may not exceed what a verifier with the same settings lets pass."""

    def __init__(self, keys: Keyring, config: AuthConfig, *, now: Callable[[], float] = time.time) -> None:
        self._keys = keys
        self._config = config
        self._now = now
        self._ttl_s_max = _ttl_s_max(config)

    @classmethod
    def of(cls, config: AuthConfig) -> "Signer":
        return cls(keyring(config), config)

    def sign(
        self,
        subject: str,
        scopes: Iterable[Scope],
        ttl_s: float,
        typ: Typ = "access",
        *,
        session: str | None = None,
        epoch: str | None = None,
    ) -> str:
        if not _SUBJECT.fullmatch(subject):
            raise RequestError("a subject is 1 to 200 characters, none of them a control character, the first no blank")
        most_s = self._ttl_s_max[typ]
        if not 1 <= ttl_s <= most_s:
            setting = {"access": " (WINDLASS_TOKEN_TTL_S)", "login": ""}.get(typ, " (WINDLASS_REFRESH_TTL_S)")
            raise RequestError(f"a token of type {typ} is good for 1 to {most_s:,g} s{setting}, not {ttl_s:,g} s")
        now_s = int(self._now())
        header = {"alg": self._keys.algorithm, "typ": TYPES[typ]}
        if self._keys.kid is not None:
            header["kid"] = self._keys.kid
        claims: dict[str, Any] = {
            "iss": self._config.auth_issuer,
            "aud": self._config.auth_audience,
            "sub": subject,
            "scope": " ".join(written(scopes)),
            "iat": now_s,
            "exp": now_s + int(ttl_s),
            "jti": secrets.token_urlsafe(18),
        }
        claims |= {name: value for name, value in (("sid", session), ("epoch", epoch)) if value is not None}
        message = b".".join(map(_encoded, (header, claims)))
        return (message + b"." + _b64(self._keys.sign(message))).decode()


class Verifier:
    """Judges tokens. `revoked`: what is, and since when; replaced from outside whenever the store was asked."""

    def __init__(self, keys: Keyring, config: AuthConfig, *, now: Callable[[], float] = time.time) -> None:
        self._keys = keys
        self._config = config
        self._now = now
        self._ttl_s_max = _ttl_s_max(config)
        self._remembered: dict[tuple[Typ, str], Actor] = {}
        self.revoked: Mapping[str, datetime] = {}

    @classmethod
    def of(cls, config: AuthConfig) -> "Verifier":
        return cls(keyring(config), config)

    def verify(self, token: str, typ: Typ = "access") -> Actor:
        """Who the token speaks for, or Unauthorized. Why, only the log says."""
        # The look-up compares with tokens that are good already, and by a keyed hash: its time tells nothing of them.
        actor = self._remembered.get((typ, token))
        try:
            if actor is None:
                actor = self._judged(token, typ)
                self._remember(typ, token, actor)
            if actor.expires_s <= self._now():
                self._remembered.pop((typ, token), None)
                _refuse("it has expired")
            if not self.revoked.keys().isdisjoint(actor.names) and self._is_revoked(actor):
                _refuse("it is revoked")
        except _Bad as problem:
            _log.debug("a token was refused: %s", problem)
            raise Unauthorized from problem
        return actor

    def _is_revoked(self, actor: Actor) -> bool:
        """A token or session never comes back. A subject may: what it was given later is good, later by more than
        clocks may differ."""
        for name in actor.names & self.revoked.keys():
            if not name.startswith("subject:") or actor.issued_s <= self.revoked[name].timestamp() + leeway_s:
                return True
        return False

    def _remember(self, typ: Typ, token: str, actor: Actor) -> None:
        if len(self._remembered) >= remembered_max:
            del self._remembered[next(iter(self._remembered))]
        self._remembered[typ, token] = actor

    def _judged(self, token: str, typ: Typ) -> Actor:
        """The signature is judged before the claims are read: nothing unsigned reaches the parser but a small
        header."""
        if len(token) > token_chars_max:
            _refuse("it is too long")
        parts = token.split(".", 3)
        if len(parts) != 3:
            _refuse("it has not three parts")
        header = _object(_bytes(parts[0]), "header")
        kid = self._kid(header, typ)
        message = f"{parts[0]}.{parts[1]}".encode()
        if not self._keys.verify(kid, message, _bytes(parts[2])):
            _refuse("its signature is wrong, or its key unknown")
        return self._actor(_object(_bytes(parts[1]), "claims"), typ)

    def _kid(self, header: Mapping[str, Any], typ: Typ) -> str | None:
        """No `crit`, `jku`, `x5u`, `jwk`, `zip`: a header says its three things or is none of ours."""
        if not header.keys() <= _HEADER_FIELDS:
            _refuse("its header holds more than alg, typ and kid")
        if header.get("alg") != self._keys.algorithm:
            _refuse("its algorithm is not the configured one")
        if header.get("typ") != TYPES[typ]:
            _refuse("it is of another type")
        kid = header.get("kid")
        if (self._keys.kid is None) != ("kid" not in header) or not (kid is None or isinstance(kid, str)):
            _refuse("its kid is missing, or out of place")
        return kid

    def _actor(self, claims: Mapping[str, Any], typ: Typ) -> Actor:
        if claims.get("iss") != self._config.auth_issuer or claims.get("aud") != self._config.auth_audience:
            _refuse("its issuer or audience is another")
        issued_s, expires_s = _second(claims, "iat"), _second(claims, "exp")
        if max(issued_s, _second(claims, "nbf") if "nbf" in claims else 0) > self._now() + leeway_s:
            _refuse("it is not valid yet")
        if not 0 < expires_s - issued_s <= self._ttl_s_max[typ]:
            _refuse("it lives too long, or ends before it begins")
        subject = _text(claims, "sub", _SUBJECT)
        token_id = _text(claims, "jti", _NAME)
        session = _text(claims, "sid", _NAME) if "sid" in claims else None
        epoch = _text(claims, "epoch", _NAME) if "epoch" in claims else None
        scope = claims.get("scope")
        if not isinstance(scope, str):
            _refuse("its scope is no text")
        names = {revocable("token", token_id), revocable("subject", subject), revocable("subject", subject, epoch)}
        if session is not None:
            names.add(revocable("session", session))
        return Actor(
            subject=subject,
            scopes=known(scope.split(" ")),
            expires_at=datetime.fromtimestamp(expires_s, UTC),
            token_id=token_id,
            session=session,
            epoch=epoch,
            issued_s=issued_s,
            expires_s=expires_s,
            names=frozenset(names),
        )


def _ttl_s_max(config: AuthConfig) -> Mapping[Typ, float]:
    return {
        "access": config.token_ttl_s,
        "session": config.refresh_ttl_s,
        "refresh": config.refresh_ttl_s,
        "login": login_ttl_s_max,
    }


def _refuse(why: str) -> NoReturn:
    raise _Bad(why)


def _bytes(segment: str) -> bytes:
    """Unpadded base64url in its one canonical spelling: Python's own decoder skips what it does not know."""
    if not _SEGMENT.fullmatch(segment):
        _refuse("a part is no base64url")
    try:
        data = base64.urlsafe_b64decode(segment + "=" * (-len(segment) % 4))
    except binascii.Error:
        _refuse("a part is no base64url")
    if _b64(data) != segment.encode():
        _refuse("a part is base64url in another spelling")
    return data


def _b64(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")


def _encoded(value: Mapping[str, Any]) -> bytes:
    return _b64(json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode())


def _object(data: bytes, what: str) -> dict[str, Any]:
    try:
        value = json.loads(data.decode(), object_pairs_hook=_unique, parse_constant=_constant)
    except (ValueError, RecursionError):  # ValueError: no UTF-8, no JSON, or a number of thousands of digits
        _refuse(f"its {what} cannot be read")
    if not isinstance(value, dict):
        _refuse(f"its {what} is no object")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Of two fields with one name, another reader may have judged the other one."""
    value = dict(pairs)
    if len(value) != len(pairs):
        _refuse("a field is there twice")
    return value


def _constant(name: str) -> NoReturn:
    _refuse(f"{name} is no JSON")


def _second(claims: Mapping[str, Any], name: str) -> int:
    value = claims.get(name)
    if type(value) is not int or not 0 < value < _second_max:  # no bool, no float, no text
        _refuse(f"its {name} is no second")
    return value


def _text(claims: Mapping[str, Any], name: str, pattern: re.Pattern[str]) -> str:
    value = claims.get(name)
    if not isinstance(value, str) or not pattern.fullmatch(value):
        _refuse(f"its {name} is missing, or no text as it must be")
    return value
