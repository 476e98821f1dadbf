"""API keys: what a program has instead of a password. 256 random bits, so a plain digest of one can be stored and
looked up; nobody can try them all. The checksum tells a mistyped or cut key from a revoked one without asking the
database.
"""

import hashlib
import re
import secrets
import time
import zlib
from typing import Final, NamedTuple
from uuid import UUID

_ALPHABET: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_random_bytes: Final = 32
_body_chars: Final = 43  # of base62 hold 32 bytes
_sum_chars: Final = 6  # hold 32 bits
_shown_chars: Final = 6
MARK: Final = "wl_"
_FORM: Final = re.compile(rf"{MARK}[0-9A-Za-z]{{{_body_chars + _sum_chars}}}")


class NewKey(NamedTuple):
    """A key as it is made. `key` is shown once and kept nowhere; `prefix` tells keys apart in lists."""

    id: UUID
    key: str
    prefix: str
    digest: bytes

    def __repr__(self) -> str:
        return f"NewKey({self.prefix}…)"


def make() -> NewKey:
    body = _base62(int.from_bytes(secrets.token_bytes(_random_bytes)), _body_chars)
    key = f"{MARK}{body}{_checksum(body)}"
    return NewKey(_id(), key, key[: len(MARK) + _shown_chars], digest(key))


def is_whole(key: str) -> bool:
    """Whether this can be a key at all. The checksum is no secret: comparing it in any time tells nothing."""
    body = key[len(MARK) : -_sum_chars]
    return _FORM.fullmatch(key) is not None and key.endswith(_checksum(body))


def digest(key: str) -> bytes:
    """What is stored, and looked up: the time a look-up takes tells at most something about digests, not about keys."""
    return hashlib.sha256(key.encode()).digest()


def _id() -> UUID:
    """A UUIDv7: keys sort by when they were made."""
    return UUID(
        int=time.time_ns() // 1_000_000 << 80
        | 0x7 << 76
        | secrets.randbits(12) << 64
        | 0b10 << 62
        | secrets.randbits(62)
    )


def _checksum(body: str) -> str:
    return _base62(zlib.crc32(body.encode()), _sum_chars)


def _base62(number: int, chars: int) -> str:
    digits = []
    for _ in range(chars):
        number, digit = divmod(number, len(_ALPHABET))
        digits.append(_ALPHABET[digit])
    return "".join(reversed(digits))
