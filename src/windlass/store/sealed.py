"""Rows on their way into the store, with the secrets of their payloads sealed; and what is stored, for comparing.

Sealed is the last thing before the statement: what makes two submissions the same is what was submitted.
"""

import logging
from collections.abc import Sequence
from functools import cache
from typing import Final

from windlass.config import StoreConfig
from windlass.sealing import SEALED_FIELDS, PayloadLocked, has_secrets, payload_keys
from windlass.store.rows import Row

_log: Final = logging.getLogger(__name__)


def sealed(rows: Sequence[Row], config: StoreConfig) -> Sequence[Row]:
    """The rows as they are stored. Nearly always themselves."""
    for row in rows:
        if row.type in SEALED_FIELDS:
            return [_sealed(each, config) if each.type in SEALED_FIELDS else each for each in rows]
    return rows


def opened(row: Row, stored: str, config: StoreConfig) -> str:
    """The payload that is stored for this row, as it was submitted."""
    keys = payload_keys(config.payload_keys)
    if keys is None or row.type not in SEALED_FIELDS:
        return stored
    try:
        return keys.open(row.type, stored)
    except PayloadLocked:
        return stored  # it cannot be compared: then it counts as another job


def _sealed(row: Row, config: StoreConfig) -> Row:
    keys = payload_keys(config.payload_keys)
    if keys is not None:
        return row._replace(payload=keys.seal(row.type, row.payload))
    if has_secrets(row.type, row.payload):
        _warn_unsealed()
    return row


@cache
def _warn_unsealed() -> None:
    """Once in a process."""
    _log.warning("the headers of webhooks are stored unencrypted: WINDLASS_PAYLOAD_KEYS is not set")
