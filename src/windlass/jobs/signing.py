"""Signatures of webhooks, as Standard Webhooks has them: HMAC-SHA256 over `id.timestamp.body`, base64, `v1,` before it.

WINDLASS_WEBHOOK_SECRET holds the keys, separated by blanks: `whsec_…`, or `NAME=whsec_…` for the receivers that a job
names by `secret_name`. Several keys of one name sign side by side, so that a receiver can change to the new one at its
leisure. Pure.
"""

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Sequence
from typing import Final

from windlass.errors import Misconfigured

_ENTRY: Final = re.compile(r"(?:([A-Za-z0-9_.-]{1,100})=)?whsec_([A-Za-z0-9+/_-]+={0,2})")
_key_bytes: Final = range(24, 65)


def keys(setting: str | None, name: str | None) -> list[bytes]:
    """The keys of that name; without a name, those that have none. No message shows any of them."""
    found: list[bytes] = []
    for n, entry in enumerate((setting or "").split(), start=1):
        matched = _ENTRY.fullmatch(entry)
        if matched is None:
            raise Misconfigured(f"WINDLASS_WEBHOOK_SECRET: entry {n} is neither whsec_… nor NAME=whsec_…")
        if matched[1] == name:
            found.append(_key(matched[2], n))
    return found


def signature(signing: Sequence[bytes], message_id: str, timestamp: int, body: bytes) -> str:
    """The value of the `webhook-signature` header: one signature for each key."""
    content = f"{message_id}.{timestamp}.".encode() + body
    made = (hmac.new(key, content, hashlib.sha256).digest() for key in signing)
    return " ".join(f"v1,{base64.b64encode(each).decode()}" for each in made)


def _key(text: str, n: int) -> bytes:
    plain = text.rstrip("=").replace("-", "+").replace("_", "/")
    try:
        key = base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise Misconfigured(f"WINDLASS_WEBHOOK_SECRET: entry {n} is no base64 behind whsec_") from None
    if len(key) not in _key_bytes:
        raise Misconfigured(f"WINDLASS_WEBHOOK_SECRET: entry {n} has {len(key)} bytes; a key has 24 to 64")
    return key
