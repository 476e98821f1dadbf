"""Secrets of payloads, encrypted where they are stored: the headers of webhooks.

A job needs its headers to run, so they are in the database, in its backups and replicas. With WINDLASS_PAYLOAD_KEYS their
values are sealed on the way into the store and opened for the handler, by AES-256-GCM under a key that the database does
not hold. The first key seals and all of them open, so that keys can be changed while jobs wait. Everything between, the
comparison of repeated submissions too, works on what was submitted.
"""

import base64
import binascii
import hashlib
import json
import os
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from windlass.errors import InvalidPayload
from windlass.payload import decode
from windlass.secret_names import is_harmless_header

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_KEY_CHARS_LEAST: Final = 32
_NONCE_BYTES: Final = 12
_PREFIX: Final = "sealed:v1:"
_SEALED: Final = re.compile(r"sealed:v1:([0-9a-f]{8}):([A-Za-z0-9_-]+={0,2})")
# By type, the field whose values are secrets: an object of texts.
SEALED_FIELDS: Final[Mapping[str, str]] = {"webhook": "headers"}


class PayloadLocked(RuntimeError):
    """A payload is encrypted with a key that this process does not have. The attempt fails; with the key, another may not."""


class PayloadKeys:
    """What seals and opens. Made from the setting; raises ValueError if a key is too short."""

    def __init__(self, setting: str) -> None:
        texts = setting.replace(",", " ").split()
        for n, text in enumerate(texts, start=1):
            if len(text) < _KEY_CHARS_LEAST:
                raise ValueError(
                    f"key {n} has {len(text)} characters; a key has at least {_KEY_CHARS_LEAST}, random ones: "
                    "openssl rand -base64 32"
                )
        keys = [hashlib.sha256(b"windlass payload key\0" + text.encode()).digest() for text in texts]
        self._keys = {hashlib.sha256(b"name of " + key).hexdigest()[:8]: key for key in keys}
        self._first = next(iter(self._keys), "")

    def seal(self, type_: str, payload: str) -> str:
        """A payload, as JSON text, as it is to be stored."""
        return _changed(type_, payload, self._sealed)

    def open(self, type_: str, payload: str) -> str:
        """A stored payload as it was submitted. Raises PayloadLocked."""
        return _changed(type_, payload, self._opened)

    def _sealed(self, name: str, value: str) -> str:
        nonce = os.urandom(_NONCE_BYTES)
        data = nonce + _cipher(self._keys[self._first]).encrypt(nonce, value.encode(), name.lower().encode())
        return f"{_PREFIX}{self._first}:{base64.urlsafe_b64encode(data).decode()}"

    def _opened(self, name: str, value: str) -> str:
        if not value.startswith(_PREFIX):
            return value  # stored before there were keys
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415 - most processes open nothing

        found = _SEALED.fullmatch(value)
        key = self._keys.get(found[1]) if found else None
        if found is None or key is None:
            raise PayloadLocked(f"{name} is encrypted with a key that is not among WINDLASS_PAYLOAD_KEYS")
        try:
            data = base64.urlsafe_b64decode(found[2])
            return _cipher(key).decrypt(data[:_NONCE_BYTES], data[_NONCE_BYTES:], name.lower().encode()).decode()
        except (InvalidTag, binascii.Error, ValueError):
            raise PayloadLocked(f"{name} was changed where it was stored") from None


NO_KEYS: Final = PayloadKeys("")


@lru_cache(maxsize=16)
def payload_keys(setting: str | None) -> PayloadKeys | None:
    """The keys of the setting; None if there are none."""
    return PayloadKeys(setting) if setting else None


def has_secrets(type_: str, payload: str) -> bool:
    """Whether a payload holds what would be sealed. Refuses what looks sealed: a worker would open it for whoever copied it."""
    found: list[str] = []

    def note(_: str, value: str) -> str:
        if value.startswith(_PREFIX):
            raise InvalidPayload(f"payload.{SEALED_FIELDS[type_]}", f"must not begin with {_PREFIX}")
        found.append(value)
        return value

    _changed(type_, payload, note)
    return bool(found)


def opening(
    arguments: Callable[[str], dict[str, Any]], type_: str, keys: PayloadKeys
) -> Callable[[str], dict[str, Any]]:
    """How a handler's arguments are read from a stored payload whose secrets may be sealed."""
    return lambda payload: arguments(keys.open(type_, payload) if _PREFIX in payload else payload)


def _changed(type_: str, payload: str, change: Callable[[str, str], str]) -> str:
    """The payload with each secret of its type changed; itself if it has none."""
    field = SEALED_FIELDS[type_]
    value = decode(payload)
    given = value.get(field) if isinstance(value, dict) else None
    if not isinstance(given, dict):
        return payload
    changed = {
        name: change(name, each) if isinstance(each, str) and each and not is_harmless_header(name) else each
        for name, each in given.items()
    }
    return payload if changed == given else _written({**value, field: changed})


def _written(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _cipher(key: bytes) -> "AESGCM":
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 - 20 ms

    return AESGCM(key)
